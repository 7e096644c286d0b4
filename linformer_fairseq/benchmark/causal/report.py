"""What the benchmark of causal attention writes: a report, all numbers, and two pictures."""

from dataclasses import asdict, dataclass

from linformer_fairseq.cli.files import write_json, write_text
from linformer_fairseq.modules.causal import CHUNK_SIZE, LONGEST_SINGLE_CHUNK, default_chunk_size

from ..report import heading, megabytes, milliseconds, quartiles, ratio, table
from ..running import Running
from ..targets import Target, target_table
from . import plots
from .decoding import DecodingRow
from .models import TRANSFORMER
from .product import OURS, TrainingRow
from .settings import CausalSettings
from .targets import compare

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


def write(results: Results, settings: CausalSettings, running: Running) -> None:
    """Writes results.json, the pictures and report.md."""
    targets = compare(results.decoding, results.growth, results.training)
    write_json(
        running.out / "results.json",
        {
            "running": running.facts(),
            "settings": asdict(settings),
            "targets": [target.facts() for target in targets],
            **{name: [row.facts() for row in rows] for name, rows in vars(results).items()},
        },
    )
    plots.decoding(results.decoding, running.out / DECODING_PLOT)
    plots.training(results.training, running.out / TRAINING_PLOT)
    write_text(running.out / "report.md", text(results, targets, settings, running))


def text(results: Results, targets: list[Target], settings: CausalSettings, running: Running) -> str:
    """The report as Markdown."""
    parts = [
        *heading("Causal Linformer attention against full attention", running),
        "## Targets",
        target_table(targets),
        "## Decoding",
        f"Whole models of width {settings.dim} with {settings.heads} heads, {settings.layers} + {settings.layers} "
        f"layers, feed-forward layers of {settings.ffn_dim}, {settings.words:,} words and random weights, k = "
        f"{settings.k}; {settings.sentences} sentences of {settings.source_length} tokens. A step is one of fairseq's "
        "beam search: reorder the state, decode a token for every hypothesis, and choose the candidates. The state is "
        "filled with random numbers up to the target position, not decoded.",
        f"![Decoding]({DECODING_PLOT})",
        _decoding_table(results.decoding),
        "The same steps of one model at a time, its positions taking turns; what others leave behind in caches and in "
        "the memory allocator is then alike at all of them:",
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

    headers = ["Attention", "Tokens", "ms", "Quartiles", "Time / ours", "Peak MB", "Peak / ours"]
    return table(headers, [cells(row) for row in rows])


def _growth(rows: list[TrainingRow]) -> list[str]:
    """From the last length but one to the last; nothing where there is only one."""
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
    """All sizes that make one chunk of a text are the same."""
    return min(row.chunk_size, row.length) == min(default_chunk_size(row.length), row.length)
