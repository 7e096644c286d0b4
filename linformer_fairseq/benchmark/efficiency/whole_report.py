"""What a report shows of whole models: tables, and pictures of parameters and of inference time."""

from collections.abc import Callable, Sequence
from pathlib import Path

from linformer_fairseq.cli.tables import UNKNOWN

from .. import plots
from ..forward import WITHOUT_WEIGHTS
from ..models import FUSED, TRANSFORMER, TWO_LEVELS, contenders
from ..plots import BASELINE, RED, THICK, Panel, Style
from ..report import crossing, listing, megabytes, quartiles, ratio
from .batches import LONGEST_WORDS, MEAN_WORDS
from .inference import InferenceRow
from .model_size import ModelSizeRow
from .settings import EfficiencySettings
from .training import TrainingRow

SIZES_FILE = "sizes.png"
INFERENCE_FILE = "inference.png"


def sizes(rows: Sequence[ModelSizeRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws parameters against the longest sentence that a model is built for, and returns the section on them."""
    points = [(row.model, row.positions, row.parameters) for row in rows]
    panel = Panel("model size", "N, longest sentence in tokens", "parameters, millions", points, 1e-6)
    plots.draw(folder / SIZES_FILE, [panel], _styles(rows, settings), (8, 6), columns=2)
    by_model = {(row.model, row.positions): row for row in rows}

    def cell(model: str, n: int) -> str:
        row = by_model[model, n]
        if row.parameters is None:
            return UNKNOWN
        return f"{row.parameters / 1e6:,.1f} ({row.bytes / 1e6:,.0f} MB)"

    models, positions = (
        {row.model: row.model for row in rows},
        {f"N = {row.positions:,}": row.positions for row in rows},
    )
    return [
        "## Model size",
        "Millions of parameters, and their bytes, of whole models against N, the longest source and the longest target "
        "that they are built for.",
        f"![Parameters against N]({SIZES_FILE})",
        crossing("Model", models, positions, cell),
    ]


def inference(rows: Sequence[InferenceRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws the time of a batch of constant size against the length of its sentences, and returns the section on it."""
    panels = []
    for part in dict.fromkeys(row.part for row in rows):
        points = [(row.model, row.length, row.seconds) for row in rows if row.part == part]
        panels.append(Panel(part, "tokens per sentence", "time per batch, s", points))
    plots.draw(folder / INFERENCE_FILE, panels, _styles(rows, settings), (5.5 * len(panels), 5), columns=2)
    baseline = {(row.part, row.length): row.seconds for row in rows if row.model == TRANSFORMER}
    columns: dict[str, Callable[[InferenceRow], str]] = {
        "Model": lambda row: row.model,
        "Part": lambda row: row.part,
        "Tokens × sentences": lambda row: f"{row.length:,} × {row.sentences:,}",
        "s per batch": lambda row: row.note or f"{row.seconds:,.2f}",
        "Quartiles": lambda row: quartiles(row.time, scale=1, digits=2),
        "Transformer's time / this": lambda row: ratio(baseline[row.part, row.length], row.seconds),
        "Peak MB": lambda row: megabytes(row.peak_bytes),
    }
    return [
        "## Inference of whole models",
        f"One forward pass over {settings.inference_tokens:,} source tokens, {settings.layers} + {settings.layers} "
        f"layers with feed-forward layers of {settings.ffn_dim} and {settings.words:,} words, random weights. The "
        f"decoder reads a target of as many tokens at once. “{WITHOUT_WEIGHTS}” leaves out the attention weights that "
        "fairseq asks the last layer for: over tokens they are an n x n matrix per head, whatever the attention. "
        f"Medians of {settings.whole_repeats} runs.",
        f"![Inference time against length]({INFERENCE_FILE})",
        listing(rows, columns),
    ]


def training(rows: Sequence[TrainingRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Returns the section on training steps."""
    fairseqs, fused = ({row.length: row.seconds for row in rows if row.model == name} for name in (TRANSFORMER, FUSED))
    columns: dict[str, Callable[[TrainingRow], str]] = {
        "Sentences": lambda row: row.kind,
        "Model": lambda row: row.model,
        "Tokens/s": lambda row: row.note or f"{row.tokens_per_second.median:,.0f}",
        "Quartiles": lambda row: quartiles(row.tokens_per_second, scale=1, digits=0),
        "This / fairseq's": lambda row: ratio(fairseqs[row.length], row.seconds),
        "This / fused": lambda row: ratio(fused.get(row.length), row.seconds),
        "Padding": lambda row: f"{100 * row.padding:.0f} %",
        "Peak MB": lambda row: megabytes(row.peak_bytes),
    }
    return [
        "## Training of whole models",
        "Target tokens per second of fairseq's training step (label-smoothed cross-entropy, Adam) at "
        f"{settings.max_tokens:,} tokens per batch, in {rows[0].precision}: sentences as long as those of WMT "
        f"(log-normal, {MEAN_WORDS:g} words in the mean, {LONGEST_WORDS} at most; batches: {settings.batches}), and "
        "sentences that are all equally long. Medians of "
        f"{settings.whole_repeats} passes over the batches; peak memory is that of a step without weights and Adam's "
        "moments.",
        listing(rows, columns),
    ]


def _styles(rows: Sequence[ModelSizeRow | InferenceRow], settings: EfficiencySettings) -> dict[str, Style]:
    styles = plots.styles(dict.fromkeys(row.model for row in rows))
    styles |= {TRANSFORMER: BASELINE, TWO_LEVELS: {"marker": "s", "color": RED}}
    for name in set(contenders(settings.model_k)) - {TRANSFORMER}:
        if name in styles:
            styles[name] = {**styles[name], "linewidth": THICK}
    return styles
