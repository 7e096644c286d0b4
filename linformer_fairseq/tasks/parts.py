"""Documents that are too long for a model are cut at sentence borders, and their translations joined again."""

import copy
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

Hypothesis = dict[str, Any]
"""What fairseq's generators return for each hypothesis."""


def sentence_lengths(document: Tensor, separator: int) -> list[int]:
    """Returns the number of subwords of each sentence.

    Args:
        document: (n,), tokens with the end of the document.
        separator: index of the token between two sentences.
    """
    borders = [-1, *document[:-1].eq(separator).nonzero().flatten().tolist(), len(document) - 1]
    return [border - before - 1 for before, border in pairwise(borders)]


def even_parts(lengths: Sequence[int], limit: int) -> list[int]:
    """Returns how many sentences go into each part: as few parts as can be, and of those the longest is shortest.

    A part of S sentences has S tokens more than they: the separators, and an end.

    Args:
        lengths: of the sentences, each below the limit.
        limit: the most tokens of a part.
    """
    fewest = len(filled(lengths, limit))
    enough = range(max(lengths) + 1, limit)
    longest = bisect_left(enough, True, key=lambda size: len(filled(lengths, size)) <= fewest) + enough.start
    return filled(lengths, longest)


def filled(lengths: Sequence[int], limit: int) -> list[int]:
    """Returns how many sentences go into each part where every part takes as many as it can.

    Args:
        lengths: of the sentences, each below the limit.
        limit: the most tokens of a part.
    """
    sizes, room = [0], limit
    for length in lengths:
        if length + 1 > room:
            sizes.append(0)
            room = limit
        sizes[-1] += 1
        room -= length + 1
    return sizes


def halves(lengths: Sequence[int]) -> list[int]:
    """Returns how many sentences go into each of two parts, the longer of which is as short as can be.

    Args:
        lengths: of two sentences or more.
    """
    until = list(accumulate(length + 1 for length in lengths))
    first = min(range(1, len(lengths)), key=lambda size: max(until[size - 1], until[-1] - until[size - 1]))
    return [first, len(lengths) - first]


def cut(document: Tensor, separator: int, sizes: Sequence[int]) -> list[Tensor]:
    """Cuts a document at separators, each of which becomes the end of a part.

    Args:
        document: (n,), tokens with the end of the document.
        sizes: the number of sentences of each part.
    """
    lengths = sentence_lengths(document, separator)
    until = [0, *accumulate(sizes)]
    tokens = [sum(lengths[a:b]) + b - a for a, b in pairwise(until)]
    parts = [part.clone() for part in document.split(tokens)]
    for part in parts:
        part[-1] = document[-1]
    return parts


def join(
    parts: list[tuple[Tensor, Hypothesis]], separator: int, normalize_scores: bool = True, len_penalty: float = 1.0
) -> Hypothesis:
    """Joins the translations of a document's parts to a translation of the document.

    The separator takes the place, and the score, of the end of each part but the last. The score is that of one
    hypothesis with these tokens. There is no attention, which over a whole document could exceed any memory.

    Args:
        parts: each part of the source, and its translation.
        separator: index of the separator in the target dictionary.
        normalize_scores, len_penalty: fairseq's, by which a score is divided by a power of the length.
    """
    sources, hypotheses = zip(*parts, strict=True)
    tokens = torch.cat([hypothesis["tokens"] for hypothesis in hypotheses])
    ends = torch.tensor([len(hypothesis["tokens"]) for hypothesis in hypotheses[:-1]], device=tokens.device).cumsum(0)
    tokens[ends - 1] = separator
    scores = torch.cat([hypothesis["positional_scores"] for hypothesis in hypotheses])
    return {
        "tokens": tokens,
        "score": scores.sum() / (len(tokens) ** len_penalty if normalize_scores else 1),
        "attention": torch.empty(0),
        "alignment": _join_alignments([len(s) for s in sources], hypotheses),
        "positional_scores": scores,
    }


def _join_alignments(lengths: Sequence[int], hypotheses: Sequence[Hypothesis]) -> Tensor | list[Any]:
    """Joins alignments: none, pairs of positions, or the probabilities of all source tokens for each target token."""
    if any(isinstance(hypothesis["alignment"], Tensor) for hypothesis in hypotheses):
        return torch.empty(0)
    joined: list[Any] = []
    source = target = 0
    for length, hypothesis in zip(lengths, hypotheses, strict=True):
        for row in hypothesis["alignment"]:
            if isinstance(row, tuple):
                joined.append((row[0] + source, row[1] + target))
            else:
                nothing = f"{0:.6f}"
                joined.append([*[nothing] * source, *row, *[nothing] * (sum(lengths) - source - length)])
        source += length
        target += len(hypothesis["tokens"])
    return joined


def counted_in_parts(dataset: LanguagePairDataset, sizes: np.ndarray, most_target: float) -> LanguagePairDataset:
    """Returns documents that count as much as their longest part, for fairseq's filter and for `--max-tokens`.

    The parts of a document are translated one after the other, at the same time only as parts of other documents. Of a
    reference that share counts which the longest part is of its source, and no more than `most_target`, as nothing is
    cut where it is longer.

    Args:
        sizes: (documents,), tokens of the longest part of each source.
        most_target: tokens.
    """
    counted = copy.copy(dataset)
    counted.src_sizes = sizes
    if dataset.tgt_sizes is not None:
        counted.tgt_sizes = (-(-dataset.tgt_sizes * sizes // dataset.src_sizes)).clip(max=most_target)
    counted.ordered_indices = dataset.ordered_indices  # a batch has documents of about as many parts
    return counted
