"""Beam search that translates a document sentence by sentence: as many sentences as its source has."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from linformer_fairseq.models.swap import NO_WEIGHTS


@dataclass(frozen=True)
class SentenceLimits:
    """What `--min-len`, `--max-len-a` and `--max-len-b` say of each sentence of a document, in subwords.

    Raises:
        ValueError: limits that no sentence can keep.
    """

    min_len: int = 1
    max_len_a: float = 0.0
    max_len_b: int = 200

    def __post_init__(self) -> None:
        if self.max_len_a == 0 and self.max_len_b < self.min_len:
            raise ValueError(
                f"--min-len {self.min_len} is above --max-len-b {self.max_len_b}, both of which hold for each "
                "sentence: give a smaller --min-len or a larger --max-len-b"
            )

    def shortest(self, sources: Tensor) -> Tensor:
        """The fewest subwords of a translation; an empty sentence may stay empty.

        Args:
            sources: the numbers of subwords of source sentences, of any shape.
        """
        return sources.clamp(0, 1) * self.min_len

    def longest(self, sources: Tensor) -> Tensor:
        """The most subwords of a translation: a n + b for n of the source, but `--min-len` and one at least."""
        return (self.max_len_a * sources.double() + self.max_len_b).long().clamp(min=max(self.min_len, 1))

    def document(self, sources: Tensor) -> Tensor:
        """The most tokens of documents, separators included and the end of the document not.

        Args:
            sources: (B, S) as `pad_lengths` returns them.

        Returns:
            (B,)
        """
        real = sources >= 0
        return (self.longest(sources) * real).sum(1) + real.sum(1) - 1


def leave_attention_out(generator: SequenceGenerator) -> None:
    """Lets a generator compute and keep no attention weights, which nothing reads where no alignments are asked for.

    For documents they are beams x source tokens x target tokens, all of which fairseq copies at every step.
    """
    forward = generator.model.forward_decoder

    def without_weights(tokens: Tensor, encoder_outs: Any, states: list[dict[str, Any]], *options: Any) -> Any:
        for state in states:
            state[NO_WEIGHTS] = {}  # models of this package leave them out, of others they are dropped
        return forward(tokens, encoder_outs, states, *options)[0], None

    generator.model.forward_decoder = without_weights


def pad_lengths(documents: list[list[int]]) -> Tensor:
    """Returns the lengths of the sentences of some documents, (B, S), with -1 where a document has no more."""
    most = max(map(len, documents))
    return torch.tensor([[*lengths, *[-1] * (most - len(lengths))] for lengths in documents])


class SentenceCountSearch(BeamSearch):
    """Beam search whose hypotheses have as many sentences as their source document.

    The document does not end before a hypothesis has the separators of its source, and there is no separator after
    those; G-Transformer (Bao et al. 2021, https://arxiv.org/abs/2105.14761) decodes documents so. Within these bounds
    `--min-len` and `--max-len-a`, `--max-len-b` hold for each sentence: a shorter one is not ended, one that has
    reached its limit is ended by force. Only the end of the generator's own limit of length comes before that.

    fairseq's generator hands over the lengths of the source sentences, (B, S) as `pad_lengths` returns them, as its
    `constraints`.

    Args:
        separator: index of the separator in the target dictionary.
        limits: of each sentence.
    """

    def __init__(self, tgt_dict: Dictionary, separator: int, limits: SentenceLimits) -> None:
        super().__init__(tgt_dict)
        self.supports_constraints = True
        self.stop_on_max_len = True  # hypotheses of -inf are no reason to go on
        self.separator = separator
        self.limits = limits

    def init_constraints(self, batch_constraints: Tensor | None, beam_size: int) -> None:
        if batch_constraints is None:
            raise ValueError("the search needs the sentences of the source: translate with the task's inference_step")
        self.sources = batch_constraints

    def prune_sentences(self, batch_idxs: Tensor) -> None:
        self.sources = self.sources[batch_idxs]

    def step(
        self, step: int, lprobs: Tensor, scores: Tensor | None, prev_output_tokens: Tensor, *rest: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Masks separator and end where they are not allowed, and everything else where a sentence must end.

        Args:
            lprobs: (B, beam, words).
            prev_output_tokens: (B * beam, step + 1), with the first token of all hypotheses.
        """
        lprobs = self._masked(lprobs, prev_output_tokens.view(*lprobs.shape[:2], -1))
        scores, indices, beams = super().step(step, lprobs, scores, prev_output_tokens, *rest)
        # where fewer candidates are left than the beam holds, it takes impossible ones; the models refuse padding in
        # the middle of a target, so that these hold an ordinary word
        return scores, indices.masked_fill(scores.eq(-math.inf), self.unk), beams

    def _masked(self, lprobs: Tensor, tokens: Tensor) -> Tensor:
        """Returns the scores (B, beam, words) of what may follow hypotheses (B, beam, step + 1)."""
        borders = (self.sources >= 0).sum(1, keepdim=True) - 1  # (B, 1)
        separators = tokens.eq(self.separator)
        count = separators.sum(-1)  # (B, beam)
        positions = torch.arange(tokens.size(-1), device=tokens.device)
        length = positions[-1] - (positions * separators).amax(-1)
        source = self.sources.gather(1, count.minimum(borders))
        last = count >= borders
        may_end = length >= self.limits.shortest(source)
        # another rule, such as --no-repeat-ngram-size, may forbid the very end that is due; then the sentence goes on
        due = torch.where(last, lprobs[..., self.eos], lprobs[..., self.separator]).ne(-math.inf)
        must_end = (length >= self.limits.longest(source)) & due
        masked = lprobs.masked_fill(must_end.unsqueeze(-1), -math.inf)
        for word, allowed in ((self.separator, may_end & ~last), (self.eos, may_end & last)):
            masked[..., word] = lprobs[..., word].masked_fill(~allowed, -math.inf)
        # at the generator's limit of length nothing but the end of the document is left, and must be let through
        nothing = masked.amax(-1).eq(-math.inf)
        masked[..., self.eos] = torch.where(nothing, lprobs[..., self.eos], masked[..., self.eos])
        return masked
