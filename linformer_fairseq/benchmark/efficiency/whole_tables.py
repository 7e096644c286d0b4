"""Tables of whole models."""

from collections.abc import Sequence

from ..forward import WITHOUT_WEIGHTS
from ..models import TRANSFORMER
from ..report import UNKNOWN, megabytes, ratio, table
from .batches import LONGEST_WORDS, MEAN_WORDS
from .inference import InferenceRow
from .model_size import ModelSizeRow
from .settings import EfficiencySettings
from .training import TrainingRow
from .whole_plots import INFERENCE_FILE, SIZES_FILE


def sizes(rows: Sequence[ModelSizeRow]) -> list[str]:
    """Returns the section on parameters against N."""
    if not rows:
        return []
    positions = list(dict.fromkeys(row.positions for row in rows))
    by_model = {(row.model, row.positions): row for row in rows}

    def cell(model: str, n: int) -> str:
        row = by_model[model, n]
        if row.parameters is None:
            return UNKNOWN
        return f"{row.parameters / 1e6:,.1f} ({row.bytes / 1e6:,.0f} MB)"

    return [
        "## Model size",
        "Millions of parameters, and their bytes, of whole models against N, the longest source and the longest target "
        "that they are built for.",
        f"![Parameters against N]({SIZES_FILE})",
        table(
            ["Model", *(f"N = {n:,}" for n in positions)],
            [[model, *(cell(model, n) for n in positions)] for model in dict.fromkeys(row.model for row in rows)],
        ),
    ]


def inference(rows: Sequence[InferenceRow], settings: EfficiencySettings) -> list[str]:
    """Returns the section on forward passes at a constant number of tokens."""
    if not rows:
        return []
    times = {(row.part, row.model, row.length): row.time for row in rows}

    def line(row: InferenceRow) -> list[str]:
        theirs = times[row.part, TRANSFORMER, row.length]
        return [
            row.model,
            row.part,
            f"{row.length:,} × {row.sentences:,}",
            row.note or f"{row.time.median:,.2f}",
            UNKNOWN if row.time is None else f"{row.time.lower:,.2f} ... {row.time.upper:,.2f}",
            ratio(theirs and theirs.median, row.time and row.time.median),
            megabytes(row.peak_bytes),
        ]

    return [
        "## Inference of whole models",
        f"One forward pass over {settings.inference_tokens:,} source tokens, {settings.layers} + {settings.layers} "
        f"layers with feed-forward layers of {settings.ffn_dim} and {settings.words:,} words, random weights. The "
        f"decoder reads a target of as many tokens at once. “{WITHOUT_WEIGHTS}” leaves out the attention weights that "
        "fairseq asks the last layer for: over tokens they are an n x n matrix a head, whatever the attention. Medians "
        f"of {settings.whole_repeats} runs.",
        f"![Inference time against length]({INFERENCE_FILE})",
        table(
            ["Model", "Part", "Tokens × sentences", "s a batch", "Quartiles", "Transformer's time / this", "Peak MB"],
            [line(row) for row in rows],
        ),
    ]


def training(rows: Sequence[TrainingRow], settings: EfficiencySettings) -> list[str]:
    """Returns the section on training steps."""
    if not rows:
        return []
    speeds = {(row.model, row.length): row.tokens_per_second for row in rows}

    def line(row: TrainingRow) -> list[str]:
        speed, baseline = row.tokens_per_second, speeds[TRANSFORMER, row.length]
        return [
            row.kind,
            row.model,
            row.note or f"{speed.median:,.0f}",
            UNKNOWN if speed is None else f"{speed.lower:,.0f} ... {speed.upper:,.0f}",
            ratio(speed and speed.median, baseline and baseline.median),
            f"{100 * row.padding:.0f} %",
            megabytes(row.peak_bytes),
        ]

    return [
        "## Training of whole models",
        "Target tokens a second of fairseq's training step (label-smoothed cross-entropy, Adam) at "
        f"{settings.max_tokens:,} tokens a batch, in {rows[0].precision}: {settings.batches} batches of sentences as "
        f"long as those of WMT (log-normal, {MEAN_WORDS:g} words in the mean, "
        f"{LONGEST_WORDS} at most), and sentences that are all equally long. Medians of "
        f"{settings.whole_repeats} passes over the batches; peak memory is that of a step without weights and Adam's "
        "means.",
        table(
            ["Sentences", "Model", "Tokens/s", "Quartiles", "This / Transformer", "Padding", "Peak MB"],
            [line(row) for row in rows],
        ),
    ]
