"""Texts of documents: a folder of the user's own, or documents of the recipe's own grammar."""

from abc import abstractmethod
from argparse import Namespace, _ArgumentGroup
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.arguments import count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import sha256_of

from ..corpus import make_documents
from ..documents import Document, read_documents
from ..glossary import glossary_documents
from ..texts import SPLITS, Pair, find_text
from .base import Dataset

TRAIN = "train"
SIZES = "documents"
"""The fact that says how many sentences each document of a split has."""
GLOSSARIES = "glossaries"
"""The fact that says how many documents at the end of a split begin with a glossary."""


class Documents(Dataset):
    """A text whose sentences stand in documents; made ones that begin with a glossary follow at the end of each split.

    A subclass has the fields `glossary`, how many of these the training text gets, and `seed`.
    """

    has_documents = True
    cleaned = frozenset()  # a document without one of its sentences would be another one

    glossary: int
    seed: int

    @abstractmethod
    def own_documents(self, split: str, langs: tuple[str, str]) -> list[Document]:
        """Returns the documents of a split, without the made ones at its end."""

    def pairs(
        self, langs: tuple[str, str], archives: Path, work: Path, dropped: Counter[str]
    ) -> Iterator[tuple[str, Pair]]:
        for split in SPLITS:
            for document in (*self.own_documents(split, langs), *self._glossaries(split, langs)):
                yield from ((split, pair) for pair in document)

    def facts(self, langs: tuple[str, str]) -> dict[str, Any]:
        glossaries = {split: self._glossaries(split, langs) for split in SPLITS}
        documents = {split: [*self.own_documents(split, langs), *glossaries[split]] for split in SPLITS}
        return {
            SIZES: {split: [len(document) for document in own] for split, own in documents.items()},
            GLOSSARIES: {split: len(own) for split, own in glossaries.items()},
        }

    def _glossaries(self, split: str, langs: tuple[str, str]) -> list[Document]:
        return glossary_documents(split, self.glossary, self.seed, langs[0])


@dataclass(frozen=True)
class DocumentFolder(Documents):
    """`train`, `valid` and `test` with the language as their ending, plain or gzipped: one sentence a line, an empty
    line between two documents."""

    flag = "--data"

    folder: Path
    training: tuple[str, ...]
    """The files of the training text, without their endings."""
    digests: dict[str, str]
    """The sha256 digest of each file."""
    glossary: int
    seed: int

    @property
    def name(self) -> str:
        return self.folder.name

    @staticmethod
    def add_options(group: _ArgumentGroup) -> None:
        group.add_argument(
            DocumentFolder.flag,
            type=Path,
            metavar="DIR",
            help="train|valid|test.LANG[.gz], a sentence a line and an empty line between two documents; without it "
            "the text is synthetic",
        )
        group.add_argument(
            "--training-files",
            type=lambda text: tuple(text.split(",")),
            default="train",
            metavar="NAME[,NAME]",
            help="files of DIR that make the training text, such as train,train_asv",
        )
        group.add_argument(
            "--glossary",
            type=natural,
            default=0,
            metavar="N",
            help="made documents in the training text that begin with a glossary of made-up names; the validation and "
            "test sets get some, too",
        )

    @classmethod
    def from_arguments(cls, args: Namespace) -> "DocumentFolder":
        folder = args.data.expanduser().resolve()
        if not folder.is_dir():
            raise UserError(f"{cls.flag} {folder} is not a folder.")
        names, langs = (*args.training_files, *SPLITS[1:]), (args.source_lang, args.target_lang)
        if args.glossary and set(langs) != {"en", "de"}:
            raise UserError(f"--glossary makes documents in English and German, not in {langs[0]} and {langs[1]}.")
        for name in names:
            read_documents(folder, name, *langs)  # refuses bad text
        paths = [find_text(folder, name, lang) for name in names for lang in langs]
        digests = {path.name: sha256_of(path) for path in paths}
        return cls(folder, args.training_files, digests, args.glossary, args.seed)

    def settings(self) -> dict[str, Any]:
        made = {"glossary": self.glossary, "seed": self.seed} if self.glossary else {}
        return {"folder": str(self.folder), "training": list(self.training), "sha256": self.digests, **made}

    def own_documents(self, split: str, langs: tuple[str, str]) -> list[Document]:
        files = self.training if split == TRAIN else (split,)
        return [document for name in files for document in read_documents(self.folder, name, *langs)]

    def origin(self, facts: dict[str, Any]) -> str:
        return f"`{self.folder}`"


@dataclass(frozen=True)
class MadeDocuments(Documents):
    """Documents of sentences of a small grammar, English and something like German."""

    name = "The synthetic corpus of documents"
    languages = frozenset({"en", "de"})

    sizes: dict[str, int]
    """Documents of each split."""
    glossary: int
    seed: int

    @staticmethod
    def add_options(group: _ArgumentGroup) -> None:
        group.add_argument("--made-train", type=count, default=200, help="training documents of the synthetic corpus")
        group.add_argument(
            "--made-test",
            type=count,
            default=12,
            help="validation documents of the synthetic corpus; the test set gets as many",
        )

    @classmethod
    def from_arguments(cls, args: Namespace) -> "MadeDocuments":
        sizes = {"train": args.made_train, "valid": args.made_test, "test": args.made_test}
        return cls(sizes, args.glossary, args.seed)

    def settings(self) -> dict[str, Any]:
        return {"made documents": self.sizes, "glossary": self.glossary, "seed": self.seed}

    def own_documents(self, split: str, langs: tuple[str, str]) -> list[Document]:
        made = make_documents({split: self.sizes[split]}, self.seed)[split]
        return made if langs[0] == "en" else [[pair[::-1] for pair in document] for document in made]

    def origin(self, facts: dict[str, Any]) -> str:
        return "made by the recipe's own grammar"
