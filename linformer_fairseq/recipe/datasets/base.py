"""What the recipe asks of a dataset."""

from abc import ABC, abstractmethod
from argparse import Namespace, _ArgumentGroup
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar

from ..texts import Pair


class Dataset(ABC):
    """A parallel text. A subclass is a frozen dataclass, whose fields the user can choose, and stands in `DATASETS`."""

    flag: ClassVar[str] = ""
    """The option that asks for it, None or False unless it is given; empty for the dataset that is taken by default."""
    languages: ClassVar[Set[str]] = frozenset()
    """Codes of the two languages that it is in; empty where it may be in any."""
    has_documents: ClassVar[bool] = False
    """Whether its sentences stand in documents."""
    remedy: ClassVar[str] = ""
    """What the user can do where its text cannot be had; ends the message of every `SourceError`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in messages and headlines."""

    @staticmethod
    @abstractmethod
    def add_options(group: _ArgumentGroup) -> None:
        """Adds `flag`, and what else can be chosen, to the recipe's command line."""

    @classmethod
    @abstractmethod
    def from_arguments(cls, args: Namespace) -> "Dataset":
        """Returns the dataset that a command line asks for, or raises UserError where its text is known to be bad."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Returns the choices that decide the text, for settings.json; the first key identifies the dataset."""

    @abstractmethod
    def pairs(
        self, langs: tuple[str, str], archives: Path, work: Path, dropped: Counter[str]
    ) -> Iterator[tuple[str, Pair]]:
        """Yields every sentence pair with its split, the pairs of a split in order, or raises UserError for bad text.

        Args:
            langs: source and target.
            archives: a folder, made where need be, for what is fetched; it stays when something fails.
            work: an empty folder for everything else, removed afterwards.
            dropped: counts training pairs that cannot be read, by reason.
        """

    @abstractmethod
    def origin(self, facts: dict[str, Any]) -> str:
        """Returns where the text comes from, for the report; `facts` are those of the collected text."""

    def published(self, source_lang: str, target_lang: str) -> list[str]:
        """Returns the section of the report on published results; empty where none are known."""
        return []

    def facts(self, langs: tuple[str, str]) -> dict[str, Any]:
        """Returns the facts that are stored with the collected text and are no part of the settings.

        Args:
            langs: source and target.
        """
        return {}

    @property
    def cleaned(self) -> Set[str]:
        """The splits from which pairs may be left out: those that are cut from the training text."""
        return {"train"}
