"""Where the text comes from: made on the spot, a folder of the user's, or WMT14."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import sha256_of, write_json
from linformer_fairseq.cli.progress import say

from . import corpus, texts, wmt14
from .pairs import Pair
from .settings import Text

FACTS = "sizes.json"
LONGEST_LINE = 10_000  # characters; no sentence that a model of some hundred subwords can use


def check_data(folder: Path, source: str, target: str) -> dict[str, str]:
    """The digest of each file of the user's own text; refuses a folder that lacks one."""
    if not folder.is_dir():
        raise UserError(f"--data {folder} is not a folder.")
    paths = [texts.find_text(folder, split, lang) for split in texts.SPLITS for lang in (source, target)]
    return {path.name: sha256_of(path) for path in paths}


def collect(text: Text, server: str, archives: Path, to: Path) -> None:
    """Write the raw text to `to`, without the training pairs that nothing can be learnt from, and count those.

    Args:
        server: where the `archives` of WMT14 come from.
    """
    langs = (text.source_lang, text.target_lang)
    dropped: Counter[str] = Counter()
    with texts.PairWriter(to, langs) as writer:
        for split, pair in _pairs(text, server, archives, to, dropped):
            longest = max(map(len, pair))
            if split not in text.cleaned:
                if longest > LONGEST_LINE:
                    raise UserError(
                        f"Pair {writer.sizes.get(split, 0) + 1} of the {split} set has a line of {longest:,} "
                        f"characters: a sentence of more than {LONGEST_LINE:,} cannot be translated, so split it up."
                    )
            elif not all(side.strip() for side in pair):
                dropped["an empty side"] += 1
                continue
            elif longest > LONGEST_LINE:
                dropped[f"more than {LONGEST_LINE:,} characters"] += 1
                continue
            writer.write(split, pair)
    for split in texts.SPLITS:
        if not writer.sizes.get(split):
            raise UserError(f"No {split} line has text in both languages.")
        say(f"  {split}: {writer.sizes[split]:,} sentence pairs")
    for reason, count in dropped.items():
        say(f"  left out {count:,} pairs with {reason}")
    origin = {"server": server} if "wmt14" in text.data else {}
    write_json(to / FACTS, {"dropped": dropped, **writer.sizes, **origin})


def _pairs(text: Text, server: str, archives: Path, to: Path, dropped: Counter[str]) -> Iterator[tuple[str, Pair]]:
    langs = (text.source_lang, text.target_lang)
    if "wmt14" in text.data:
        work = to / "unpacked"
        work.mkdir()
        yield from wmt14.pairs(archives, work, langs, text.data["wmt14"], wmt14.is_official(server), dropped)
        shutil.rmtree(work)
    elif "folder" in text.data:
        for split in texts.SPLITS:
            sides = texts.read_parallel(Path(text.data["folder"]), split, *langs)
            yield from ((split, pair) for pair in zip(*sides, strict=True))
    else:
        made = corpus.make_corpus(text.data["made"], text.data["seed"])
        for split in texts.SPLITS:
            yield from ((split, pair if langs[0] == "en" else pair[::-1]) for pair in made[split])
