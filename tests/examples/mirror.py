"""The five archives of WMT14 English-German as statmt.org names and fills them, with a little text of one's own."""

import gzip
import io
import random
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Line = str | bytes  # bytes, for text that is not UTF-8
Pair = tuple[Line, Line]  # English, German

DECOY = "decoy"
SEGMENTS_PER_DOCUMENT = 3
CORPORA = {  # name -> archive, stem of the files in it
    "europarl": ("wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7"),
    "commoncrawl": ("wmt13/training-parallel-commoncrawl.tgz", "commoncrawl"),
    "news-commentary": ("wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9"),
}

WORDS = {"en": "the small dog sees an old well-known house", "de": "der kleine Hund sieht ein altes Haus"}


def sentence(number: int, lang: str) -> str:
    """Some words around a marker that names the pair."""
    words = random.Random(f"{number} {lang}").choices(WORDS[lang].split(), k=6)
    return " ".join([*words[:3], f"x{number}x", *words[3:]]) + "."


def marked(start: int, count: int) -> list[Pair]:
    """Pairs with the markers from `start` on."""
    return [(sentence(n, "en"), sentence(n, "de")) for n in range(start, start + count)]


def marker(line: str) -> int:
    """The number in a line, whatever tokens or subwords it has been cut into."""
    return int(re.search(r"x(\d+)x", re.sub("@@ |[ ▁]", "", line))[1])


def training(count: int) -> dict[str, list[Pair]]:
    """`count` pairs, shared by the corpora."""
    each = count // len(CORPORA)
    return {corpus: marked(i * each, each) for i, corpus in enumerate(CORPORA)}


def build_mirror(
    folder: Path, training: Mapping[str, Sequence[Pair]], valid: Sequence[Pair], test: Sequence[Pair]
) -> None:
    """Write the archives below `folder`; the same text gives the same bytes.

    Args:
        training: the pairs of "europarl", "commoncrawl" and "news-commentary".
    """
    decoys = [(DECOY, DECOY)]
    for corpus, (archive, stem) in CORPORA.items():
        members = _sides(f"{stem}.fr-en", ("en", "fr"), decoys)
        members |= _sides(f"{stem}.de-en", ("en", "de"), training[corpus])
        _write_archive(folder / archive, members)
    dev = _sides("dev/newstest2012", ("en", "de"), decoys) | _sides("dev/newstest2013", ("en", "de"), valid)
    _write_archive(folder / "wmt14" / "dev.tgz", dev)
    stem = "test-full/newstest2014-deen"
    tests = {f"{stem}-{kind}.{lang}.sgm": _sgm(kind, lang, test) for kind in ("ref", "src") for lang in ("de", "en")}
    _write_archive(folder / "wmt14" / "test-full.tgz", tests)


def _sides(stem: str, langs: tuple[str, str], pairs: Sequence[Pair]) -> dict[str, bytes]:
    return {f"{stem}.{lang}": b"".join(_bytes(pair[side]) + b"\n" for pair in pairs) for side, lang in enumerate(langs)}


def _sgm(kind: str, lang: str, pairs: Sequence[Pair]) -> bytes:
    """A side of the test set as WMT marks it up: a set of documents, their segments numbered anew in each."""
    side = ("en", "de").index(lang)
    languages = 'srclang="any"' if kind == "src" else f'srclang="any" trglang="{lang}"'
    lines: list[Line] = [f'<{kind}set setid="newstest2014" {languages}>']
    for start in range(0, len(pairs), SEGMENTS_PER_DOCUMENT):
        document = pairs[start : start + SEGMENTS_PER_DOCUMENT]
        origin = "en" if start % 2 else "de"
        lines += [f'<doc sysid="{kind}" docid="news.{start}" genre="news" origlang="{origin}">', "<p>"]
        for number, pair in enumerate(document, start=1):
            lines.append(f'<seg id="{number}">'.encode() + _bytes(pair[side]) + b"</seg>")
        lines += ["</p>", "</doc>"]
    lines.append(f"</{kind}set>")
    return b"".join(_bytes(line) + b"\n" for line in lines)


def _bytes(line: Line) -> bytes:
    return line if isinstance(line, bytes) else line.encode("utf-8")


def _write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive_bytes((tarfile.TarInfo(name), data) for name, data in members.items()))


def archive_bytes(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A .tgz of these entries, without the time of day."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
