"""From plain text to fairseq's binary data: documents, split by file, and their subwords."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, sha256_of, write_json
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.recipe import subwords, texts
from linformer_fairseq.recipe.prepare import binarise
from linformer_fairseq.recipe.steps import build_folder

RAW, PIECES, BIN = "text", "pieces", "bin"
PREPARED_FOLDERS = (BIN, PIECES, RAW)
"""Each is made of those after it."""
SPLITS = ("train", "valid")
MODEL = "sentencepiece.model"
FACTS = "sizes.json"
_ENDINGS = (".txt", ".txt.gz")


def find_files(data: Path, valid: Sequence[str]) -> dict[str, list[Path]]:
    """Returns the text files of a folder by split.

    Args:
        valid: names of the files to validate on, without ending; empty for the last one.

    Raises:
        UserError: no such folder or file, or nothing is left to train on.
    """
    if not data.is_dir():
        raise UserError(f"--data {data} is not a folder: name one of plain text, *.txt or *.txt.gz.")
    files: dict[str, Path] = {}
    for path in sorted(data.iterdir()):
        ending = next((ending for ending in _ENDINGS if path.name.endswith(ending)), None)
        if ending and files.setdefault(path.name.removesuffix(ending), path) is not path:
            raise UserError(f"{data} has {path.name} both plain and gzipped: keep one of them.")
    if len(files) < 2:
        raise UserError(
            f"{data} has {len(files)} text files, but one to validate on and others to train on are needed."
        )
    for name in valid:
        if name not in files:
            raise UserError(f"--valid {name} is not a file in {data}: choose from {', '.join(files)}.")
    chosen = set(valid) or {list(files)[-1]}
    if len(chosen) == len(files):
        raise UserError("--valid names all files: leave some to train on.")
    return {split: [path for name, path in files.items() if (name in chosen) == (split == "valid")] for split in SPLITS}


def digests(files: dict[str, list[Path]]) -> dict[str, dict[str, str]]:
    """Returns the digest of every file by split and name."""
    return {split: {path.name: sha256_of(path) for path in own} for split, own in files.items()}


def prepare(files: dict[str, list[Path]], vocabulary: int, out: Path, threads: int, lock: int) -> None:
    """Makes the folders `text`, `pieces` and `bin` of `out`: the text as it came, as subwords and as binary data.

    Args:
        vocabulary: subwords to learn on the training text.
        lock: a file descriptor that commands keep open.
    """
    build_folder(out / RAW, "Collecting the text", lambda to: _collect(files, to))
    build_folder(
        out / PIECES,
        f"Learning and applying {vocabulary:,} subwords",
        lambda to: _segment(out / RAW, to, vocabulary, threads),
    )
    prefixes = {split: [out / PIECES / split] for split in SPLITS}
    total = sum(facts["tokens"] for facts in read_json(out / PIECES / FACTS).values())
    build_folder(
        out / BIN,
        "Binarising",
        lambda to: binarise(prefixes, (), to, out / "preprocess.log", total, threads, lock),
    )


def corpus_facts(out: Path) -> dict[str, Any]:
    """Returns files, paragraphs and tokens of each split."""
    raw, pieces = read_json(out / RAW / FACTS), read_json(out / PIECES / FACTS)
    return {split: {**raw[split], **pieces[split]} for split in SPLITS}


def documents(paths: Sequence[Path]) -> Iterator[list[str]]:
    """Yields the paragraphs of every document, one or more empty lines standing between two."""
    for path in paths:
        document: list[str] = []
        for line in [*texts.read_lines(path), ""]:
            if line.strip():
                document.append(line.strip())
            elif document:
                yield document
                document = []


def _collect(files: dict[str, list[Path]], to: Path) -> None:
    facts = {}
    for split, paths in files.items():
        found = list(documents(paths))
        if not found:
            raise UserError(f"{', '.join(path.name for path in paths)} holds no text: give the {split} split some.")
        lines = [line for number, document in enumerate(found) for line in [*([""] if number else []), *document]]
        texts.write_lines(to / split, lines)
        facts[split] = {
            "files": [path.name for path in paths],
            "documents": len(found),
            "paragraphs": sum(map(len, found)),
        }
    write_json(to / FACTS, facts)


def _segment(raw: Path, to: Path, vocabulary: int, threads: int) -> None:
    model = subwords.learn_sentencepiece([raw / "train"], to, vocabulary, threads, "--vocabulary")
    encode = subwords.encoder(model)
    facts = {}
    for split in SPLITS:
        tokens, lines = 0, []
        with bar(texts.count_lines(raw / split), f"cutting {split}", " lines") as progress:
            for line in texts.stream_lines(raw / split):
                lines.append(encode(line))
                tokens += len(lines[-1].split()) + 1
                progress.update()
        texts.write_lines(to / split, lines)
        facts[split] = {"tokens": tokens}
    write_json(to / FACTS, facts)
