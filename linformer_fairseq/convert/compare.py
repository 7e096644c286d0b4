"""Compares the outputs of converted models with those of the trained one, by length of the source and by position."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor

from linformer_fairseq.cli.progress import bar
from linformer_fairseq.length_buckets import Bucket

PORTION = 512
"""Tokens whose predictions over all words are in memory at a time."""


@dataclass
class OutputDrift:
    """Sums over the target tokens in one bucket, for one converted model."""

    bucket: Bucket
    sentences: int = 0
    tokens: int = 0
    loss_before: float = 0.0
    """Negative log-likelihood under the trained model, in nats."""
    loss: float = 0.0
    """The same under the converted model."""
    divergence: float = 0.0
    """KL divergence of the new predictions from the old, in nats."""
    agreements: int = 0
    """Tokens whose best prediction is the trained model's."""
    farthest: float = 0.0
    """The largest change of a reference token's log-probability, in nats."""

    def perplexities(self) -> tuple[float, float]:
        """Returns the perplexity under the trained model and under the converted one."""
        return math.exp(self.loss_before / self.tokens), math.exp(self.loss / self.tokens)

    def add(self, moves: Tensor) -> None:
        """Adds tokens of a sentence, as `moves_of` gives them."""
        if len(moves):
            loss_before, loss, divergence, agreements = moves.sum(0).tolist()
            self.sentences += 1
            self.tokens += len(moves)
            self.loss_before += loss_before
            self.loss += loss
            self.divergence += divergence
            self.agreements += round(agreements)
            self.farthest = max(self.farthest, (moves[:, 0] - moves[:, 1]).abs().max().item())


@dataclass(frozen=True)
class Comparison:
    """How far the outputs of converted models have moved, for each model in every bucket that has a token."""

    sources: list[list[OutputDrift]]
    """By the length of the source, or of the text of a masked language model; for a language model without buckets."""
    positions: list[list[OutputDrift]]
    """By the position in the target, or in the text of a language model; for a masked one without buckets."""


@dataclass(frozen=True)
class Sample:
    """A batch of texts."""

    net_input: dict[str, Any]
    """What the models are called with."""
    target: Tensor
    """The tokens that they should predict, (B, T)."""
    is_token: Tensor
    """Whether they count, (B, T)."""
    source_lengths: list[int] | None
    """Tokens of each source; None where sources do not count."""
    counts_positions: bool = True


def moves_of(before: Tensor, after: Tensor, target: Tensor) -> Tensor:
    """Returns four columns with a row for each token: its loss before and after, the divergence of the new predictions
    from the old, and whether the best one is the same.

    Args:
        before, after: the log-probabilities of all words, (n, V).
        target: the words that should be predicted, (n,).
    """
    losses = [-x.gather(-1, target[:, None])[:, 0] for x in (before, after)]
    divergence = (before.exp() * (before - after)).sum(-1)
    same = before.argmax(-1) == after.argmax(-1)
    return torch.stack([*losses, divergence, same.to(divergence)], -1).double()


@torch.no_grad()
def compare(
    trained: BaseFairseqModel,
    others: Sequence[BaseFairseqModel],
    samples: Iterable[Sample],
    number: int,
    sources: Sequence[Bucket],
    positions: Sequence[Bucket],
) -> Comparison:
    """Returns how far each of the other models is from the trained one.

    The models predict each reference token, given the tokens before it, or the text around it where they have no
    decoder.

    Args:
        number: the texts in all samples.
        sources: the ranges of lengths of sources.
        positions: the ranges of positions, from 1 on.
    """
    by_source = [[OutputDrift(bucket) for bucket in sources] for _ in others]
    by_position = [[OutputDrift(bucket) for bucket in positions] for _ in others]
    with bar(number, "comparing", "text") as progress:
        for sample in samples:
            before = _features(trained, sample)
            for model, of_sources, of_positions in zip(others, by_source, by_position, strict=True):
                moves = _moves(trained, before, model, _features(model, sample), sample)
                for row, is_token in enumerate(sample.is_token):
                    if sample.source_lengths is not None:
                        length = sample.source_lengths[row]
                        next(drift for drift in of_sources if length in drift.bucket).add(moves[row, is_token])
                    for drift in of_positions if sample.counts_positions else ():
                        part = slice(drift.bucket.shortest - 1, drift.bucket.longest)
                        drift.add(moves[row, part][is_token[part]])
            progress.update(len(sample.target))
    return Comparison(
        *([[drift for drift in own if drift.tokens] for own in drifts] for drifts in (by_source, by_position))
    )


def _features(model: BaseFairseqModel, sample: Sample) -> Tensor:
    """Returns what a model's output layer is given, (B, T, C)."""
    return model(**sample.net_input, features_only=True)[0]


def _moves(trained: BaseFairseqModel, before: Tensor, model: BaseFairseqModel, after: Tensor, sample: Sample) -> Tensor:
    """Returns the moves of all tokens, (B, T, 4)."""
    portions = zip(*(x.flatten(0, 1).split(PORTION) for x in (before, after, sample.target)), strict=True)
    moves = [moves_of(_log_probabilities(trained, b), _log_probabilities(model, a), t) for b, a, t in portions]
    return torch.cat(moves).unflatten(0, sample.target.shape)


def _log_probabilities(model: BaseFairseqModel, features: Tensor) -> Tensor:
    """Returns the log-probabilities of all words, (n, V), in float32, for features (n, C)."""
    last = model.decoder if hasattr(model, "decoder") else model.encoder
    return model.get_normalized_probs((last.output_layer(features[None]), None), log_probs=True)[0].float()
