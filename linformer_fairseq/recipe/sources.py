"""The raw text of a dataset, as the recipe goes on with it."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.progress import say

from . import texts
from .datasets.base import Dataset
from .download import SourceError
from .texts import Pair

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
        sizes = texts.write_pairs(to, langs, _usable(dataset, dataset.pairs(langs, archives, work, dropped), dropped))
    except SourceError as error:
        raise error.or_else(dataset.remedy) from None
    shutil.rmtree(work)
    for split in texts.SPLITS:
        if not sizes[split]:
            raise UserError(f"No pair of the {split} split has text on both sides.")
        say(f"  {split}: {sizes[split]:,} sentence pairs")
    for reason, count in dropped.items():
        say(f"  left out {count:,} pairs with {reason}")
    write_json(to / FACTS, {"dropped": dropped, **sizes, **dataset.facts(langs)})


def _usable(dataset: Dataset, pairs: Iterable[tuple[str, Pair]], dropped: Counter[str]) -> Iterator[tuple[str, Pair]]:
    """Yields the pairs that can be learnt from or translated, and counts the others by reason."""
    seen: Counter[str] = Counter()
    for split, pair in pairs:
        seen[split] += 1
        longest = max(map(len, pair))
        if split not in dataset.cleaned:
            if longest > LONGEST_LINE:
                raise UserError(
                    f"Pair {seen[split]} of the {split} set has a line of {longest:,} characters: a sentence of more "
                    f"than {LONGEST_LINE:,} cannot be translated, so split it up."
                )
        elif not all(side.strip() for side in pair):
            dropped["an empty side"] += 1
            continue
        elif longest > LONGEST_LINE:
            dropped[f"more than {LONGEST_LINE:,} characters"] += 1
            continue
        yield split, pair
