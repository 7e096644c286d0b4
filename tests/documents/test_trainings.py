"""How fairseq-train is called, and what is refused before it is."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fairseq import optim
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import lr_scheduler

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.documents.arguments import parse
from linformer_fairseq.documents.arms import following
from linformer_fairseq.documents.prepare import SUBWORDS, source_tokens_per_target_token
from linformer_fairseq.documents.trainings import Variant, check_flags, training_arguments
from linformer_fairseq.recipe.flags import parse_training

SMALL = ("--average", "0", "--k", "4")


def check(out: Path, *arguments: str, variant: Variant | None = None) -> None:
    """Checks all trainings of a study, or that of a variant in their place."""
    for training in parse(["--out", str(out), *SMALL, *arguments]).trainings:
        check_flags(replace(training, variant=variant, k=4) if variant else training)


@pytest.mark.parametrize("kind", ["nystromformer", "performer", "longformer", "reformer"])
def test_a_package_that_is_missing_is_asked_for(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("nystrom_attention", "performer_pytorch", "transformers", "reformer_pytorch"):
        monkeypatch.setitem(sys.modules, package, None)  # as Python documents
    with pytest.raises(UserError, match=r"cannot be trained: .* cannot be imported .*: pip install '.*\[peers\]'\."):
        check(tmp_path, "--arms", "transformer", variant=Variant("other", "Other", "encoder", kind))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--arms", "performer", "--", "--attention-dropout", "0.1"),
            "performer has no attention probabilities to drop: use --attention-dropout 0",
        ),
        (("--k", "5000"), "--linformer-k 5000"),
        (("--", "--nonsense"), "--nonsense"),
        (("--", "--save-dir", "x"), "--save-dir is set by the study, so leave it out of what follows --"),
        (("--", "--device-id", "1"), "--device-id is set by the worker"),
        (("--arms", "linformer", "--", "--linformer-k", "2"), "--linformer-k is set by the study"),
    ],
)
def test_what_would_be_refused_hours_later_is_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(tmp_path, *arguments)


def test_every_place_is_built(tmp_path: Path) -> None:
    check(tmp_path, "--arms", "transformer,two-level-all,linformer-all,window", "--", "--clip-norm", "1")


def test_what_fairseq_is_given(tmp_path: Path) -> None:
    study = parse(["--out", str(tmp_path), *SMALL, "--arch", "transformer_tiny"])
    given = {training.variant.name: training.model_arguments() for training in study.trainings}
    assert given["transformer"] == ["--arch", "transformer_tiny"]
    assert given["two-level"] == [
        *("--arch", "two_level_transformer_tiny", "--linformer-k", "4"),
        *("--linformer-attention", "encoder,cross", "--linformer-projection", "two-level"),
    ]
    assert given["window"][:2] == ["--arch", "linformer_transformer_tiny"]
    assert given["linformer-all"][-2:] == ["--linformer-window", "0"]


@pytest.mark.parametrize(
    ("given", "rates"),
    [([], [1.0, 0.5**0.5, 0.25**0.5]), (["--linear-decay"], [1.0, 2 / 3, 0.0])],
    ids=["inverse square root", "linear"],
)
def test_the_learning_rate_after_its_warm_up(given: list[str], rates: list[float], tmp_path: Path) -> None:
    options = ["--updates", "40", "--warmup-updates", "10", "--lr", "0.5"]
    study = parse(["--out", str(tmp_path), *SMALL, *options, *given])
    config = convert_namespace_to_omegaconf(parse_training(training_arguments(study.trainings[0])))
    optimizer = optim.build_optimizer(config.optimizer, [torch.nn.Parameter(torch.zeros(1))])
    scheduler = lr_scheduler.build_lr_scheduler(config.lr_scheduler, optimizer)
    found = {number: scheduler.step_update(number) for number in range(41)}
    assert [found[number] / 0.5 for number in (10, 20, 40)] == pytest.approx(rates)


def test_a_window_follows_the_diagonal_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "text" / "bpe").mkdir(parents=True)
    write_json(tmp_path / "text" / "bpe" / SUBWORDS, {"train": {"source_subwords": 30, "target_subwords": 40}})
    ratio = source_tokens_per_target_token(tmp_path)
    for training in parse(["--out", str(tmp_path), *SMALL, "--arms", "window,linformer"]).trainings:
        flags = following(training, ratio).settings.training.train_args[-2:]
        assert (flags == ["--linformer-window-ratio", "0.750"]) == (training.variant.name == "window")
        check_flags(following(training, ratio))


def test_limits_of_source_and_target_are_their_own(tmp_path: Path) -> None:
    study = parse(["--out", str(tmp_path), "--", "--max-source-positions", "8192"])
    assert study.settings.training.longest == {"--max-source-positions": 8192, "--max-target-positions": 4096}
