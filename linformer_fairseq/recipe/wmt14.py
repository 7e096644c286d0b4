"""WMT14 English-German as statmt.org serves it: which archives there are, and what is taken from them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import bar, say

from .archives import extract, read_sgm
from .download import fetch, verify
from .pairs import Pair
from .texts import count_lines, read_lines

OFFICIAL = "https://www.statmt.org"
LANGS = {"en", "de"}
NEWSTEST2013 = "newstest2013"
EVERY_100TH = "every-100th"
RECORD = "SHA256SUMS"


@dataclass(frozen=True)
class Archive:
    """An archive of the server, with the size in bytes and the digest of the official one where they are published."""

    path: str
    size: int | None = None
    sha256: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


# Sizes and digests: TensorFlow Datasets, url_checksums/wmt14_translate.txt (it has none of these two last archives)
EUROPARL = Archive(
    "wmt13/training-parallel-europarl-v7.tgz",
    657_632_379,
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
COMMON_CRAWL = Archive(
    "wmt13/training-parallel-commoncrawl.tgz",
    918_311_367,
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
NEWS_COMMENTARY = Archive(
    "wmt14/training-parallel-nc-v9.tgz",
    80_418_416,
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
DEV = Archive("wmt14/dev.tgz")
TEST = Archive("wmt14/test-full.tgz")

TRAINING = {
    EUROPARL: "training/europarl-v7.de-en",
    COMMON_CRAWL: "commoncrawl.de-en",
    NEWS_COMMENTARY: "training/news-commentary-v9.de-en",
}
"""The training text of an archive, less the language at its end."""
OFFICIAL_LINES = {"valid": 3000, "test": 3003}


def download(base: str, folder: Path) -> None:
    """Fetch what is not there yet; archives of `OFFICIAL` must have their published sizes and digests.

    The digest of every archive is recorded in `folder` when it is first seen, and holds from then on.
    """
    folder.mkdir(exist_ok=True)
    for archive in (*TRAINING, DEV, TEST):
        path = folder / archive.name
        if not path.exists():
            say(f"Fetching {archive.path} from {base} ...")
        known = {"sha256": archive.sha256, "size": archive.size} if base == OFFICIAL else {}
        fetch(f"{base}/{archive.path}", path, **known)
        verify(path, folder / RECORD)


def pairs(
    archives: Path, work: Path, langs: tuple[str, str], valid: str, official: bool, dropped: Counter[str]
) -> Iterator[tuple[str, Pair]]:
    """Every sentence pair with the split that it belongs to.

    Args:
        archives: the folder that `download` has filled.
        work: a folder for what is unpacked on the way.
        langs: source and target.
        valid: NEWSTEST2013, or EVERY_100TH line of the training text as fairseq's own recipe has it.
        official: whether the archives are those of `OFFICIAL`, whose validation and test sets have known sizes.
        dropped: counts the training pairs that cannot be read.

    Raises:
        UserError: naming the file that is missing, damaged, or no translation of its partner.
    """
    number = 0
    for archive, stem in TRAINING.items():
        for pair in _read(archives / archive.name, work, stem, langs, dropped):
            number += 1
            yield ("valid" if valid == EVERY_100TH and number % 100 == 0 else "train"), pair
    sets = {"test": _test_set(archives, work, langs)}
    if valid == NEWSTEST2013:
        sets["valid"] = _valid_set(archives, work, langs)
    for split, sides in sets.items():
        if official and len(sides[0]) != OFFICIAL_LINES[split]:
            raise UserError(
                f"The {split} set has {len(sides[0])} lines, not {OFFICIAL_LINES[split]:,}: remove {archives} and run "
                "the same command again to fetch it anew."
            )
        yield from ((split, pair) for pair in zip(*sides, strict=True))


def _read(archive: Path, work: Path, stem: str, langs: tuple[str, str], dropped: Counter[str]) -> Iterator[Pair]:
    """The pairs of a training archive whose bytes are UTF-8."""
    files = {f"{stem}.{lang}": work / f"training.{lang}" for lang in langs}
    extract(archive, files)
    paths = list(files.values())
    total = count_lines(paths[0])
    with open(paths[0], "rb") as source, open(paths[1], "rb") as target, bar(total, archive.name, " pairs") as progress:
        for sides in zip_longest(source, target):
            if None in sides:
                raise _unequal(archive, list(files), [count_lines(path) for path in paths])
            progress.update()
            try:
                left, right = (side.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8") for side in sides)
            except UnicodeDecodeError:
                dropped["bytes that are not UTF-8"] += 1
                continue
            yield left, right
    for path in paths:
        path.unlink()


def _valid_set(archives: Path, work: Path, langs: tuple[str, str]) -> list[list[str]]:
    archive = archives / DEV.name
    files = {f"dev/newstest2013.{lang}": work / f"newstest2013.{lang}" for lang in langs}
    extract(archive, files)
    return _equal(archive, list(files), [read_lines(path) for path in files.values()])


def _test_set(archives: Path, work: Path, langs: tuple[str, str]) -> list[list[str]]:
    """newstest2014 of all 3,003 lines, as sacreBLEU's `wmt14/full` has it."""
    archive = archives / TEST.name
    names = [f"newstest2014-deen-{side}.{lang}.sgm" for side, lang in zip(("src", "ref"), langs, strict=True)]
    files = {f"test-full/{name}": work / name for name in names}
    extract(archive, files)
    return _equal(archive, list(files), [read_sgm(path) for path in files.values()])


def _equal(archive: Path, members: list[str], sides: list[list[str]]) -> list[list[str]]:
    counts = [len(side) for side in sides]
    if counts[0] != counts[1]:
        raise _unequal(archive, members, counts)
    return sides


def _unequal(archive: Path, members: list[str], counts: list[int]) -> UserError:
    return UserError(
        f"{archive}: {members[0]} has {counts[0]:,} lines but {members[1]} has {counts[1]:,}, so they are no "
        "translations of each other: remove the archive and run the same command again, or name another server in "
        "WMT_BASE_URL."
    )
