"""From labelled texts to fairseq's binary data, with the subwords and the numbers of the pretraining."""

from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.recipe import subwords, texts
from linformer_fairseq.recipe.prepare import binarise
from linformer_fairseq.recipe.steps import build_folder
from linformer_fairseq.recipe.study_settings import change, store
from linformer_fairseq.trained import CLASSIFIED

from .pretrained import Pretrained
from .sets import DEV, SPLITS, TEST, TRAIN, TextSet

SETS = "sets"
"""The folder that has one for each set."""
RUNS = "runs/*/seed-*"
"""Where a set has the folders of its models."""
PIECES, BIN = "pieces", "bin"
PREPARED_FOLDERS = (BIN, PIECES)
"""Each is made of those after it."""
SUBSETS = {TRAIN: "train", DEV: "valid", TEST: "test"}
"""What fairseq calls the splits."""
INPUT, LABELS = CLASSIFIED, "label"
"""What fairseq's task calls the folders of texts and of their classes."""
FACTS = "sizes.json"
ADDED = 2
"""The symbols before and after a text."""
_DIGEST = " sha256"


def prepare(own: TextSet, pretrained: Pretrained, truncate: bool, folder: Path, threads: int, lock: int) -> None:
    """Makes the folders `pieces` and `bin` in that of a set: its texts as subwords, and as binary data.

    Args:
        truncate: whether to cut longer texts than the models take.
        lock: a file descriptor that commands keep open.

    Raises:
        UserError: models in the folder were trained on other texts or labels, or a text cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    decisive = {"labels": own.labels, **{f"{split}{_DIGEST}": own.digest(split) for split in SPLITS}}
    store(folder, decisive, PREPARED_FOLDERS, _change, RUNS)
    build_folder(
        folder / PIECES, f"Cutting {own.name} into subwords", lambda to: _segment(own, pretrained, truncate, to)
    )
    build_folder(folder / BIN, f"Binarising {own.name}", lambda to: _binarise(folder, pretrained, to, threads, lock))


def _change(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns how a set has changed, and what to do about it."""
    if name.endswith(_DIGEST):
        return f"another {name.removesuffix(_DIGEST)}.tsv: all models need the same texts, so put the former one back"
    return change(name, before, now)


def set_facts(folder: Path) -> dict[str, Any]:
    """Returns, of each split of the set in a folder, the number of texts, their mean and greatest length in tokens with
    the symbols around them, and how many were cut."""
    return dict(read_json(folder / PIECES / FACTS))


def _segment(own: TextSet, pretrained: Pretrained, truncate: bool, to: Path) -> None:
    encode = subwords.encoder(pretrained.pieces)
    facts = {}
    for name in (INPUT, LABELS):
        (to / name).mkdir()
    for split, subset in SUBSETS.items():
        pieces = [encode(example.text).split() for example in own.splits[split]]
        lengths = [len(text) + ADDED for text in pieces]
        _check(own, split, lengths, pretrained.length, truncate)
        kept = pretrained.length - ADDED
        texts.write_lines(to / INPUT / subset, (" ".join(text[:kept]) for text in pieces))
        texts.write_lines(to / LABELS / subset, map(str, own.classes(split)))
        facts[split] = {
            "texts": len(lengths),
            "mean": sum(lengths) / len(lengths),
            "longest": max(lengths),
            "cut": sum(length > pretrained.length for length in lengths),
        }
    texts.write_lines(to / LABELS / "dict.txt", (f"{number} 1" for number in range(len(own.labels))))
    write_json(to / FACTS, facts)


def _check(own: TextSet, split: str, lengths: list[int], longest: int, truncate: bool) -> None:
    """Refuses a split with a text that is nothing, or too much, for the models."""
    for number, length in enumerate(lengths, 2):
        if length == ADDED:
            raise UserError(
                f"Line {number:,} of {own.paths[split]} has a text without any letter: fill it in, or remove it."
            )
        if length > longest and not truncate:
            raise UserError(
                f"Line {number:,} of {own.paths[split]} has {length:,} tokens, but the models take {longest:,}: leave "
                "out --no-truncate, or choose a greater --length."
            )


def _binarise(folder: Path, pretrained: Pretrained, to: Path, threads: int, lock: int) -> None:
    facts = read_json(folder / PIECES / FACTS)
    tokens = int(sum(own["texts"] * min(own["mean"], pretrained.length) for own in facts.values()))
    labels = folder / PIECES / LABELS / "dict.txt"
    for name, dictionary, total in (
        (INPUT, pretrained.dictionary, tokens),
        (LABELS, labels, 2 * sum(own["texts"] for own in facts.values())),
    ):
        prefixes = {subset: [folder / PIECES / name / subset] for subset in SUBSETS.values()}
        (to / name).mkdir()
        binarise(prefixes, (), to / name, folder / "preprocess.log", total, threads, lock, dictionary)
