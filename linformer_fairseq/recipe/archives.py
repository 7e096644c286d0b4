"""Reading WMT's archives and the files within."""

import gzip
import re
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from tqdm.utils import CallbackIOWrapper

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import writing
from linformer_fairseq.cli.progress import bar

from .download import SourceError
from .texts import read_lines

CHUNK = 1 << 16
DAMAGE_ERRORS = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError)
FETCH_AGAIN = "remove it and run the same command again to fetch it anew"


def extract(archive: Path, members: Mapping[str, Path]) -> None:
    """Copies some of the files in a .tgz, in one pass to its end, where gzip's checksum stands.

    Names in the archive are only compared, so that it cannot choose where anything goes. A link or a folder of a wanted
    name does not count.

    Args:
        members: name in the archive, without a leading "./" -> the file to write.

    Raises:
        UserError: the archive is damaged or lacks a member, or the disk is full; then none of the files is written.
    """
    parts = {name: to.with_name(f"{to.name}.part") for name, to in members.items()}
    try:
        try:
            missing = _copy(archive, parts)
        except OSError as error:
            raise UserError(f"{archive} cannot be read: {error.strerror or error}.") from None
        if missing:
            raise SourceError(f"{archive} holds no file {' or '.join(missing)}", FETCH_AGAIN)
        for name, to in members.items():
            with writing(to):
                parts[name].replace(to)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _copy(archive: Path, parts: Mapping[str, Path]) -> list[str]:
    """Fills the parts that the archive has, and returns the names that it lacks."""
    missing = list(parts)
    with open(archive, "rb") as file, bar(archive.stat().st_size, archive.name, "B") as progress:
        # gzip's own reader: the one in tarfile checks neither the sum nor the end of the stream
        unzipped = gzip.GzipFile(fileobj=CallbackIOWrapper(progress.update, file, "read"))
        try:
            with tarfile.open(fileobj=unzipped, mode="r|", bufsize=CHUNK) as tar:
                for member in tar:
                    name = member.name.removeprefix("./")
                    if name in missing and member.isreg() and (source := tar.extractfile(member)):
                        with writing(parts[name]):
                            parts[name].parent.mkdir(parents=True, exist_ok=True)
                            with open(parts[name], "wb") as part:
                                shutil.copyfileobj(source, part, CHUNK)
                        missing.remove(name)
            while unzipped.read(CHUNK):  # tarfile takes a damaged header for the end: the checksum knows
                pass
        except DAMAGE_ERRORS:
            raise SourceError(
                f"{archive} is cut short or damaged, or no .tgz archive, so that {' and '.join(parts)} cannot be taken "
                "from it",
                FETCH_AGAIN,
            ) from None
    return missing


def read_sgm(path: Path) -> list[str]:
    """Returns the segments of one of WMT's .sgm files, in order, as sacreBLEU does (sacrebleu/dataset/fake_sgml.py).

    Only lines that start with "<seg " count, runs of white space become one space, entities stay as they are.

    Raises:
        UserError: the file is not UTF-8 text, or holds no segment.
    """
    lines = [line for line in read_lines(path) if line.startswith("<seg ")]
    if not lines:
        raise SourceError(f"{path} holds no segments", FETCH_AGAIN)
    return [" ".join(re.sub(r"<seg.*?>(.*)</seg>", r"\1", line).split()) for line in lines]
