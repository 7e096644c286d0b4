"""The models that are compared, by name, and their trainings."""

import sys
from collections.abc import Iterator
from pathlib import Path

from linformer_fairseq.models.config import ALL_PLACES

from .trainings import Settings, Training, Variant, training_of, with_arguments

ENCODER_CROSS = "encoder,cross"
TRANSFORMER = "transformer"
TWO_LEVEL = "two-level"
START = Variant("start", "Transformer, before documents", what="full attention, trained on a few sentences at a time")
"""What all others start from."""
SENTENCES = Variant(
    "sentences",
    "Transformer, sentence by sentence",
    what="the start of all others, which has been trained no further and translates single sentences",
)
CONVERTED = Variant(
    "converted",
    "two levels (with decoder), converted",
    ALL_PLACES,
    TWO_LEVEL,
    what="the Transformer that was trained on documents, with all three attentions turned into two levels and no "
    "training after that",
)
_EXACT = "--linformer-exact-below 1000000"
"""Two levels that are full attention, by torch's fused kernel, at any length."""
FUSED = Variant(
    "fused",
    "Transformer, all attention fused",
    ALL_PLACES,
    TWO_LEVEL,
    _EXACT,
    what="the same with torch's fused attention in cross-attention too, where fairseq's own has an explicit softmax",
)
"""A Transformer whose time and memory are measured; it computes what the Transformer computes."""
_CONVOLUTION = "--linformer-value-convolution 33"
"""As wide as that of the package nystrom-attention."""
_TRAINED = (
    Variant(TRANSFORMER, "Transformer", what="full attention"),
    Variant("two-level", "two levels", ENCODER_CROSS, TWO_LEVEL, what="two levels in encoder and cross-attention"),
    Variant(
        "two-level-all", "two levels (with decoder)", ALL_PLACES, TWO_LEVEL, what="two levels in all three attentions"
    ),
    Variant(
        "transformer-convolution",
        "Transformer with convolution",
        "encoder",
        TWO_LEVEL,
        f"{_EXACT} {_CONVOLUTION}",
        what="full attention, and a convolution over the values beside that of the encoder",
    ),
    Variant(
        "two-level-convolution",
        "two levels (with decoder) and convolution",
        ALL_PLACES,
        TWO_LEVEL,
        _CONVOLUTION,
        what="two levels in all three attentions, and a convolution over the values beside that of the encoder",
    ),
    Variant("linformer", "Linformer", ENCODER_CROSS, what="learned E and F in encoder and cross-attention"),
    Variant(
        "linformer-all",
        "Linformer (with decoder)",
        ALL_PLACES,
        flags="--linformer-window 0",
        what="Linformer, and its causal form in the decoder's self-attention",
    ),
    Variant("linformer-encoder", "Linformer (encoder)", "encoder", what="learned E and F in the encoder alone"),
    Variant(
        "window",
        "window",
        ALL_PLACES,
        "window",
        what="a window of neighbouring tokens in encoder and decoder, and one that follows the diagonal in "
        "cross-attention",
    ),
    Variant("nystromformer", "Nyströmformer", "encoder", "nystromformer", what="Nyströmformer in the encoder"),
    Variant("performer", "Performer", "encoder", "performer", what="Performer in the encoder"),
    Variant("longformer", "Longformer", "encoder", "longformer", what="Longformer in the encoder"),
)
ARMS = {arm.name: arm for arm in (*_TRAINED, SENTENCES, CONVERTED)}
"""All that can be compared."""
SEVERAL_SEEDS = (
    TRANSFORMER,
    "two-level",
    "two-level-all",
    "transformer-convolution",
    "two-level-convolution",
    SENTENCES.name,
)
"""Those that have all seeds; the others have the first one alone."""
BASES = {"two-level-convolution": "transformer-convolution"}
"""Models that are compared with another one than the Transformer, too, from which they differ in attention alone."""


def trainings(names: list[str], seeds: tuple[int, ...], k: int, shared: Settings, runs: Path) -> Iterator[Training]:
    """Yields the trainings of these arms, seed by seed, each after those that it depends on.

    Args:
        shared: the settings of all trainings on documents, but for seed and flags.
        runs: the folder where each arm has one.
    """
    for seed in seeds:
        for name, arm in ARMS.items():
            if name in names and (seed == seeds[0] or name in SEVERAL_SEEDS):
                yield training_of(arm, seed, k, shared, runs)


def conversion(arm: Variant, transformer: Path, output: Path, k: int, threads: int) -> list[str]:
    """Returns the command that turns a Transformer's checkpoint into that of an arm."""
    return [
        *(sys.executable, "-m", "linformer_fairseq.convert", str(transformer), str(output), "--linformer-k", str(k)),
        *("--linformer-attention", arm.attention, "--linformer-projection", arm.projection),
        *arm.flags.split(),
        *("--texts", "0", "--threads", str(threads)),
    ]


def for_length(arm: Variant, longest: int, trained: int, k: int) -> dict[str, str]:
    """Returns what an arm has otherwise on texts that are longer than those that it was trained on: two levels have so
    many more windows in encoder and cross-attention that a window has no more tokens than in training. (In the decoder
    it always has the same number.)

    Args:
        longest, trained: tokens of the longest text, and of the longest in training.
    """
    times = -(-longest // trained)
    if arm.projection != TWO_LEVEL or _EXACT in arm.flags or times == 1:
        return {}
    in_decoder = {"linformer_decoder_k": str(k)} if "decoder" in arm.attention else {}
    return {"linformer_k": str(times * k), **in_decoder}


def started_from(training: Training, checkpoint: Path) -> Training:
    """Returns the training that begins with the weights of a checkpoint."""
    return with_arguments(training, "--finetune-from-model", str(checkpoint))


def following(training: Training, ratio: float) -> Training:
    """Returns the training with a window, if it has one, that follows the diagonal of a text.

    Args:
        ratio: source tokens for each target token.
    """
    if training.variant.projection != "window":
        return training
    return with_arguments(training, "--linformer-window-ratio", f"{ratio:.3f}")
