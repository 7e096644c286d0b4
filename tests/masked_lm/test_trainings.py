"""Which models a study trains, and how."""

from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.masked_lm.arguments import Study, parse
from linformer_fairseq.masked_lm.arms import ARMS
from linformer_fairseq.masked_lm.swap import swaps
from linformer_fairseq.masked_lm.trainings import check_flags, planned, training_arguments
from linformer_fairseq.recipe.flags import parse_training


def study(out: Path, *arguments: str) -> Study:
    return parse(["--data", str(out), "--out", str(out), *arguments])


def test_every_comparison_has_its_trainings_once(tmp_path: Path) -> None:
    arguments = "--arms transformer,two-level,linformer,window,performer --lengths 64,128 -k 8 --ks 4,8"
    asked = study(tmp_path, *arguments.replace("window,", "").split(), "--sharings", "none,headwise", "--seeds", "5,6")
    assert [(own.slug, own.seed) for own in planned(asked)] == [
        ("transformer-n64", 5),
        ("two-level-n64-k8", 5),
        ("linformer-n64-k8", 5),
        ("performer-n64", 5),
        ("transformer-n128", 5),
        ("two-level-n128-k8", 5),
        ("linformer-n128-k8", 5),
        ("linformer-n64-k4", 5),
        ("linformer-n128-k4", 5),
        ("linformer-n64-k8-none", 5),
        ("transformer-n64", 6),
        ("two-level-n64-k8", 6),
        ("linformer-n64-k8", 6),
    ]


def test_attention_is_replaced_at_every_length_and_trained_at_the_first(tmp_path: Path) -> None:
    asked = study(tmp_path, "--arms", "transformer,two-level", "--lengths", "64,128", "-k", "8", "--ks", "8")
    found = [(own.training.slug, own.share, own.trained.slug) for own in swaps(asked)]
    assert found == [
        ("transformer-n64", 0.01, "transformer-n64"),
        ("transformer-n64", 0.1, "transformer-n64"),
        ("two-level-n64-k8", 0.0, "transformer-n64"),
        ("two-level-n64-k8", 0.01, "transformer-n64"),
        ("two-level-n64-k8", 0.1, "transformer-n64"),
        ("two-level-n128-k8", 0.0, "transformer-n128"),
    ]
    assert not swaps(study(tmp_path, "--arms", "two-level", "--lengths", "64", "-k", "8", "--ks", "8"))


def test_a_convolution_is_beside_every_attention(tmp_path: Path) -> None:
    asked = study(tmp_path, "--lengths", "32", "-k", "8", "--ks", "8", "--convolution", "5")
    widths = {}
    for own in planned(asked):
        check_flags(own, asked.settings)
        args = parse_training(training_arguments(own, asked.settings, own.folder, 40))
        widths[own.arm.name] = args.linformer_value_convolution
        if own.arm.name == "transformer":
            assert (args.arch, args.linformer_projection) == ("two_level_roberta_tiny", "two-level")
            assert args.linformer_exact_below > own.length, "full attention"
    assert widths == {**dict.fromkeys(ARMS, 5), "nystromformer": 0}, "which has its own"
    with pytest.raises(UserError, match="--convolution must be an odd number of tokens, or 0 for none, not 4"):
        study(tmp_path, "--convolution", "4")


@pytest.mark.parametrize(
    "given", ["--seed 7", "--save-dir elsewhere", "--max-update 5", "--tokens-per-sample 16", "--no-save", "--fp16"]
)
def test_flags_that_the_study_sets_are_refused(tmp_path: Path, given: str) -> None:
    asked = study(tmp_path, "--lengths", "32", "-k", "8", "--ks", "8", "--", *given.split())
    with pytest.raises(UserError, match=rf"seed 1 cannot be trained: {given.split()[0]} is set by the [^.]*\.$"):
        check_flags(planned(asked)[0], asked.settings)


def test_the_first_length_and_seed_are_the_lowest(tmp_path: Path) -> None:
    asked = study(tmp_path, "--lengths", "64,32", "-k", "8", "--ks", "8", "--seeds", "3,1")
    assert (asked.lengths, asked.seeds) == ([32, 64], [1, 3])


@pytest.mark.parametrize("arm", ARMS.values(), ids=list(ARMS))
def test_only_the_attention_differs(tmp_path: Path, arm) -> None:
    asked = study(
        tmp_path,
        "--lengths",
        "64",
        "-k",
        "8",
        "--ks",
        "8",
        "--updates",
        "40",
        "--warmup-updates",
        "4",
        "--",
        "--log-interval",
        "7",
    )
    own = next(own for own in planned(asked) if own.arm is arm)
    args = parse_training(training_arguments(own, asked.settings, own.folder, 40))
    base = parse_training(training_arguments(planned(asked)[0], asked.settings, own.folder, 40))
    differing = {name for name in vars(args) | vars(base) if getattr(args, name, None) != getattr(base, name, None)}
    assert {name for name in differing if not name.startswith("linformer_")} <= {"arch"}
    assert (args.encoder_layers, args.encoder_embed_dim, args.max_positions, args.tokens_per_sample) == (4, 128, 64, 64)
    assert (args.max_update, int(args.total_num_update), args.warmup_updates, args.log_interval) == (40, 40, 4, 7)
    if arm.uses_k:
        assert args.linformer_k == "8"


def test_what_no_model_can_be_built_of_is_refused_before_the_first_training(tmp_path: Path) -> None:
    asked = study(tmp_path, "--lengths", "64", "-k", "8", "--ks", "8", "--", "--linformer-landmarks", "0")
    (own,) = [own for own in planned(asked) if own.arm.name == "nystromformer"]
    with pytest.raises(UserError, match="Nyströmformer, n = 64, seed 1 cannot be trained: --linformer-landmarks must"):
        check_flags(own, asked.settings)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lengths", "64,9000"], "--max-tokens 8192 holds no block of 9000 tokens: give more"),
        (["--lengths", "64"], "--k 128 is more than the 64 tokens of --lengths: choose k <= n"),
        (["--lengths", "128"], "--ks 256 is more than the 128 tokens of --lengths: choose k <= n"),
        (["--updates", "40"], "--warmup-updates 500 leaves none of 40 --updates: give fewer"),
        (["--arch", "xlm"], "invalid choice: 'xlm'"),
        (["--arms", "transformer,rnn"], "'rnn' is not a model: choose from transformer, two-level"),
    ],
)
def test_bad_command_lines_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        study(tmp_path, *arguments)


def test_only_linformer_needs_the_projected_dimensions_that_are_compared(tmp_path: Path) -> None:
    assert study(tmp_path, "--lengths", "128", "--arms", "transformer,two-level").ks == [64, 128, 256]


def test_an_architecture_of_fairseqs_has_its_own_sizes(tmp_path: Path) -> None:
    assert study(tmp_path, "--arch", "roberta_base", "--layers", "6").settings.size_flags == ("--encoder-layers", "6")
    with pytest.raises(UserError, match="--data is missing"):
        parse(["--out", str(tmp_path)])
