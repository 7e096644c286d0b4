"""The five archives of WMT14 English-German as statmt.org names and fills them, with a little text of one's own.

`python -m tests.recipe.mirror DATA OUT`: DATA holds train|valid|test.en|de[.gz], OUT becomes a mirror.
"""

import gzip
import io
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.recipe.texts import SPLITS, read_parallel

Line = str | bytes  # bytes, for text that is not UTF-8
Pair = tuple[Line, Line]  # English, German

DECOY = "decoy"
SEGMENTS_PER_DOCUMENT = 3
CORPORA = {  # name -> archive, stem of the files in it
    "europarl": ("wmt13/training-parallel-europarl-v7.tgz", "training/europarl-v7"),
    "commoncrawl": ("wmt13/training-parallel-commoncrawl.tgz", "commoncrawl"),
    "news-commentary": ("wmt14/training-parallel-nc-v9.tgz", "training/news-commentary-v9"),
}


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


def main(data: Path, out: Path) -> None:
    """A mirror of the text in a folder: every third training pair to each of the corpora."""
    splits = {split: list(zip(*read_parallel(data, split, "en", "de"), strict=True)) for split in SPLITS}
    training = {corpus: splits["train"][number :: len(CORPORA)] for number, corpus in enumerate(CORPORA)}
    build_mirror(out, training, splits["valid"], splits["test"])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tests.recipe.mirror DATA OUT")
    sys.exit(exit_status(lambda: main(Path(sys.argv[1]), Path(sys.argv[2])), interrupted="nothing was finished"))
