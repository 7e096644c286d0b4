"""The report's tables of models that are compared with another one than the Transformer, too."""

from linformer_fairseq.cli.tables import table
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.recipe.merging import Found

from .arms import BASES
from .cells import name_cells, score_cell
from .found import difference_of, interval, label, rows_of, ways_in
from .sets import GLOSSARY, LONG, TEST


def beside_bases(found: Found) -> list[str]:
    """Returns a section with a table for each model that is compared with another one than the Transformer, too."""
    parts = []
    for arm, base in BASES.items():
        if lines := [*_scores_beside(found, arm, base), *_names_beside(found, arm, base)]:
            parts += [
                f"In brackets the difference from {label(found, base)}:",
                table(["", label(found, base), label(found, arm)], lines),
            ]
    return ["## Beside full attention with the same convolution", *parts] if parts else []


def _scores_beside(found: Found, arm: str, base: str) -> list[list[str]]:
    """Returns lines with the d-BLEU of two models at every length, and their difference in thirds of the longest."""
    lines = []
    tested = ways_in(found, TEST)
    for way in [*tested, *ways_in(found, LONG)]:
        if difference := difference_of(found, arm, way, base):
            cells = [score_cell(found, model, way, base) for model in (base, arm)]
            lines.append([f"d-BLEU, {way.set_name}, {way.longest:,} tokens", *cells])
            if way == tested[-1]:
                thirds = zip(("shortest", "middle", "longest"), difference["thirds"], strict=False)
                lines += [[f"its {which} third", "", interval(third)] for which, third in thirds]
    return lines


def _names_beside(found: Found, arm: str, base: str) -> list[list[str]]:
    """Returns lines with the share of names that two models translate as the glossary says, by distance."""
    lines = []
    for way in ways_in(found, GLOSSARY)[-1:]:
        if difference_of(found, arm, way, base):
            distances = rows_of(found, way)[base][0]["glossary"]
            cells = (name_cells(found, model, way, base) for model in (base, arm))
            for own, *shares in zip(distances, *cells, strict=True):
                lines.append([f"names, {Bucket(own['shortest'], own['longest'])}, %", *shares])
    return lines
