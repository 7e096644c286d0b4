"""WMT14 English-German as statmt.org serves it: which archives there are, and what is taken from them."""

from argparse import Namespace, _ArgumentGroup
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from linformer_fairseq.cli.progress import bar, say
from linformer_fairseq.cli.tables import table

from ..archives import FETCH_AGAIN, extract, read_sgm
from ..download import SourceError, fetch, remember, verify
from ..texts import Pair, count_lines, read_lines
from .base import Dataset

NEWSTEST2013 = "newstest2013"
EVERY_100TH = "every-100th"
OFFICIAL = "https://www.statmt.org"
RECORD = "SHA256SUMS"


class Archive(NamedTuple):
    """An archive of the server, with the digest of the official one where it is published."""

    path: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


# Digests as TensorFlow Datasets publishes them (url_checksums/wmt14_translate.txt); none are of the last two
EUROPARL = Archive(
    "wmt13/training-parallel-europarl-v7.tgz",
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
COMMON_CRAWL = Archive(
    "wmt13/training-parallel-commoncrawl.tgz",
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
NEWS_COMMENTARY = Archive(
    "wmt14/training-parallel-nc-v9.tgz",
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
DEV = Archive("wmt14/dev.tgz")
TEST = Archive("wmt14/test-full.tgz")

TRAINING = {
    EUROPARL: "training/europarl-v7.de-en",
    COMMON_CRAWL: "commoncrawl.de-en",
    NEWS_COMMENTARY: "training/news-commentary-v9.de-en",
}
"""Path of the training files in each archive, without the language suffix."""
OFFICIAL_LINES = {"valid": 3000, "test": 3003}
PUBLISHED = [
    "## Published by the study",
    table(
        [
            "Model",
            "BLEU, as published (not comparable)",
            "sacreBLEU of its translations",
            "Seconds per batch, training (not comparable)",
        ],
        [
            ["Transformer", "29.92", "18.68", "0.221"],
            ["Linformer k=32", "30.08", "14.15", "0.205"],
            ["Linformer k=64", "27.74", "15.18", "0.209"],
        ],
    ),
    "What the study that this recipe completes has published, on newstest2014. Its BLEU comes without a signature, and "
    "scoring its published translations gives other figures: these compare with our column BLEU, where that is of the "
    "whole newstest2014 and a full training. Its seconds are of another machine; their ratios compare with ours. It "
    "published no perplexity and no inference time.",
]
"""A section of the report, on translation from English to German."""


@dataclass(frozen=True)
class Wmt14(Dataset):
    """Europarl v7, Common Crawl and News Commentary v9, validated on newstest2013, tested on newstest2014."""

    name = "WMT14"
    flag = "--wmt14"
    languages = frozenset({"en", "de"})
    remedy = "name a mirror that has it by --server (WMT_BASE_URL)"

    valid: str
    """NEWSTEST2013, or EVERY_100TH line of the training text as fairseq's own recipe has it."""
    server: str = OFFICIAL

    @staticmethod
    def add_options(group: _ArgumentGroup) -> None:
        group.add_argument(Wmt14.flag, choices=(NEWSTEST2013, EVERY_100TH), help="take WMT14, validated on this")
        group.add_argument(
            "--server", default=OFFICIAL, metavar="URL", help="what has the archives of WMT14; file:// as well"
        )

    @classmethod
    def from_arguments(cls, args: Namespace) -> "Wmt14":
        return cls(args.wmt14, args.server.rstrip("/"))

    def settings(self) -> dict[str, Any]:
        return {"wmt14": self.valid}

    def facts(self, langs: tuple[str, str]) -> dict[str, Any]:
        return {"server": self.server}

    def origin(self, facts: dict[str, Any]) -> str:
        return f"WMT14 from {facts['server']}, validated on {self.valid}"

    def published(self, source_lang: str, target_lang: str) -> list[str]:
        return PUBLISHED if (source_lang, target_lang) == ("en", "de") else []

    @property
    def cleaned(self) -> Set[str]:
        return {"train", "valid"} if self.valid == EVERY_100TH else {"train"}

    @property
    def is_official(self) -> bool:
        """Whether the archives come from statmt.org itself."""
        return urlsplit(self.server).hostname in ("statmt.org", "www.statmt.org")

    def pairs(
        self, langs: tuple[str, str], archives: Path, work: Path, dropped: Counter[str]
    ) -> Iterator[tuple[str, Pair]]:
        self.download(archives)
        stem = "test-full/newstest2014-deen"  # all 3,003 lines, as sacreBLEU's `wmt14/full` has it
        test = (f"{stem}-src.{langs[0]}.sgm", f"{stem}-ref.{langs[1]}.sgm")
        yield from self.held_out("test", archives / TEST.name, test, work, read_sgm)  # first: soon read, and refused
        if self.valid == NEWSTEST2013:
            valid = (f"dev/newstest2013.{langs[0]}", f"dev/newstest2013.{langs[1]}")
            yield from self.held_out("valid", archives / DEV.name, valid, work, read_lines)
        number = 0
        for archive, stem in TRAINING.items():
            for pair in _training_pairs(archives / archive.name, work, stem, langs, dropped):
                number += 1
                yield ("valid" if self.valid == EVERY_100TH and number % 100 == 0 else "train"), pair

    def held_out(
        self, split: str, archive: Path, members: tuple[str, str], work: Path, read: Callable[[Path], list[str]]
    ) -> Iterator[tuple[str, Pair]]:
        """Yields the pairs of the validation or the test set, whose two sides are `members` of the archive."""
        files = {member: work / Path(member).name for member in members}
        extract(archive, files)
        sides = [read(path) for path in files.values()]
        if len(sides[0]) != len(sides[1]):
            raise _unequal(archive, members, list(map(len, sides)))
        if self.is_official and len(sides[0]) != OFFICIAL_LINES[split]:
            raise SourceError(
                f"{archive} has {len(sides[0]):,} lines in its {split} set, not {OFFICIAL_LINES[split]:,}",
                FETCH_AGAIN,
            )
        yield from ((split, pair) for pair in zip(*sides, strict=True))

    def download(self, folder: Path) -> None:
        """Fetches what is not there yet. From statmt.org, all archives must have their published digests.

        The digest of an archive is recorded in `folder` when it is fetched or first seen, and holds until it is
        fetched again.
        """
        folder.mkdir(exist_ok=True)
        for archive in (*TRAINING, DEV, TEST):
            path = folder / archive.name
            sha256 = archive.sha256 if self.is_official else None
            if path.exists():
                verify(path, folder / RECORD, sha256)
            else:
                say(f"Fetching {archive.path} from {self.server} ...")
                fetch(f"{self.server}/{archive.path}", path, sha256)
                remember(path, folder / RECORD)


def _training_pairs(
    archive: Path, work: Path, stem: str, langs: tuple[str, str], dropped: Counter[str]
) -> Iterator[Pair]:
    """Yields the pairs of a training archive whose bytes are UTF-8."""
    files = {f"{stem}.{lang}": work / f"training.{lang}" for lang in langs}
    extract(archive, files)
    paths = list(files.values())
    lines = count_lines(paths[0])
    with open(paths[0], "rb") as source, open(paths[1], "rb") as target, bar(lines, archive.name, " pairs") as progress:
        for sides in zip_longest(source, target):
            if None in sides:
                raise _unequal(archive, list(files), list(map(count_lines, paths)))
            progress.update()
            try:
                left, right = (side.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8") for side in sides)
            except UnicodeDecodeError:
                dropped["bytes that are not UTF-8"] += 1
                continue
            yield left, right
    for path in paths:
        path.unlink()


def _unequal(archive: Path, members: Sequence[str], counts: list[int]) -> SourceError:
    return SourceError(
        f"{archive}: {members[0]} has {counts[0]:,} lines but {members[1]} has {counts[1]:,}, so they are no "
        "translations of each other",
        FETCH_AGAIN,
    )
