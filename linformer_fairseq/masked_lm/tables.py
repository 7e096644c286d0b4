"""The report's tables."""

from collections.abc import Iterable, Sequence

from linformer_fairseq.cli.tables import UNKNOWN, table, with_deviation
from linformer_fairseq.recipe.merging import Found

from .arms import BASELINE, LINFORMER
from .figure import first_seeds
from .trainings import SHARING


def label(found: Found, arm: str) -> str:
    """Returns what tables call a model."""
    return str(found["arms"][arm]["label"])


def by_kind(found: Found) -> list[str]:
    """Returns the section that compares all kinds of attention, at the first length."""
    first = _lengths(found)[0]
    rows = [row for row in _usual(found["trainings"], found["k"]) if row["length"] == first]
    seeds = sorted({row["seed"] for row in rows})
    shared = seeds[:1] if len(seeds) > 1 else []  # the one that models with a single seed have, too
    costs = {row["arm"]: row for row in (found["costs"] or {"rows": []})["rows"] if row["length"] == first}
    measured = [("tokens_per_second", "Tokens per second", 1.0), ("peak_bytes", "Memory, MB", 1e-6)] if costs else []
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == arm]
        lines.append(
            [
                label(found, arm),
                with_deviation(_perplexities(own)),
                _difference(found, own),
                str(len(own)),
                *(with_deviation(_perplexities(row for row in own if row["seed"] == seed)) for seed in shared),
                *(_cost(costs.get(arm), name, unit) for name, _, unit in measured),
            ]
        )
    told = (
        " Speed and memory are those of training (below); brackets hold multiples of the Transformer's."
        if costs
        else ""
    )
    headers = ["Model", "Perplexity", "From the Transformer's", "Seeds", *(f"Seed {seed} alone" for seed in shared)]
    return [
        "## Perplexity",
        f"Blocks of {first:,} tokens, k = {found['k']}: mean and standard deviation over seeds, of the perplexity and "
        "of the difference from the Transformer of the same seed. A difference within its deviation means nothing, and "
        f"models with fewer seeds than others are to be compared by the seed that all have.{told}",
        table([*headers, *(title for _, title, _ in measured)], lines),
    ]


def by_k(found: Found) -> list[str]:
    """Returns the section on Linformer's projected dimension, at each length that has several."""
    every = first_seeds(found["trainings"])
    rows = [row for row in _of(every, LINFORMER) if row["sharing"] == SHARING]
    lengths = [n for n in _lengths(found) if len({row["k"] for row in rows if row["length"] == n}) > 1]
    if not lengths:
        return []
    ks = sorted({row["k"] for row in rows if row["length"] in lengths})
    headers = ["", *(f"n = {length:,}" for length in lengths)]
    transformers = _of(every, BASELINE)
    lines = [["Transformer", *(_cell(found, _at(transformers, length)) for length in lengths)]]
    for k in ks:
        own = [row for row in rows if row["k"] == k]
        lines.append([f"Linformer, k = {k}", *(_cell(found, _at(own, length)) for length in lengths)])
    text = "As in the paper's Figure 3 (a) and (b), with the first seed of every model."
    return ["## Projected dimension", text, table(headers, lines)]


def by_sharing(found: Found) -> list[str]:
    """Returns the section on who shares a projection of Linformer."""
    first = _lengths(found)[0]
    every = _at(first_seeds(found["trainings"]), first)
    rows = [row for row in _of(every, LINFORMER) if row["k"] == found["k"]]
    if len(rows) < 2:
        return []
    named = [("Transformer", row) for row in _of(every, BASELINE)]
    named += [(f"Linformer, {row['sharing']}", row) for row in rows]
    lines = [
        [name, with_deviation(_perplexities([row])), _difference(found, [row]), f"{row['parameters']:,}"]
        for name, row in named
    ]
    text = f"As in the paper's Figure 3 (c), n = {first:,}, k = {found['k']}, with the first seed of every model."
    return ["## Sharing", text, table(["", "Perplexity", "From the Transformer's", "Parameters"], lines)]


def by_length(found: Found) -> list[str]:
    """Returns the section on the length of blocks, with the models that have several."""
    lengths, usual = _lengths(found), _usual(first_seeds(found["trainings"]), found["k"])
    arms = [arm for arm in found["arms"] if len({row["length"] for row in _of(usual, arm)}) > 1]
    if not arms:
        return []
    lines = [[label(found, arm), *(_cell(found, _at(_of(usual, arm), length)) for length in lengths)] for arm in arms]
    return [
        "## Length",
        f"As in the paper's Figure 3 (d), k = {found['k']}, with the first seed of every model. Longer blocks have "
        "more context, and fewer of them make an update.",
        table(["Model", *(f"n = {length:,}" for length in lengths)], lines),
    ]


def swapped(found: Found) -> list[str]:
    """Returns the section on another attention in a trained model; nothing where it was not tried."""
    rows = found["swapped"]
    if not rows:
        return []
    first = min(row["length"] for row in rows)
    shares = sorted({row["share"] for row in rows if row["length"] == first} | {0.0})
    arms = [BASELINE, *(arm for arm in found["arms"] if arm != BASELINE and any(row["arm"] == arm for row in rows))]

    def cell(arm: str, length: int, share: float) -> str:
        if arm == BASELINE and not share:
            return next(f"{row['before']:,.2f}" for row in rows if row["length"] == length)
        own = [row for row in rows if (row["arm"], row["length"], row["share"]) == (arm, length, share)]
        return f"{own[0]['perplexity']:,.2f} ({own[0]['perplexity'] / own[0]['before'] - 1:+.1%})" if own else UNKNOWN

    learnt = " Learned E and F start as the identity, and see the first k tokens alone." if LINFORMER in arms else ""
    headers = ["Attention", *(f"{share:.0%} of the updates" if share else "no training" for share in shares)]
    parts = [
        "## Another attention in a trained model",
        f"The Transformer that was trained on blocks of {first:,} tokens gets another attention "
        "(`python -m linformer_fairseq.convert`), and is trained no further, or for a share of the updates that it "
        "had, whose last checkpoint counts. Perplexity, and how far it is from the Transformer's own; the "
        f"Transformer's row says what more training does by itself.{learnt} One seed.",
        table(headers, [[label(found, arm), *(cell(arm, first, share) for share in shares)] for arm in arms]),
    ]
    longer = sorted({row["length"] for row in rows} - {first})
    if longer:
        lines = [[label(found, arm), *(cell(arm, length, 0.0) for length in longer)] for arm in arms]
        parts += ["At other lengths, with no training:", table(["Attention", *(f"n = {n:,}" for n in longer)], lines)]
    return parts


def costs(found: Found) -> list[str]:
    """Returns the section on time and memory; nothing where they have not been measured."""
    if not found["costs"]:
        return []
    asked, machines, rows = (found["costs"][name] for name in ("asked", "machines", "rows"))
    lengths = sorted({row["length"] for row in rows})

    def part(name: str, unit: float) -> str:
        by_key = {(row["arm"], row["length"]): row for row in rows}
        arms = [arm for arm in found["arms"] if any(row["arm"] == arm for row in rows)]
        lines = [
            [label(found, arm), *(_cost(by_key.get((arm, length)), name, unit) for length in lengths)] for arm in arms
        ]
        return table(["Model", *(f"{length:,} tokens" for length in lengths)], lines)

    return [
        "## Time and memory",
        f"A training step on {asked['max_tokens']:,} random tokens, with Adam's update, k = {found['k']}; "
        f"{asked['precision']}, threads: {asked['threads']}, {'; '.join(machines)}; medians of {asked['repeats']} "
        "steps, the models in turn. Brackets hold multiples of the Transformer's in the same run.",
        "Tokens per second:",
        part("tokens_per_second", 1.0),
        "Peak memory in MB, as torch allocates it beyond weights and Adam's moments:",
        part("peak_bytes", 1e-6),
    ]


def _lengths(found: Found) -> list[int]:
    return sorted({row["length"] for row in found["trainings"]})


def _of(rows: Sequence[Found], arm: str) -> list[Found]:
    return [row for row in rows if row["arm"] == arm]


def _at(rows: Sequence[Found], length: int) -> list[Found]:
    return [row for row in rows if row["length"] == length]


def _usual(rows: Sequence[Found], k: int) -> list[Found]:
    """Returns the trainings with the study's k and sharing."""
    return [row for row in rows if row["k"] in (0, k) and row["sharing"] in ("", SHARING)]


def _trained(found: Found, length: int, seed: int) -> float | None:
    rows = [row for row in _at(_of(found["trainings"], BASELINE), length) if row["seed"] == seed]
    return rows[0]["perplexity"] if rows else None


def _cost(own: Found | None, name: str, unit: float) -> str:
    """Returns a cell with what a model costs, and how many times the Transformer's that is."""
    if own is None or own[name] is None:
        return (own and own["note"]) or UNKNOWN
    base = own["base"].get(name)
    over = f" ({own[name] / base:.2f})" if base else ""
    return f"{own[name] * unit:,.0f}{over}"


def _perplexities(rows: Iterable[Found]) -> list[float]:
    return [row["perplexity"] for row in rows]


def _difference(found: Found, rows: Sequence[Found]) -> str:
    """Returns how far models are from the Transformers of the same length and seeds: mean and deviation."""
    if not rows or rows[0]["arm"] == BASELINE:
        return ""
    pairs = [(row["perplexity"], base) for row in rows if (base := _trained(found, row["length"], row["seed"]))]
    return with_deviation([own / base - 1 for own, base in pairs], "+.1%")


def _cell(found: Found, rows: Sequence[Found]) -> str:
    """Returns a cell with a perplexity, and how far it is from the Transformer's."""
    difference = _difference(found, rows)
    return with_deviation(_perplexities(rows)) + (f" ({difference})" if difference else "")
