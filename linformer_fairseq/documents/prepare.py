"""From raw documents to fairseq's binary data: sentences, examples to train on, and whole documents to translate."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.progress import bar, say
from linformer_fairseq.recipe import subwords, texts
from linformer_fairseq.recipe.prepare import binarise
from linformer_fairseq.recipe.steps import build_folder
from linformer_fairseq.recipe.texts import Pair

from . import sets
from .examples import SentenceTooLongError, cut, examples, joined, refusal
from .reading import Document, grouped
from .sets import GLOSSARIES, SIZES, TESTED
from .trainings import Text

SHORT, EXAMPLES = "sentences", "examples"
"""Folders of text, and of binary data, beside that of the documents to translate: the short examples that a start is
trained on, with single sentences to validate on and to translate; and the examples that documents are trained on."""
PREPARED_FOLDERS = ("bin", TESTED, EXAMPLES, SHORT, "text")
"""Each is made of those after it."""
FACTS, SUBWORDS = "sizes.json", "subwords.json"
"""What is known of the text as it came, and of its subwords."""
LONGEST_LINE = 10_000  # characters; no sentence that a model of some thousand subwords can use
WHAT = {SHORT: "short examples", EXAMPLES: "examples of documents", TESTED: "documents to translate"}
"""What each folder holds, for the user."""


def prepare(
    text: Text,
    start_resolutions: Sequence[int],
    resolutions: Sequence[int],
    lengths: Sequence[int],
    out: Path,
    threads: int,
    lock: int,
) -> None:
    """Makes `text` with raw text and subwords in `out`, and in `bin` a folder of binary data for each of the three.

    Args:
        start_resolutions: sentences of the examples that the start is trained on.
        resolutions: sentences of those that documents are trained on, besides whole documents.
        lengths: tokens at which documents are cut to be translated; those of the long set have the last at most.
        lock: a file descriptor that commands keep open.
    """
    langs = (text.source_lang, text.target_lang)
    own = out / "text"
    build_folder(own / "raw", "Collecting the text", lambda to: _collect(text, to))
    build_folder(
        own / "bpe",
        f"Learning and applying {text.bpe_merges:,} subwords",
        lambda to: _segment(own / "raw", to, text, threads),
    )
    for folder, sizes, splits in (
        (SHORT, tuple(start_resolutions), ("train",)),
        (EXAMPLES, (*resolutions, None), ("train", "valid")),
    ):
        build_folder(out / folder, f"Making {WHAT[folder]}", partial(_write_examples, text, sizes, splits, out))
    build_folder(out / TESTED, f"Making {WHAT[TESTED]}", lambda to: _write_sets(text, lengths, out, to))
    (out / "bin").mkdir(exist_ok=True)
    dictionary = out / "bin" / EXAMPLES / f"dict.{langs[0]}.txt"
    folders = {
        EXAMPLES: {split: [out / EXAMPLES / split] for split in ("train", "valid")},
        SHORT: {
            "train": [out / SHORT / "train"],
            **{split: [out / "text" / "bpe" / split] for split in ("valid", "test")},
        },
        TESTED: {"test": [out / TESTED / name for name in read_json(out / TESTED / sets.FILE_NAME)]},
    }
    for name, prefixes in folders.items():
        words = dictionary if name != EXAMPLES else None
        total = sum(_subwords(prefix, langs) for own in prefixes.values() for prefix in own)
        log = out / "bin" / f"{name}.log"
        make = partial(binarise, prefixes, langs, log=log, total=total, threads=threads, lock=lock, dictionary=words)
        build_folder(out / "bin" / name, f"Binarising {WHAT[name]}", make)


def source_tokens_per_target_token(out: Path) -> float:
    """Returns how many subwords the prepared training text in `out` has in the source for each one in the target."""
    train = read_json(out / "text" / "bpe" / SUBWORDS)["train"]
    return train["source_subwords"] / train["target_subwords"]


def corpus_facts(out: Path) -> dict[str, Any]:
    """Returns the sizes and the source lengths of the prepared text in `out`, for the report."""
    facts, train = read_json(out / "text" / "raw" / FACTS), read_json(out / "text" / "bpe" / SUBWORDS)["train"]
    return {
        **{split: facts[split] for split in texts.SPLITS},
        GLOSSARIES: facts[GLOSSARIES],
        "source_mean": round(train["source_subwords"] / facts["train"], 1),
        "source_max": train["source_max"],
    }


def _collect(text: Text, to: Path) -> None:
    """Writes the text as it came, with the sizes of its documents.

    Raises:
        UserError: a line is too long to be a sentence.
    """
    langs, own = (text.source_lang, text.target_lang), text.dataset
    made = {split: own.glossaries(split, langs) for split in texts.SPLITS}
    documents = {split: [*own.own_documents(split, langs), *made[split]] for split in texts.SPLITS}
    for split in texts.SPLITS:
        for number, pair in enumerate(chain.from_iterable(documents[split]), 1):
            if (longest := max(map(len, pair))) > LONGEST_LINE:
                raise UserError(
                    f"Pair {number:,} of the {split} set has a line of {longest:,} characters: a sentence of more than "
                    f"{LONGEST_LINE:,} cannot be translated, so split it up."
                )
    pairs = ((split, pair) for split, own in documents.items() for pair in chain.from_iterable(own))
    sizes = texts.write_pairs(to, langs, pairs)
    for split in texts.SPLITS:
        say(f"  {split}: {sizes[split]:,} sentence pairs")
    facts = {
        SIZES: {split: [len(document) for document in own] for split, own in documents.items()},
        GLOSSARIES: {split: len(own) for split, own in made.items()},
    }
    write_json(to / FACTS, {**sizes, **facts})


def _segment(raw: Path, to: Path, text: Text, threads: int) -> None:
    """Learns one model on both sides of the training text together, and cuts every split into subwords."""
    langs = (text.source_lang, text.target_lang)
    model = subwords.learn_sentencepiece(
        [raw / f"train.{lang}" for lang in langs], to, text.bpe_merges, threads, "--bpe-merges"
    )
    encode = subwords.encoder(model)
    facts: dict[str, dict[str, int]] = {}
    for split in texts.SPLITS:
        own = facts[split] = {}
        for side, lang in zip(("source", "target"), langs, strict=True):
            lines, path = [], raw / f"{split}.{lang}"
            with bar(texts.count_lines(path), f"cutting {path.name}", " lines") as progress:
                for line in texts.stream_lines(path):
                    lines.append(encode(" ".join(line.split())))
                    progress.update()
            texts.write_lines(to / path.name, lines)
            lengths = [len(line.split()) + 1 for line in lines]  # with the symbol at the end
            own |= {f"{side}_subwords": sum(lengths), f"{side}_max": max(lengths)}
    write_json(to / SUBWORDS, facts)


def _subwords(prefix: Path, langs: tuple[str, str]) -> int:
    """Returns the number of subwords of a text on both sides, with the ends of its lines."""
    paths = [prefix.with_name(f"{prefix.name}.{lang}") for lang in langs]
    return sum(len(line.split()) + 1 for path in paths for line in texts.stream_lines(path))


def _write_examples(text: Text, resolutions: Sequence[int | None], splits: Sequence[str], out: Path, to: Path) -> None:
    """Writes training examples and, of the split "valid", documents, cut where they are too long."""
    langs, longest = (text.source_lang, text.target_lang), text.max_subwords
    counts: Counter[str] = Counter()

    def pairs() -> Iterator[tuple[str, Pair]]:
        for split in splits:
            documents, glossaries = _documents(out, split, langs)
            for number, document in enumerate((*documents, *glossaries), 1):
                try:
                    if number > len(documents):  # only its first part has the glossary
                        own = islice(cut(document, longest, resolutions[-1]), 1)
                    elif split == "train":
                        own = examples(document, resolutions, longest)
                    else:
                        own = cut(document, longest)
                    for pair in own:
                        counts[split] += 1
                        yield split, pair
                except SentenceTooLongError as error:
                    raise refusal(split, number, error, longest) from None

    texts.write_pairs(to, langs, pairs())
    say("  " + ", ".join(f"{count:,} for {split}" for split, count in counts.items()))


def _documents(out: Path, split: str, langs: tuple[str, str]) -> tuple[list[Document], list[Document]]:
    """Returns the documents of a split as subwords, and apart from them the made ones with a glossary.

    Raises:
        UserError: a sentence has no subwords.
    """
    facts = read_json(out / "text" / "raw" / FACTS)
    sides = (texts.read_lines(out / "text" / "bpe" / f"{split}.{lang}") for lang in langs)
    documents = list(grouped(list(zip(*sides, strict=True)), facts[SIZES][split]))
    for number, document in enumerate(documents, 1):
        for place, pair in enumerate(document, 1):
            if not all(map(str.split, pair)):
                raise UserError(
                    f"Sentence {place:,} of document {number:,} of the {split} set has no character that subwords are "
                    "made of: leave it out, or write it otherwise."
                )
    own = len(documents) - facts[GLOSSARIES][split]
    return documents[:own], documents[own:]


def _write_sets(text: Text, cuts: Sequence[int], out: Path, to: Path) -> None:
    """Writes the documents of every set, one a line, and which sentences they have."""
    langs, bpe = (text.source_lang, text.target_lang), out / "text" / "bpe"
    lengths = {
        split: list(zip(*(sets.subwords(bpe, split, lang) for lang in langs), strict=True)) for split in texts.SPLITS
    }
    shortest = min(cuts[0], text.max_subwords)
    for split in ("valid", "test"):
        for number, document in enumerate(chain(*_documents(out, split, langs)), 1):
            for place, (source, _) in enumerate(document, 1):
                length = len(source.split()) + 1
                if length > shortest:
                    raise UserError(
                        f"Sentence {place:,} of document {number:,} of the {split} set has {length:,} subwords, its "
                        f"end included, more than the {shortest:,} at which documents are cut: split it up, or raise "
                        "--lengths or --max-subwords."
                    )
    spans = sets.spans_of(read_json(out / "text" / "raw" / FACTS), lengths, cuts[-1], text.max_subwords)
    for name, (split, own) in spans.items():
        sides = (texts.read_lines(bpe / f"{split}.{lang}") for lang in langs)
        pairs = list(zip(*sides, strict=True))
        documents = [joined(pairs[start:end]) for start, end in own]
        for lang, lines in zip(langs, zip(*documents, strict=True), strict=True):
            texts.write_lines(to / f"{name}.{lang}", lines)
    write_json(to / sets.FILE_NAME, spans)
