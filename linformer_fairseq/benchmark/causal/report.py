"""What the benchmark of causal attention writes: a report, all numbers, and two pictures."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from linformer_fairseq.cli.files import write_json, write_text
from linformer_fairseq.cli.tables import UNKNOWN
from linformer_fairseq.modules.ops.causal import default_chunk_size
from linformer_fairseq.modules.ops.thresholds import CPU

from ..plots import BASELINE, RED, THICK, Panel, draw, styles
from ..report import heading, listing, megabytes, milliseconds, quartiles, ratio
from ..run_options import RunOptions
from .decoding import DecodingRow
from .models import LINFORMERS, TRANSFORMER, TWO_LEVELS
from .product import MODULE, OURS, PRODUCT, TrainingRow
from .settings import CausalSettings

DECODING_PLOT = "decoding.png"
TRAINING_PLOT = "training.png"
STYLES = styles([*LINFORMERS, *OURS]) | {TRANSFORMER: BASELINE, TWO_LEVELS: {"marker": "s", "color": RED}}
for _name in (TWO_LEVELS, *LINFORMERS, PRODUCT, MODULE):
    STYLES[_name] = {**STYLES[_name], "linewidth": THICK}
STEP_COLUMNS: dict[str, Callable[[DecodingRow], str]] = {
    "Model": lambda row: row.model,
    "Beam": lambda row: str(row.beam),
    "Target position": lambda row: f"{row.position:,}",
    "ms per step": lambda row: row.note or milliseconds(row.time),
    "Quartiles": lambda row: quartiles(row.time),
}
TRAINING_COLUMNS: dict[str, Callable[[TrainingRow], str]] = {
    "Tokens": lambda row: f"{row.length:,}",
    "ms": lambda row: row.note or milliseconds(row.time),
    "Quartiles": lambda row: quartiles(row.time),
}


@dataclass(frozen=True)
class Results:
    """All that was measured."""

    decoding: list[DecodingRow]
    """Every model at every position, the models in turn."""
    growth: list[DecodingRow]
    """Every one of ours at every position, the positions in turn."""
    training: list[TrainingRow]
    chunks: list[TrainingRow]


def write(results: Results, settings: CausalSettings, options: RunOptions) -> None:
    """Writes results.json, the pictures and report.md."""
    write_json(
        options.out / "results.json",
        {
            "options": options.facts(),
            "settings": asdict(settings),
            **{name: [row.facts() for row in rows] for name, rows in vars(results).items()},
        },
    )
    _draw_decoding(results.decoding, options.out / DECODING_PLOT)
    _draw_training(results.training, options.out / TRAINING_PLOT)
    write_text(options.out / "report.md", text(results, settings, options))


def text(results: Results, settings: CausalSettings, options: RunOptions) -> str:
    """Returns the report as Markdown."""
    parts = [
        *heading("Causal attention in two levels and of Linformer, against full attention", options),
        "## Decoding",
        f"Whole models of width {settings.dim} with {settings.heads} heads, {settings.layers} + {settings.layers} "
        f"layers, feed-forward layers of {settings.ffn_dim}, {settings.words:,} words and random weights, k = "
        f"{settings.k}; {settings.sentences} sentences of {settings.source_length} tokens. A step is one of fairseq's "
        "beam search: reorder the state, decode a token for every hypothesis, and choose the candidates. The state is "
        "filled with random numbers up to the target position, not decoded. Two levels have the settings of their "
        "architectures but for k.",
        f"![Decoding]({DECODING_PLOT})",
        _decoding_table(results.decoding),
        "The same steps of one model at a time, its positions taking turns, so that what others leave behind in caches "
        "and in the memory allocator does not differ between them:",
        _growth_table(results.growth),
        "## Training",
        f"Forward and backward of the attention alone, {settings.heads} heads of {settings.head_dim} features, k = "
        f"{settings.k}, batch {settings.batch}, no dropout: the products without linear layers, the modules with "
        "theirs. (`benchmark efficiency --parts causal` measures modules with two levels.) Peak memory is what forward "
        "and backward take beyond inputs, parameters and fairseq's mask.",
        f"![Training]({TRAINING_PLOT})",
        _training_table(results.training),
        *_growth(results.training),
        "## Chunk sizes",
        f"Forward and backward of the causal Linformer product; the default is one chunk up to "
        f"{CPU.longest_single_chunk} tokens, then chunks of {CPU.chunk_size}.",
        _chunk_table(results.chunks),
    ]
    return "\n\n".join(parts) + "\n"


def _decoding_table(rows: list[DecodingRow]) -> str:
    fairseq = {(row.beam, row.position): row.seconds for row in rows if row.model == TRANSFORMER}
    columns = {
        **STEP_COLUMNS,
        "Tokens per second": lambda row: f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else UNKNOWN,
        "fairseq's time / this": lambda row: ratio(fairseq[row.beam, row.position], row.seconds),
        "Self-attention's state, MB": lambda row: megabytes(row.self_state_bytes),
        "Whole state, MB": lambda row: megabytes(row.state_bytes),
    }
    return listing(rows, columns)


def _growth_table(rows: list[DecodingRow]) -> str:
    first = {(row.model, row.beam): row.seconds for row in reversed(rows)}
    ratios = {"Time / at the first position": lambda row: ratio(row.seconds, first[row.model, row.beam])}
    return listing(rows, {**STEP_COLUMNS, **ratios})


def _training_table(rows: list[TrainingRow]) -> str:
    by_name = {(row.contender, row.length): row for row in rows}

    def ours(row: TrainingRow) -> TrainingRow:
        return by_name[OURS[row.contender], row.length]

    columns = {
        "Attention": lambda row: row.contender,
        **TRAINING_COLUMNS,
        "Time / Linformer's": lambda row: ratio(row.seconds, ours(row).seconds),
        "Peak MB": lambda row: megabytes(row.peak_bytes),
        "Peak / Linformer's": lambda row: ratio(row.peak_bytes, ours(row).peak_bytes),
    }
    return listing(rows, columns)


def _growth(rows: list[TrainingRow]) -> list[str]:
    """Returns the growth from the last length but one to the last; nothing for a single length."""
    lengths = sorted({row.length for row in rows})
    if len(lengths) < 2:
        return []
    short, long = lengths[-2:]
    measured = {(row.contender, row.length): row for row in rows if row.time}
    both = [name for name in OURS if (name, short) in measured and (name, long) in measured]
    columns = {
        "Attention": lambda name: name,
        "Time": lambda name: ratio(measured[name, long].seconds, measured[name, short].seconds),
        "Peak memory": lambda name: ratio(measured[name, long].peak_bytes, measured[name, short].peak_bytes),
    }
    return [
        f"From {short:,} to {long:,} tokens, {long / short:.3g} times as many, grow by a factor of:",
        listing(both, columns),
    ]


def _chunk_table(rows: list[TrainingRow]) -> str:
    columns = {
        "Chunk size": lambda row: f"{row.chunk_size}{' (default)' if _is_default(row) else ''}",
        **TRAINING_COLUMNS,
        "Peak MB": lambda row: megabytes(row.peak_bytes),
    }
    return listing(rows, columns)


def _is_default(row: TrainingRow) -> bool:
    """Returns whether a chunk size is the default; all that make one chunk of a text are the same."""
    return min(row.chunk_size, row.length) == min(default_chunk_size(row.length), row.length)


def _draw_decoding(rows: list[DecodingRow], path: Path) -> None:
    """Draws the time of a step against target position for every beam, and the state's size for the widest."""
    beams = sorted({row.beam for row in rows})
    x_label = "target position, tokens"
    panels = []
    for beam in beams:
        times = [(row.model, row.position, row.seconds) for row in rows if row.beam == beam]
        panels.append(Panel(f"beam {beam}", x_label, "time per step, ms", times, 1e3))
    sizes = [(row.model, row.position, row.state_bytes) for row in rows if row.beam == beams[-1]]
    panels.append(Panel(f"incremental state, beam {beams[-1]}", x_label, "size of the state, MB", sizes, 1e-6))
    draw(path, panels, STYLES, (4.6 * len(panels), 4.8), columns=3)


def _draw_training(rows: list[TrainingRow], path: Path) -> None:
    """Draws time and peak memory of forward and backward against length."""
    times = [(row.contender, row.length, row.seconds) for row in rows]
    peaks = [(row.contender, row.length, row.peak_bytes) for row in rows]
    panels = [
        Panel("time of forward and backward", "T, tokens", "time, ms", times, 1e3),
        Panel("peak memory of forward and backward", "T, tokens", "peak memory, MB", peaks, 1e-6),
    ]
    draw(path, panels, STYLES, (10.5, 5.2), columns=2)
