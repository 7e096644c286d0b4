"""Text of the user's own, in a folder."""

from argparse import Namespace, _ArgumentGroup
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import sha256_of

from ..texts import SPLITS, Pair, find_text, read_parallel
from .base import Dataset


@dataclass(frozen=True)
class Folder(Dataset):
    """`train`, `valid` and `test` with the language as their ending, plain or gzipped, one sentence a line."""

    flag = "--data"

    folder: Path
    digests: dict[str, str]
    """The sha256 digest of each file."""

    @property
    def name(self) -> str:
        return self.folder.name

    @staticmethod
    def add_options(group: _ArgumentGroup) -> None:
        group.add_argument(
            Folder.flag, type=Path, metavar="DIR", help="train|valid|test.LANG[.gz]; without it the text is synthetic"
        )

    @classmethod
    def from_arguments(cls, args: Namespace) -> "Folder":
        folder = args.data.expanduser().resolve()
        if not folder.is_dir():
            raise UserError(f"{cls.flag} {folder} is not a folder.")
        paths = [find_text(folder, split, lang) for split in SPLITS for lang in (args.source_lang, args.target_lang)]
        return cls(folder, {path.name: sha256_of(path) for path in paths})

    def settings(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "sha256": self.digests}

    def pairs(
        self, langs: tuple[str, str], archives: Path, work: Path, dropped: Counter[str]
    ) -> Iterator[tuple[str, Pair]]:
        for split in SPLITS:
            sides = read_parallel(self.folder, split, *langs)
            yield from ((split, pair) for pair in zip(*sides, strict=True))

    def origin(self, facts: dict[str, Any]) -> str:
        return f"`{self.folder}`"
