"""Texts of documents: a folder of the user's own, or documents made on the spot by a small grammar."""

from abc import ABC, abstractmethod
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import sha256_of
from linformer_fairseq.recipe.texts import SPLITS, find_text

from .corpus import make_documents
from .glossary import glossary_documents
from .reading import Document, read_documents

TRAIN = "train"
MADE_LANGUAGES = {"en", "de"}


class Documents(ABC):
    """A text whose sentences stand in documents; made ones that begin with a glossary follow at the end of each split.

    A subclass has the fields `glossary`, how many of these the training text gets, and `seed`.
    """

    glossary: int
    seed: int

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in messages and headlines."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Returns the choices that decide the text; the first key identifies the kind of text."""

    @abstractmethod
    def own_documents(self, split: str, langs: tuple[str, str]) -> list[Document]:
        """Returns the documents of a split, without the made ones at its end."""

    def glossaries(self, split: str, langs: tuple[str, str]) -> list[Document]:
        """Returns the made documents at the end of a split."""
        return glossary_documents(split, self.glossary, self.seed, langs[0])


@dataclass(frozen=True)
class DocumentFolder(Documents):
    """`train`, `valid` and `test` with the language as their ending, plain or gzipped: one sentence a line, an empty
    line between two documents."""

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

    def settings(self) -> dict[str, Any]:
        made = {"glossary": self.glossary, "seed": self.seed} if self.glossary else {}
        return {"folder": str(self.folder), "training": list(self.training), "sha256": self.digests, **made}

    def own_documents(self, split: str, langs: tuple[str, str]) -> list[Document]:
        files = self.training if split == TRAIN else (split,)
        return [document for name in files for document in read_documents(self.folder, name, *langs)]


@dataclass(frozen=True)
class MadeDocuments(Documents):
    """Documents of sentences of a small grammar, English and something like German."""

    name = "The synthetic corpus of documents"

    sizes: dict[str, int]
    """Documents of each split."""
    glossary: int
    seed: int

    def settings(self) -> dict[str, Any]:
        return {"made documents": self.sizes, "glossary": self.glossary, "seed": self.seed}

    def own_documents(self, split: str, langs: tuple[str, str]) -> list[Document]:
        made = make_documents({split: self.sizes[split]}, self.seed)[split]
        return made if langs[0] == "en" else [[pair[::-1] for pair in document] for document in made]


def dataset_of(args: Namespace, seed: int) -> Documents:
    """Returns the text that a command line asks for.

    Args:
        seed: of what is made.

    Raises:
        UserError: it cannot be had in these languages, or the folder's text is bad.
    """
    langs = (args.source_lang, args.target_lang)
    if args.data is None:
        if set(langs) != MADE_LANGUAGES:
            raise UserError(
                f"{MadeDocuments.name} is in {' and '.join(sorted(MADE_LANGUAGES))} only: name your own text with "
                "--data."
            )
        sizes = {"train": args.made_train, "valid": args.made_test, "test": args.made_test}
        return MadeDocuments(sizes, args.glossary, seed)
    folder = args.data.expanduser().resolve()
    if not folder.is_dir():
        raise UserError(f"--data {folder} is not a folder.")
    if args.glossary and set(langs) != MADE_LANGUAGES:
        raise UserError(f"--glossary makes documents in English and German, not in {langs[0]} and {langs[1]}.")
    names = (*args.training_files, *SPLITS[1:])
    for name in names:
        read_documents(folder, name, *langs)  # refuses bad text
    paths = [find_text(folder, name, lang) for name in names for lang in langs]
    return DocumentFolder(
        folder, args.training_files, {path.name: sha256_of(path) for path in paths}, args.glossary, seed
    )
