"""From tokens to subwords, without the training pairs that are too long or too unequal."""

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from linformer_fairseq.cli.errors import CommandError, UserError
from linformer_fairseq.cli.files import read_json, sha256_of, write_json
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import bar

from . import texts
from .pairs import transform
from .settings import SENTENCEPIECE, Text
from .texts import Pair

FACTS = "subwords.json"
_SENTENCEPIECE_MODEL = "sentencepiece.model"
_CODES = "codes"
_TRAIN_SENTENCEPIECE = (
    "import json, sys, sentencepiece; sentencepiece.SentencePieceTrainer.train(**json.loads(sys.argv[1]))"
)
_PIECES = re.compile(r"Added: .* size=(\d+)")


def segment(tok: Path, to: Path, text: Text, threads: int) -> None:
    """Learns one model on both sides of the training text together, and cuts every split into subwords.

    Training pairs that are empty, too long or too unequal are left out, as Moses' clean-corpus-n would; the
    validation and test sets stay whole.
    """
    langs = (text.source_lang, text.target_lang)
    model = _learn(tok, to, text, threads)
    work = partial(_encode_pairs, text.bpe, str(model), sha256_of(model))
    dropped: Counter[str] = Counter()
    facts: dict[str, Counter[str]] = {split: Counter() for split in texts.SPLITS}

    def kept() -> Iterator[tuple[str, Pair]]:
        for split, pair in transform(work, tok, langs, threads):
            counts = [len(side.split()) for side in pair]
            if split in text.dataset.cleaned and (reason := unfit(*counts, text)):
                dropped[reason] += 1
            else:
                _add(facts[split], counts)
                yield split, pair

    texts.write_pairs(to, langs, kept())
    for split, found in facts.items():
        if not found["pairs"]:
            reasons = " or ".join(dropped)
            raise UserError(f"No pair of {tok / split} is left, as all have {reasons}: change the limits or the text.")
    write_json(to / FACTS, {"dropped": dropped, **facts})


def _add(facts: Counter[str], counts: list[int]) -> None:
    """Adds a pair to the facts of its split, which count end-of-sentence symbols too."""
    facts["pairs"] += 1
    for side, count in zip(("source", "target"), counts, strict=True):
        facts[f"{side}_subwords"] += count + 1
        if count + 1 > facts[f"{side}_max"]:
            facts[f"{side}_max"], facts[f"{side}_max_line"] = count + 1, facts["pairs"]


def total(folder: Path) -> int:
    """Returns the number of subwords, end-of-sentence symbols included, that `segment` wrote to `folder`."""
    facts = read_json(folder / FACTS)
    return sum(facts[split][f"{side}_subwords"] for split in texts.SPLITS for side in ("source", "target"))


def unfit(source: int, target: int, text: Text) -> str | None:
    """Returns why a training pair with so many subwords on its sides is left out; None if it stays."""
    shorter, longer = sorted((source, target))
    if not shorter:
        return "a side without words"
    if text.max_subwords and longer > text.max_subwords:
        return f"more than {text.max_subwords} subwords"
    if text.max_ratio and longer > text.max_ratio * shorter:
        return f"lengths more than {text.max_ratio:g} to 1"
    return None


def _learn(tok: Path, to: Path, text: Text, threads: int) -> Path:
    training = [tok / f"train.{lang}" for lang in (text.source_lang, text.target_lang)]
    if text.bpe == SENTENCEPIECE:
        return learn_sentencepiece(training, to, text.bpe_merges, threads)
    model = to / _CODES
    total = sum(map(texts.count_lines, training))
    with open(model, "w", encoding="utf-8") as codes, bar(total, "counting words", " lines") as progress:

        def lines() -> Iterator[str]:
            for line in chain.from_iterable(map(texts.stream_lines, training)):
                progress.update()
                yield line
            progress.close()  # the learner's own bar follows

        try:
            learn_bpe(lines(), codes, text.bpe_merges)
        except ValueError:  # there is not one pair of letters
            raise UserError(f"No BPE can be learnt, as {training[0]} and {training[1].name} have no words.") from None
    return model


def learn_sentencepiece(training: list[Path], to: Path, size: int, threads: int, flag: str = "--bpe-merges") -> Path:
    """Learns a sentencepiece model of `size` subwords in a process of its own, whose messages tell how far it is, and
    returns its file in the folder `to`.

    Args:
        flag: that said the size, for a refusal.
    """
    model = to / _SENTENCEPIECE_MODEL
    options = {
        "input": [str(path) for path in training],
        "model_prefix": str(model.with_suffix("")),
        "model_type": "bpe",
        "vocab_size": size,
        "character_coverage": 1.0,
        "num_threads": threads,
        "train_extremely_large_corpus": True,
    }
    log = to.with_name("sentencepiece.log")
    with bar(size, "learning", " pieces") as progress:

        def on_line(line: str) -> None:
            if found := _PIECES.search(line):
                progress.update(int(found[1]) - progress.n)

        try:
            run_command(
                [sys.executable, "-c", _TRAIN_SENTENCEPIECE, json.dumps(options)],
                "sentencepiece",
                log,
                threads,
                on_line=on_line,
            )
        except CommandError as error:
            raise CommandError(f"{error} Another {flag} than {size:,} may be what it needs.") from None
    return model


def _encode_pairs(bpe: str, model: str, digest: str, pairs: list[Pair]) -> list[Pair]:
    encode = encoder(bpe, model, digest)
    return [(encode(source), encode(target)) for source, target in pairs]


@lru_cache(maxsize=1)
def encoder(bpe: str, model: str, digest: str) -> Callable[[str], str]:
    """Returns a function that cuts a line into subwords; the digest tells models of the same name apart."""
    if bpe == SENTENCEPIECE:
        pieces = sentencepiece.SentencePieceProcessor(model_file=model)
        return lambda line: " ".join(pieces.encode(line, out_type=str))
    return BPE(io.StringIO(Path(model).read_text(encoding="utf-8"))).process_line
