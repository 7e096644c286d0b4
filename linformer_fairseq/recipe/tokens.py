"""From raw lines to tokens: punctuation normalised, control characters removed, words and punctuation separated."""

from functools import lru_cache, partial
from pathlib import Path

import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from . import texts
from .pairs import transform
from .settings import SENTENCEPIECE, Text
from .texts import Pair

_NON_PRINTING = regex.compile(r"\p{C}")


def tokenise(raw: Path, to: Path, text: Text, threads: int) -> None:
    """Writes the tokens of the pairs in `raw` to `to`, each line as one line, even if nothing is left of it."""
    langs = (text.source_lang, text.target_lang)
    texts.write_pairs(to, langs, transform(partial(_tokenise_pairs, text), raw, langs, threads))


def _tokenise_pairs(text: Text, pairs: list[Pair]) -> list[Pair]:
    return [
        (tokenise_line(source, text.source_lang, text), tokenise_line(target, text.target_lang, text))
        for source, target in pairs
    ]


def tokenise_line(line: str, lang: str, text: Text) -> str:
    """Returns the tokens of a line as Moses' scripts give them, or the line as it is for sentencepiece.

    The order is that of fairseq's prepare-wmt14en2de.sh: normalize-punctuation, remove-non-printing-char, tokenizer.
    """
    if text.bpe == SENTENCEPIECE:
        return " ".join(line.split())
    normaliser, tokenizer = _moses(lang)
    if text.normalise_punctuation:
        line = _NON_PRINTING.sub(" ", normaliser.normalize(line))
    return tokenizer.tokenize(line, aggressive_dash_splits=text.aggressive_hyphens, return_str=True)


@lru_cache
def _moses(lang: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    return MosesPunctNormalizer(lang), MosesTokenizer(lang)
