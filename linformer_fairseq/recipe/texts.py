"""Reading and writing parallel text: one sentence a line, plain or gzipped."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from linformer_fairseq.cli.errors import UserError

SPLITS = ("train", "valid", "test")

Pair = tuple[str, str]
"""A sentence and its translation."""


def find_text(folder: Path, split: str, lang: str) -> Path:
    """Returns the path of `folder/split.lang`, or of the same gzipped."""
    plain = folder / f"{split}.{lang}"
    zipped = folder / f"{split}.{lang}.gz"
    for path in (plain, zipped):
        if path.is_file():
            return path
    raise UserError(f"{plain} is missing (and so is {zipped.name}): every split needs both languages.")


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a text file. Only a line feed ends a line, whatever else Unicode calls a line break."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UserError(f"{path} is not a whole gzip file: unpack or fetch it again.") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} is not UTF-8 text: line {line} cannot be read.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return text.removesuffix("\n").replace("\r\n", "\n").split("\n") if text else []


def stream_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file that `write_lines` or `write_pairs` wrote."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def count_lines(path: Path) -> int:
    """Returns the number of line feeds in a file."""
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes one line each, whatever else in a line Unicode calls a line break."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def write_pairs(folder: Path, langs: tuple[str, str], pairs: Iterable[tuple[str, Pair]]) -> Counter[str]:
    """Writes the pairs of each split to `folder/split.lang`, and returns how many there are of each."""
    sizes: Counter[str] = Counter()
    with ExitStack() as stack:
        files = {
            split: [
                stack.enter_context(open(folder / f"{split}.{lang}", "w", encoding="utf-8", newline="\n"))
                for lang in langs
            ]
            for split in SPLITS
        }
        for split, pair in pairs:
            for file, line in zip(files[split], pair, strict=True):
                file.write(line + "\n")
            sizes[split] += 1
    return sizes
