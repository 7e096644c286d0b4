"""The synthetic corpus, made on the spot."""

from argparse import Namespace, _ArgumentGroup
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.arguments import count

from ..corpus import make_corpus
from ..texts import SPLITS, Pair
from .base import Dataset


@dataclass(frozen=True)
class Synthetic(Dataset):
    """Sentences of a small grammar, English and something like German."""

    name = "The synthetic corpus"
    languages = frozenset({"en", "de"})

    sizes: dict[str, int]
    """Sentence pairs of each split."""
    seed: int

    @staticmethod
    def add_options(group: _ArgumentGroup) -> None:
        group.add_argument("--made-train", type=count, default=14000, help="training pairs of the synthetic corpus")
        group.add_argument(
            "--made-test",
            type=count,
            default=500,
            help="validation pairs of the synthetic corpus; the test set gets as many",
        )

    @classmethod
    def from_arguments(cls, args: Namespace) -> "Synthetic":
        return cls({"train": args.made_train, "valid": args.made_test, "test": args.made_test}, args.seed)

    def settings(self) -> dict[str, Any]:
        return {"made": self.sizes, "seed": self.seed}

    def pairs(
        self, langs: tuple[str, str], archives: Path, work: Path, dropped: Counter[str]
    ) -> Iterator[tuple[str, Pair]]:
        corpus = make_corpus(self.sizes, self.seed)
        for split in SPLITS:
            yield from ((split, pair if langs[0] == "en" else pair[::-1]) for pair in corpus[split])

    def origin(self, facts: dict[str, Any]) -> str:
        return "made by the recipe's own grammar"
