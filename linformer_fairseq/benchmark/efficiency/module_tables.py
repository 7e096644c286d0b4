"""Tables of attention modules."""

from collections.abc import Callable, Sequence

from ..report import UNKNOWN, megabytes, milliseconds, quartiles, ratio, table
from .contenders import EAGER, FAIRSEQ, FUSED, OURS, OWN, WITH_K
from .machine_peak import linformer_operations
from .module_grid import FORWARD, PRODUCT, Key, ModuleRow
from .module_plots import FILES
from .settings import EfficiencySettings
from .sizes import Sizes
from .slope import PEAK, SECONDS, Value, slope

OWN_NAMES = tuple(contender.name for contender in OWN)


def grid(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> list[str]:
    """Returns all sections on modules against length."""
    if not rows:
        return []
    k = settings.table_k
    parts = [
        "## Attention modules",
        f"Self-attention with its linear layers, {settings.dim} features, {settings.heads} heads, no dropout, no "
        f"padding; batches of {settings.tokens:,} tokens, or of one longer sentence. Peak memory is what a pass takes "
        "beyond input and parameters, gradients included: on a GPU by the allocator's count, elsewhere by adding up "
        f"torch's own list of what it allocates and frees. “{EAGER}” also averages its weights over the heads, as "
        f"fairseq gives no others; “{FAIRSEQ}” is torch's fused attention within fairseq's module.",
        *(f"![Time and memory against length, {passes}, k = {k}]({name})" for passes, name in FILES.items()),
    ]
    for passes in dict.fromkeys(row.passes for row in rows):
        own = [row for row in rows if row.passes == passes]
        for name in (EAGER, FUSED):
            parts += [
                f"### {name}, as multiples of {OURS}, {passes}",
                "As in table 3 of Wang et al. (2020): time, then peak memory.",
                _ratios(own, name, SECONDS, settings),
                _ratios(own, name, PEAK, settings),
            ]
        parts += [
            f"### All modules, k = {k}, {passes}",
            "Milliseconds a batch, then peak MB. The slope is the exponent of a sentence's time, or memory, against "
            "its length, over all lengths that the row has: 1 is linear, 2 quadratic.",
            *_against_length([row for row in own if row.k in (None, k)], settings),
            f"### linformer_fairseq, every k, {passes}",
            *_against_length([row for row in own if row.contender in OWN_NAMES], settings),
            f"### Modules with k slots, as multiples of {OURS}, {passes}",
            "Time and peak memory with the same k.",
            _with_k(own, settings),
        ]
    parts += [
        "### Share of the machine's peak",
        f"Forward: the operations of Linformer's matrix products, as formulas count them, as a share of those that a "
        f"{PRODUCT.contender} makes in the same time; the two are timed in turn.",
        _share_of_peak(rows, settings),
    ]
    return parts


def equal(rows: Sequence[ModuleRow]) -> list[str]:
    """Returns the section on sentences with a slot for every token."""
    if not rows:
        return []
    ours = {(row.length, row.passes): row.seconds for row in rows if row.contender == OURS}
    shown = [row for row in rows if row.contender in (EAGER, FAIRSEQ, FUSED, *WITH_K)]
    return [
        "## A slot for every token, n = k",
        table(
            ["Attention", "Pass", "n = k", "Sentences", "ms", "Quartiles", "Time / Linformer's"],
            [
                [
                    row.contender,
                    row.passes,
                    f"{row.length:,}",
                    f"{row.sentences:,}",
                    milliseconds(row.time),
                    quartiles(row.time),
                    ratio(row.seconds, ours.get((row.length, row.passes))),
                ]
                for row in shown
            ],
        ),
    ]


def left_out(rows: Sequence[ModuleRow]) -> list[str]:
    """Returns the section that says why modules have no time."""
    notes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.note:
            notes.setdefault((str(row.key), row.note), []).append(f"{row.length:,} ({row.passes})")
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


def _against_length(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> list[str]:
    """Returns a table of times and one of memory, with a line for each module."""
    headers = ["Attention", *(f"{n:,}" for n in settings.lengths), "Slope"]
    measured = _by_key(rows)

    def line(key: Key, cell: Callable[[ModuleRow], str], value: Value) -> list[str]:
        own = [measured.get((key, n)) for n in settings.lengths]
        exponent = slope([row for row in own if row], value)
        cells = [cell(row) if row else UNKNOWN for row in own]
        return [str(key), *cells, UNKNOWN if exponent is None else f"{exponent:.2f}"]

    keys = dict.fromkeys(row.key for row in rows)
    return [
        table(headers, [line(key, lambda row: milliseconds(row.time), SECONDS) for key in keys]),
        table(headers, [line(key, lambda row: megabytes(row.peak_bytes), PEAK) for key in keys]),
    ]


def _with_k(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
    measured = _by_key(rows)

    def cell(key: Key, n: int) -> str:
        theirs, ours = measured.get((key, n)), measured.get((Key(OURS, key.k), n))
        if not (theirs and ours):
            return UNKNOWN
        return f"{ratio(theirs.seconds, ours.seconds)} · {ratio(theirs.peak_bytes, ours.peak_bytes)}"

    keys = sorted({row.key for row in rows if row.contender in WITH_K and row.contender != OURS})
    return table(
        ["Attention", *(f"{n:,}" for n in settings.lengths)],
        [[str(key), *(cell(key, n) for n in settings.lengths)] for key in keys],
    )


def _share_of_peak(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
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
