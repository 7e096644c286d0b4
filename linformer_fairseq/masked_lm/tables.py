"""The report's tables."""

import statistics
from collections.abc import Sequence

from linformer_fairseq.cli.tables import UNKNOWN, table

from .arms import BASELINE, EVERY_LENGTH, LINFORMER
from .results import Found
from .trainings import SHARING


def label(found: Found, arm: str) -> str:
    """Returns what tables call a model."""
    return str(found["arms"][arm]["label"])


def by_kind(found: Found) -> list[str]:
    """Returns the section that compares all kinds of attention, at the first length."""
    lengths = _lengths(found)
    rows = [row for row in _usual(found) if row["length"] == lengths[0]]
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        lines.append([label(found, arm), _mean([row["perplexity"] for row in own]), _ratio(found, own), str(len(own))])
    return [
        "## Perplexity",
        f"Blocks of {lengths[0]:,} tokens, k = {found['k']}: mean and standard deviation over seeds; and how far a "
        "model is from the Transformer, over the seeds that both have.",
        table(["Model", "Perplexity", "From the Transformer's", "Seeds"], lines),
    ]


def by_k(found: Found) -> list[str]:
    """Returns the section on Linformer's projected dimension, at each length that has several."""
    rows = [row for row in _of(found, LINFORMER) if row["sharing"] == SHARING]
    lengths = [n for n in _lengths(found) if len({row["k"] for row in rows if row["length"] == n}) > 1]
    if not lengths:
        return []
    ks = sorted({row["k"] for row in rows if row["length"] in lengths})
    headers = ["", *(f"n = {length:,}" for length in lengths)]
    lines = [["Transformer", *(_cell(found, [r for r in _of(found, BASELINE) if r["length"] == n]) for n in lengths)]]
    for k in ks:
        own = [[row for row in rows if (row["length"], row["k"]) == (length, k)] for length in lengths]
        lines.append([f"Linformer, k = {k}", *(_cell(found, cell) for cell in own)])
    return ["## Projected dimension", "As in the paper's Figure 3 (a) and (b).", table(headers, lines)]


def by_sharing(found: Found) -> list[str]:
    """Returns the section on who shares a projection of Linformer."""
    first = _lengths(found)[0]
    rows = [row for row in _of(found, LINFORMER) if (row["length"], row["k"]) == (first, found["k"])]
    sharings = dict.fromkeys(row["sharing"] for row in rows)
    if len(sharings) < 2:
        return []
    lines = [["Transformer", *_columns(found, [row for row in _of(found, BASELINE) if row["length"] == first])]]
    for sharing in sharings:
        lines.append([f"Linformer, {sharing}", *_columns(found, [row for row in rows if row["sharing"] == sharing])])
    text = f"As in the paper's Figure 3 (c), n = {first:,}, k = {found['k']}."
    return ["## Sharing", text, table(["", "Perplexity", "From the Transformer's", "Parameters"], lines)]


def by_length(found: Found) -> list[str]:
    """Returns the section on the length of blocks."""
    lengths = _lengths(found)
    rows = [row for row in _usual(found) if row["arm"] in EVERY_LENGTH]
    if len(lengths) < 2:
        return []
    lines = [
        [label(found, arm), *(_cell(found, _at(rows, arm, length)) for length in lengths)]
        for arm in dict.fromkeys(row["arm"] for row in rows)
    ]
    return [
        "## Length",
        f"As in the paper's Figure 3 (d), k = {found['k']}. Longer blocks have more context, and fewer of them make an "
        "update.",
        table(["Model", *(f"n = {length:,}" for length in lengths)], lines),
    ]


def swapped(found: Found) -> list[str]:
    """Returns the section on another attention in a trained model; nothing where it was not tried."""
    rows = found["swapped"]
    if not rows:
        return []
    first = min(row["length"] for row in rows)
    shares = sorted({row["share"] for row in rows if row["length"] == first})
    arms = dict.fromkeys(row["arm"] for row in rows)

    def cell(arm: str, length: int, share: float) -> str:
        if arm == BASELINE and not share:
            return _over(_trained(found, length, rows[0]["seed"]), _trained(found, length, rows[0]["seed"]))
        own = [r for r in rows if (r["arm"], r["length"], r["share"]) == (arm, length, share)]
        return _over(own[0]["perplexity"], _trained(found, length, own[0]["seed"])) if own else UNKNOWN

    headers = ["Attention", *("no training" if not share else f"{share:.0%} of the updates" for share in shares)]
    lines = [[label(found, arm), *(cell(arm, first, share) for share in shares)] for arm in [BASELINE, *arms]]
    lines = [line for number, line in enumerate(lines) if line not in lines[:number]]
    parts = [
        "## Another attention in a trained model",
        f"The Transformer that was trained on blocks of {first:,} tokens gets another attention "
        "(`python -m linformer_fairseq.convert`), and is trained no further, or for a share of the updates that it "
        "had. Perplexity, and how far it is from the Transformer's own; the Transformer's row says what more training "
        "does by itself. Learned E and F start as the identity, and see the first k tokens alone. One seed.",
        table(headers, lines),
    ]
    longer = sorted({row["length"] for row in rows} - {first})
    if longer:
        lines = [[label(found, arm), *(cell(arm, n, 0.0) for n in longer)] for arm in dict.fromkeys([BASELINE, *arms])]
        parts += ["At other lengths, with no training:", table(["Attention", *(f"n = {n:,}" for n in longer)], lines)]
    return parts


def costs(found: Found) -> list[str]:
    """Returns the section on time and memory; nothing where they have not been measured."""
    if not found["costs"]:
        return []
    asked, rows = found["costs"]["asked"], found["costs"]["rows"]
    lengths = sorted({row["length"] for row in rows})

    def part(name: str, unit: float) -> str:
        def cell(arm: str, length: int) -> str:
            own = next((row for row in rows if (row["arm"], row["length"]) == (arm, length)), None)
            base = next((row for row in rows if (row["arm"], row["length"]) == (BASELINE, length)), None)
            if own is None or own[name] is None:
                return own["note"] if own and own["note"] else UNKNOWN
            over = f" ({own[name] / base[name]:.2f})" if base and base[name] else ""
            return f"{own[name] * unit:,.0f}{over}"

        arms = dict.fromkeys(row["arm"] for row in rows)
        lines = [[label(found, arm), *(cell(arm, length) for length in lengths)] for arm in arms]
        return table(["Model", *(f"{length:,} tokens" for length in lengths)], lines)

    return [
        "## Time and memory",
        f"A training step on {asked['max_tokens']:,} random tokens, with Adam's update, k = {found['k']}; "
        f"{asked['precision']}, threads: {asked['threads']}, {asked['machine']}; medians of {asked['repeats']} steps, "
        "the models in turn. Brackets hold multiples of the Transformer's, whose attention is torch's fused one.",
        "Tokens per second:",
        part("tokens_per_second", 1.0),
        "Peak memory in MB, as torch allocates it beyond weights and Adam's means:",
        part("peak_bytes", 1e-6),
    ]


def _lengths(found: Found) -> list[int]:
    return sorted({row["length"] for row in found["trainings"]})


def _of(found: Found, arm: str) -> list[Found]:
    return [row for row in found["trainings"] if row["arm"] == arm]


def _usual(found: Found) -> list[Found]:
    """Returns the trainings with the study's k and sharing."""
    return [row for row in found["trainings"] if row["k"] in (0, found["k"]) and row["sharing"] in ("", SHARING)]


def _at(rows: Sequence[Found], arm: str, length: int) -> list[Found]:
    return [row for row in rows if (row["arm"], row["length"]) == (arm, length)]


def _trained(found: Found, length: int, seed: int) -> float | None:
    rows = [row for row in _of(found, BASELINE) if (row["length"], row["seed"]) == (length, seed)]
    return rows[0]["perplexity"] if rows else None


def _over(own: float | None, base: float | None) -> str:
    if own is None:
        return UNKNOWN
    return f"{own:,.2f}" + (f" ({own / base - 1:+.1%})" if base and own != base else "")


def _mean(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):,.2f}{deviation}"


def _ratio(found: Found, rows: Sequence[Found]) -> str:
    """Returns how far models are from the Transformers of the same length and seeds."""
    if not rows or rows[0]["arm"] == BASELINE:
        return ""
    pairs = [(row["perplexity"], base) for row in rows if (base := _trained(found, row["length"], row["seed"]))]
    if not pairs:
        return UNKNOWN
    return f"{statistics.mean(own / base - 1 for own, base in pairs):+.1%}"


def _cell(found: Found, rows: Sequence[Found]) -> str:
    if not rows:
        return UNKNOWN
    ratio = _ratio(found, rows)
    return _mean([row["perplexity"] for row in rows]) + (f" ({ratio})" if ratio else "")


def _columns(found: Found, rows: Sequence[Found]) -> list[str]:
    if not rows:
        return [UNKNOWN] * 3
    return [_mean([row["perplexity"] for row in rows]), _ratio(found, rows), f"{rows[0]['parameters']:,}"]
