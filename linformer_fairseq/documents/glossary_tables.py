"""The report's table of names that are translated as the glossary of their document says."""

from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.recipe.merging import Found

from .cells import each_seed, name_cells, number
from .found import glossary_means, label, mean, rows_of, ways_in
from .glossary import TRANSLATIONS
from .sets import GLOSSARY


def glossary(found: Found) -> list[str]:
    """Returns the section on names; nothing where no document has a glossary."""
    ways = ways_in(found, GLOSSARY)
    if not ways:
        return []
    by_arm = rows_of(found, ways[-1])
    first = next(iter(by_arm.values()))[0]["glossary"]
    headers = [f"{Bucket(own['shortest'], own['longest'])} ({own['number']:,})" for own in first]
    lines = [["any name of the glossary", *(f"{100 * own['chance']:.1f}" for own in first), UNKNOWN]]
    for arm, rows in by_arm.items():
        lines.append([label(found, arm), *name_cells(found, arm, ways[-1]), number(mean(rows, "d_bleu"), ".2f")])
    seeds = each_seed(
        found,
        by_arm,
        [*headers, "d-BLEU"],
        lambda row: [*(f"{100 * share:.1f}" for share in glossary_means([row])), f"{row['d_bleu']:.2f}"],
    )
    return [
        "## Glossaries",
        f"{found['documents'][GLOSSARY]:,} synthetic documents whose first lines say how made-up names are to be "
        "translated. The names and their lines are the same in all of them; which of "
        f"{len(TRANSLATIONS)} translations a name has is drawn anew for each document. The share of names, in per "
        "cent, that are translated so, by the tokens since the name was last there, in its line or in a later "
        "sentence; the first row is what a name drawn from the same glossary would give. A name is looked for in the "
        "sentence with the number of its own, wherever that stands. In brackets the difference from the Transformer in "
        "points, with the same kind of interval; another seed may differ by far more:",
        table(["Model", *headers, "d-BLEU"], lines),
        *seeds,
    ]
