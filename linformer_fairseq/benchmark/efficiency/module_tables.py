"""Tables of attention modules."""

from collections.abc import Callable, Sequence

from ..report import UNKNOWN, megabytes, milliseconds, quartiles, ratio, table
from .contenders import EAGER, FAIRSEQ, FUSED, LINFORMERS, OURS
from .machine_peak import linformer_operations
from .module_grid import FORWARD, PRODUCT, Key, ModuleRow
from .module_plots import FILES
from .settings import EfficiencySettings
from .sizes import Sizes
from .targets import peak, seconds, slope

Value = Callable[[ModuleRow], float | None]


def grid(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> list[str]:
    """All sections on modules against length."""
    if not rows:
        return []
    k = settings.table_k
    parts = [
        "## Attention modules",
        f"Self-attention with its linear layers, {settings.dim} features, {settings.heads} heads, no dropout, no "
        f"padding; batches of {settings.tokens:,} tokens, or of one longer sentence. Peak memory is what a pass takes "
        "beyond input and parameters, gradients included: on a GPU by the allocator's count, elsewhere by adding up "
        f"torch's own list of what it allocates and frees. “{EAGER}” takes the mean of its weights over the heads too, "
        f"as fairseq gives no others; “{FAIRSEQ}” is torch's fused attention within fairseq's module.",
        *(f"![Time and memory against length, {passes}, k = {k}]({name})" for passes, name in FILES.items()),
    ]
    for passes in dict.fromkeys(row.passes for row in rows):
        own = [row for row in rows if row.passes == passes]
        for name in (EAGER, FUSED):
            parts += [
                f"### How many times the time, and the memory, of ours takes {name}, {passes}",
                "After table 3 of Wang et al. (2020): time, then peak memory.",
                _ratios(own, name, seconds, settings),
                _ratios(own, name, peak, settings),
            ]
        parts += [
            f"### Everybody, k = {k}, {passes}",
            "Milliseconds a batch, then peak MB. The slope is the exponent of a sentence's time against its length, "
            "over all lengths that the row has: 1 is linear, 2 quadratic.",
            _everybody(own, k, lambda row: milliseconds(row.time), settings, with_slope=True),
            _everybody(own, k, lambda row: megabytes(row.peak_bytes), settings, with_slope=False),
            f"### Other Linformers, {passes}",
            "Time, and peak memory, of two levels and of other packages' Linformers as multiples of ours with the same "
            "k.",
            _other_linformers(own, settings),
        ]
    parts += [
        "### What of the machine is used",
        f"Forward: the operations of our matrix products, as formulas count them, against those of {PRODUCT.contender} "
        "in the same time; the two are timed in turn.",
        _used(rows, settings),
    ]
    return parts


def equal(rows: Sequence[ModuleRow]) -> list[str]:
    """Where there is a slot for every token."""
    if not rows:
        return []
    ours = {(row.length, row.passes): seconds(row) for row in rows if row.contender == OURS}
    shown = [row for row in rows if row.contender in (EAGER, FAIRSEQ, FUSED, *LINFORMERS)]
    return [
        "## A slot for every token, n = k",
        table(
            ["Attention", "Pass", "n = k", "Sentences", "ms", "Quartiles", "Time / ours"],
            [
                [
                    row.contender,
                    row.passes,
                    f"{row.length:,}",
                    f"{row.sentences:,}",
                    milliseconds(row.time),
                    quartiles(row.time),
                    ratio(seconds(row), ours.get((row.length, row.passes))),
                ]
                for row in shown
            ],
        ),
    ]


def left_out(rows: Sequence[ModuleRow]) -> list[str]:
    """Why there is no time of a module."""
    notes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.note:
            name = row.contender if row.k is None else f"{row.contender}, k = {row.k}"
            notes.setdefault((name, row.note), []).append(f"{row.length:,} ({row.passes})")
    if not notes:
        return []
    return [
        "## Modules that were not measured",
        table(["Attention", "Tokens", "Why"], [[name, "; ".join(where), why] for (name, why), where in notes.items()]),
    ]


def _by_key(rows: Sequence[ModuleRow]) -> dict[tuple[Key, int], ModuleRow]:
    return {(row.key, row.length): row for row in rows}


def _ratios(rows: Sequence[ModuleRow], name: str, value: Value, settings: EfficiencySettings) -> str:
    measured = _by_key(rows)

    def cell(length: int, k: int) -> str:
        theirs, ours = measured.get((Key(name, None), length)), measured.get((Key(OURS, k), length))
        return ratio(theirs and value(theirs), ours and value(ours))

    headers = ["Tokens", *(f"k = {k}" for k in settings.k)]
    return table(headers, [[f"{n:,}", *(cell(n, k) for k in settings.k)] for n in settings.lengths])


def _everybody(
    rows: Sequence[ModuleRow],
    k: int,
    cell: Callable[[ModuleRow], str],
    settings: EfficiencySettings,
    with_slope: bool,
) -> str:
    measured = _by_key(rows)
    lines = []
    for key in dict.fromkeys(row.key for row in rows if row.k in (None, k)):
        own = [measured.get((key, n)) for n in settings.lengths]
        line = [key.contender, *(cell(row) if row else UNKNOWN for row in own)]
        if with_slope:
            exponent = slope([row for row in own if row], seconds)
            line.append(UNKNOWN if exponent is None else f"{exponent:.2f}")
        lines.append(line)
    return table(["Attention", *(f"{n:,}" for n in settings.lengths), *(["Slope"] if with_slope else [])], lines)


def _other_linformers(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
    measured = _by_key(rows)

    def cell(name: str, k: int, n: int) -> str:
        theirs, ours = measured.get((Key(name, k), n)), measured.get((Key(OURS, k), n))
        if not (theirs and ours):
            return UNKNOWN
        return f"{ratio(seconds(theirs), seconds(ours))} · {ratio(peak(theirs), peak(ours))}"

    return table(
        ["Attention", "k", *(f"{n:,}" for n in settings.lengths)],
        [
            [name, str(k), *(cell(name, k, n) for n in settings.lengths)]
            for name in LINFORMERS
            if name != OURS
            for k in settings.k
        ],
    )


def _used(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
    forward = [row for row in rows if row.passes == FORWARD]
    measured, rates = _by_key(forward), {row.length: row.product_rate for row in forward}

    def cell(k: int, n: int) -> str:
        row = measured.get((Key(OURS, k), n))
        if row is None or row.time is None or row.product_rate is None:
            return UNKNOWN
        operations = linformer_operations(Sizes(settings.dim, settings.heads, n, k), row.sentences)
        return f"{100 * operations / row.time.median / row.product_rate:.0f} %"

    def rate(n: int) -> str:
        return f"{rates[n] / 1e9:,.0f} GFLOP/s" if rates[n] else UNKNOWN

    ours = [[f"Linformer, k = {k}", *(cell(k, n) for n in settings.lengths)] for k in settings.k]
    product = [PRODUCT.contender, *(rate(n) for n in settings.lengths)]
    return table(["", *(f"{n:,}" for n in settings.lengths)], [*ours, product])
