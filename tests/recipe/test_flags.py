"""Asking about every training before the first one starts."""

import sys
from pathlib import Path

import pytest
from linformer_fairseq.recipe.arguments import parse

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.flags import check_flags


def check(out: Path, *arguments: str) -> None:
    run = parse(["--out", str(out), "--k", "4", *arguments])
    for model in run.models:
        check_flags(model, run.settings, out)


@pytest.mark.parametrize("kind", ["nystromformer", "performer", "longformer", "reformer"])
def test_a_package_that_is_missing_is_asked_for(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("nystrom_attention", "performer_pytorch", "transformers", "reformer_pytorch"):
        monkeypatch.setitem(sys.modules, package, None)  # as Python documents
    with pytest.raises(UserError, match=r"cannot be trained: .* cannot be imported .*: pip install '.*\[peers\]'\."):
        check(tmp_path, "--attention", "encoder", "--projection", kind)


def test_what_a_package_does_not_do_is_refused(tmp_path: Path) -> None:
    flags = ("--attention", "encoder", "--projection", "performer", "--", "--attention-dropout", "0.1")
    with pytest.raises(UserError, match="performer has no attention probabilities to drop: use --attention-dropout 0"):
        check(tmp_path, *flags)


def test_every_place_is_built(tmp_path: Path) -> None:
    check(tmp_path, "--attention", "encoder,cross,decoder", "--attention", "cross", "--projection", "two-level,linear")
