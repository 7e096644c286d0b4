"""The raw text of a dataset, as the recipe goes on with it."""

import shutil
from collections import Counter
from pathlib import Path

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.progress import say

from . import texts
from .datasets.base import Dataset
from .download import SourceError

FACTS = "sizes.json"
LONGEST_LINE = 10_000  # characters; no sentence that a model of some hundred subwords can use


def collect(dataset: Dataset, langs: tuple[str, str], archives: Path, to: Path) -> None:
    """Writes the raw text to `to`, without the training pairs from which nothing can be learnt, and counts those.

    Args:
        langs: source and target.
        archives: a folder for what is fetched, which stays when something fails.

    Raises:
        UserError: the text cannot be had, or a sentence of the validation or test set cannot be translated.
    """
    work = to / "unpacked"
    work.mkdir()
    dropped: Counter[str] = Counter()
    try:
        with texts.PairWriter(to, langs) as writer:
            for split, pair in dataset.pairs(langs, archives, work, dropped):
                if split in dataset.cleaned and (reason := _unusable(pair)):
                    dropped[reason] += 1
                    continue
                longest = max(map(len, pair))
                if longest > LONGEST_LINE:
                    raise UserError(
                        f"Pair {writer.sizes.get(split, 0) + 1} of the {split} set has a line of {longest:,} "
                        f"characters: a sentence of more than {LONGEST_LINE:,} cannot be translated, so split it up."
                    )
                writer.write(split, pair)
    except SourceError as error:
        raise error.or_else(dataset.way_out) from None
    shutil.rmtree(work)
    for split in texts.SPLITS:
        if not writer.sizes.get(split):
            raise UserError(f"No {split} line has text in both languages.")
        say(f"  {split}: {writer.sizes[split]:,} sentence pairs")
    for reason, count in dropped.items():
        say(f"  left out {count:,} pairs with {reason}")
    write_json(to / FACTS, {"dropped": dropped, **writer.sizes, **dataset.facts()})


def _unusable(pair: tuple[str, str]) -> str | None:
    """Returns why nothing can be learnt from a training pair; None where it stays."""
    if not all(side.strip() for side in pair):
        return "an empty side"
    if max(map(len, pair)) > LONGEST_LINE:
        return f"more than {LONGEST_LINE:,} characters"
    return None
