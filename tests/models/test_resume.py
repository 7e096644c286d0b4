"""A training that goes on with another attention than it was begun with is refused, however flags say it."""

import re
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

import pytest
import torch
from fairseq.logging import metrics
from omegaconf import OmegaConf

from linformer_fairseq.models.config import add_flags
from linformer_fairseq.models.resume import check_resumed, resumed_from, settings_of
from tests.models.toy import EVERYWHERE, toy_args, toy_model

TWO_LEVELS = {"linformer_projection": "two-level"}


def refusal(theirs: dict[str, object], ours: dict[str, object], places: str = EVERYWHERE, arch: str = "") -> str:
    """Returns the flags that are to go on; an empty text where nothing is refused."""
    settings = Namespace(arch=arch or "linformer_transformer", **theirs)
    try:
        check_resumed(Path("last.pt"), settings, Namespace(**ours), places.split(","))
    except ValueError as error:
        return re.fullmatch(r"last\.pt was trained with (.*): go on so, or name another --save-dir .*", str(error))[1]
    return ""


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"linformer_k": "8"}, {"linformer_k": "8,8", "linformer_cross_k": 8, "linformer_projection": "linear"}),
        ({"linformer_k": "8, 4"}, {"linformer_k": [8, 4], "linformer_attention": "cross,encoder"}),
        ({**TWO_LEVELS, "linformer_exact_below": 768, "linformer_open_slots": None}, TWO_LEVELS),
        ({"linformer_projection": "full", "linformer_attention": "encoder"}, {"linformer_projection": "full"}),
    ],
)
def test_what_goes_on(theirs: dict[str, object], ours: dict[str, object]) -> None:
    assert not refusal(theirs, ours)
    assert not refusal(ours, theirs)


@pytest.mark.parametrize(
    ("theirs", "ours", "flags"),
    [
        ({"linformer_k": "64"}, {"linformer_k": "32"}, "--linformer-k 64"),
        ({"linformer_k": [8, 4]}, {"linformer_k": "4,8"}, "--linformer-k 8,4"),
        ({"linformer_k": "8"}, {"linformer_k": "8", "linformer_cross_k": "4"}, "no --linformer-cross-k"),
        ({"linformer_projection": "two-level"}, {}, "--linformer-projection two-level"),
        ({"linformer_k": "8"}, {"linformer_k": "8", **TWO_LEVELS}, "--linformer-projection linear"),
        (
            {"linformer_mask_empty_slots": True, "linformer_value_convolution": 5},
            {"linformer_attention": EVERYWHERE, "linformer_window": 4},
            "no --linformer-attention, --linformer-value-convolution 5, --linformer-mask-empty-slots, "
            "--linformer-window 0",
        ),
    ],
)
def test_what_does_not_go_on(theirs: dict[str, object], ours: dict[str, object], flags: str) -> None:
    """With the flags that the refusal names, nothing is refused."""
    theirs, ours = ({"linformer_projection": "linear", **x} for x in (theirs, ours))
    found = refusal(theirs, ours)
    assert sorted(found.split(", ")) == sorted(flags.split(", "))
    parser = ArgumentParser(argument_default=SUPPRESS)
    add_flags(parser)
    ours |= vars(parser.parse_args([word for flag in found.split(", ") if flag[0] == "-" for word in flag.split()]))
    for flag in re.findall(r"no --([\w-]+)", found):
        del ours[flag.replace("-", "_")]
    assert not refusal(theirs, ours)


def test_windows_of_a_decoder_follow_from_its_longest_target() -> None:
    short, long = ({"max_target_positions": n} for n in (1024, 4096))
    assert refusal({**TWO_LEVELS, **short}, {**TWO_LEVELS, **long}) == "--max-target-positions 1024"
    assert not refusal({**TWO_LEVELS, **short}, {**TWO_LEVELS, **long}, "encoder,cross")
    linear = {"linformer_projection": "linear", "linformer_attention": EVERYWHERE}
    assert not refusal({**linear, **short}, {**linear, **long})  # whose new columns start fresh


def test_a_transformer_goes_on_with_full_attention_alone() -> None:
    for places in ("encoder", EVERYWHERE):
        assert not refusal({}, {"linformer_projection": "full"}, places, arch="transformer")
        assert refusal({}, TWO_LEVELS, places, arch="transformer") == "--arch transformer"


def test_flags_that_mean_nothing_are_not_compared() -> None:
    assert not refusal({"linformer_projection": "gone"}, TWO_LEVELS)


def test_which_checkpoint_is_looked_at(tmp_path: Path) -> None:
    flags = {"save_dir": str(tmp_path), "restore_file": "checkpoint_last.pt", "reset_optimizer": False}
    flags |= {"checkpoint_suffix": "", "continue_once": None}

    def found(**other: object) -> Path | None:
        namespace, config = Namespace(**flags | other), OmegaConf.create({"checkpoint": flags | other, "model": {}})
        assert resumed_from(namespace) == resumed_from(config.model)
        return resumed_from(namespace)

    last, other, suffixed = (tmp_path / f"{name}.pt" for name in ("checkpoint_last", "other", "checkpoint_last-1"))
    other.touch()
    assert found(restore_file=str(other)) is None  # no training
    metrics.log_start_time("wall")
    assert found() is None
    assert found(continue_once=str(other)) == other
    for path in (last, suffixed):
        path.touch()
    assert found() == found(continue_once=str(other)) == last
    assert found(checkpoint_suffix="-1") == suffixed
    assert found(restore_file=str(other)) == other
    for elsewhere in ("s3://bucket/model.pt", "https://host/model.pt"):
        assert found(restore_file=elsewhere) is None
    assert found(restore_file=str(other), reset_optimizer=True) is None
    assert resumed_from(toy_args()) is resumed_from(OmegaConf.create({"linformer_k": "8"})) is None
    metrics.reset()


def test_the_flags_of_a_checkpoint(tmp_path: Path) -> None:
    """They are read from new and old files; a file that is none of fairseq's has none."""
    state = {"cfg": {"model": toy_args()}, "model": toy_model().state_dict(), "extra_state": {"train_iterator": None}}
    state["optimizer_history"] = [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 1}]
    for is_zip in (True, False):
        torch.save(state, tmp_path / "last.pt", _use_new_zipfile_serialization=is_zip)
        assert settings_of(tmp_path / "last.pt") == toy_args()
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.save({**state, "extra": Path()}, tmp_path / "last.pt")
        assert settings_of(tmp_path / "last.pt") is None
