"""A document's text: what fairseq does to a line is done to each of its sentences."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from fairseq.data import Dictionary, data_utils
from torch import Tensor


def split_sentences(document: str, separator: str) -> list[str]:
    """Returns the sentences of a document, which the word `separator` divides, without the spaces around them."""
    return [text.strip() for text in re.split(rf"(?<!\S){re.escape(separator)}(?!\S)", document)]


def join_sentences(sentences: list[str], separator: str) -> str:
    """Returns the document of these sentences."""
    return separator.join(f" {text} " if text else " " for text in sentences).strip()


def each_sentence(function: Callable[[str], str], document: str, separator: str) -> str:
    """Applies a function to each sentence of a document, and leaves the separators whole."""
    return join_sentences([function(text) for text in split_sentences(document, separator)], separator)


class SentenceEncoder:
    """A tokeniser or a subword encoder of fairseq's that sees one sentence of a document at a time.

    Args:
        encoder: what fairseq builds for `--tokenizer` or `--bpe`.
        separator: the word between two sentences.
    """

    def __init__(self, encoder: Any, separator: str) -> None:
        self.encoder = encoder
        self.separator = separator

    def encode(self, document: str) -> str:
        return each_sentence(self.encoder.encode, document, self.separator)

    def decode(self, document: str) -> str:
        return each_sentence(self.encoder.decode, document, self.separator)


class ScoredText(SentenceEncoder):
    """A detokeniser whose documents are to be scored: without separators, which a metric would count as words."""

    def decode(self, document: str) -> str:
        return " ".join(filter(None, map(self.encoder.decode, split_sentences(document, self.separator))))


class DocumentDictionary(Dictionary):
    """fairseq's dictionary; where it joins subwords into words (`--post-process`), it does so in each sentence.

    fairseq would glue the separator to its neighbours, as it deletes all spaces between SentencePiece's subwords.
    """

    separator: str | None = None
    """The word between two sentences; None is fairseq's dictionary."""

    def string(self, tensor: Tensor, bpe_symbol: str | None = None, *arguments: Any, **options: Any) -> str:
        if self.separator is None or bpe_symbol is None:
            return super().string(tensor, bpe_symbol, *arguments, **options)
        join_subwords = partial(data_utils.post_process, symbol=bpe_symbol)
        lines = super().string(tensor, None, *arguments, **options).split("\n")
        return "\n".join(each_sentence(join_subwords, line, self.separator) for line in lines)
