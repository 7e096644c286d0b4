"""What the benchmark of causal attention writes: a report, all numbers, and two pictures."""

from dataclasses import asdict, dataclass

from linformer_fairseq.cli.files import write_json, write_text
from linformer_fairseq.modules.ops.causal import CHUNK_SIZE, LONGEST_SINGLE_CHUNK, default_chunk_size

from ..report import heading, megabytes, milliseconds, quartiles, ratio, table
from ..run_options import RunOptions
from . import plots
from .decoding import DecodingRow
from .models import TRANSFORMER
from .product import OURS, TrainingRow
from .settings import CausalSettings

DECODING_PLOT = "decoding.png"
TRAINING_PLOT = "training.png"


@dataclass(frozen=True)
class Results:
    """All that was measured."""

    decoding: list[DecodingRow]
    """The models side by side."""
    growth: list[DecodingRow]
    """The positions side by side."""
    training: list[TrainingRow]
    chunks: list[TrainingRow]


def write(results: Results, settings: CausalSettings, options: RunOptions) -> None:
    """Writes results.json, the pictures and report.md."""
    write_json(
        options.out / "results.json",
        {
            "running": options.facts(),
            "settings": asdict(settings),
            **{name: [row.facts() for row in rows] for name, rows in vars(results).items()},
        },
    )
    plots.decoding(results.decoding, options.out / DECODING_PLOT)
    plots.training(results.training, options.out / TRAINING_PLOT)
    write_text(options.out / "report.md", text(results, settings, options))


def text(results: Results, settings: CausalSettings, options: RunOptions) -> str:
    """Returns the report as Markdown."""
    parts = [
        *heading("Causal Linformer attention against full attention", options),
        "## Decoding",
        f"Whole models of width {settings.dim} with {settings.heads} heads, {settings.layers} + {settings.layers} "
        f"layers, feed-forward layers of {settings.ffn_dim}, {settings.words:,} words and random weights, k = "
        f"{settings.k}; {settings.sentences} sentences of {settings.source_length} tokens. A step is one of fairseq's "
        "beam search: reorder the state, decode a token for every hypothesis, and choose the candidates. The state is "
        "filled with random numbers up to the target position, not decoded.",
        f"![Decoding]({DECODING_PLOT})",
        _decoding_table(results.decoding),
        "The same steps of one model at a time, its positions taking turns, so that what others leave behind in caches "
        "and in the memory allocator does not differ between them:",
        _growth_table(results.growth),
        "## Training",
        f"Forward and backward of the attention alone, {settings.heads} heads of {settings.head_dim} features, k = "
        f"{settings.k}, batch {settings.batch}, no dropout: the products without linear layers, the modules with "
        "theirs. Peak memory is what forward and backward take beyond inputs, parameters and fairseq's mask.",
        f"![Training]({TRAINING_PLOT})",
        _training_table(results.training),
        *_growth(results.training),
        "## Chunk sizes",
        f"Forward and backward of the causal Linformer product; the default is one chunk up to "
        f"{LONGEST_SINGLE_CHUNK} tokens, then chunks of {CHUNK_SIZE}.",
        _chunk_table(results.chunks),
    ]
    return "\n\n".join(parts) + "\n"


def _decoding_table(rows: list[DecodingRow]) -> str:
    fairseq = {(row.beam, row.position): row.step for row in rows if row.model == TRANSFORMER}

    def cells(row: DecodingRow) -> list[str]:
        theirs = fairseq[row.beam, row.position]
        return [
            row.model,
            str(row.beam),
            f"{row.position:,}",
            row.note or milliseconds(row.step),
            quartiles(row.step),
            f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else "–",
            ratio(theirs and theirs.median, row.step and row.step.median),
            megabytes(row.self_state_bytes),
            megabytes(row.state_bytes),
        ]

    headers = ["Model", "Beam", "Target position", "ms a step", "Quartiles", "Tokens a second"]
    return table(
        [*headers, "fairseq's time / this", "Self-attention's state, MB", "Whole state, MB"],
        [cells(row) for row in rows],
    )


def _growth_table(rows: list[DecodingRow]) -> str:
    first = {(row.model, row.beam): row.step for row in reversed(rows)}
    return table(
        ["Model", "Beam", "Target position", "ms a step", "Quartiles", "Time / at the first position"],
        [
            [
                row.model,
                str(row.beam),
                f"{row.position:,}",
                row.note or milliseconds(row.step),
                quartiles(row.step),
                ratio(row.step and row.step.median, (start := first[row.model, row.beam]) and start.median),
            ]
            for row in rows
        ],
    )


def _training_table(rows: list[TrainingRow]) -> str:
    by_name = {(row.contender, row.length): row for row in rows}

    def cells(row: TrainingRow) -> list[str]:
        ours = by_name[OURS[row.contender], row.length]
        return [
            row.contender,
            f"{row.length:,}",
            row.note or milliseconds(row.time),
            quartiles(row.time),
            ratio(row.time and row.time.median, ours.time and ours.time.median),
            megabytes(row.peak_bytes),
            ratio(row.peak_bytes, ours.peak_bytes),
        ]

    headers = ["Attention", "Tokens", "ms", "Quartiles", "Time / Linformer's", "Peak MB", "Peak / Linformer's"]
    return table(headers, [cells(row) for row in rows])


def _growth(rows: list[TrainingRow]) -> list[str]:
    """Returns the growth from the last length but one to the last; nothing for a single length."""
    lengths = sorted({row.length for row in rows})
    if len(lengths) < 2:
        return []
    short, long = lengths[-2:]
    measured = {(row.contender, row.length): row for row in rows if row.time}
    both = [name for name in OURS if (name, short) in measured and (name, long) in measured]
    growths = [(name, measured[name, long], measured[name, short]) for name in both]
    return [
        f"From {short:,} to {long:,} tokens, {long / short:.3g} times as many, grow by a factor of:",
        table(
            ["Attention", "Time", "Peak memory"],
            [
                [name, ratio(last.time.median, first.time.median), ratio(last.peak_bytes, first.peak_bytes)]
                for name, last, first in growths
            ],
        ),
    ]


def _chunk_table(rows: list[TrainingRow]) -> str:
    return table(
        ["Chunk size", "Tokens", "ms", "Quartiles", "Peak MB"],
        [
            [
                f"{row.chunk_size}{' (default)' if _is_default(row) else ''}",
                f"{row.length:,}",
                row.note or milliseconds(row.time),
                quartiles(row.time),
                megabytes(row.peak_bytes),
            ]
            for row in rows
        ],
    )


def _is_default(row: TrainingRow) -> bool:
    """Whether a chunk size is the default; all that make one chunk of a text are the same."""
    return min(row.chunk_size, row.length) == min(default_chunk_size(row.length), row.length)
