"""Compares the outputs of converted models with those of the trained one, by the length of the source."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from fairseq.data import data_utils
from fairseq.models import BaseFairseqModel
from torch import Tensor

from linformer_fairseq.cli.progress import bar
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.trained import Split, Trained

BATCH_TOKENS = 4096


@dataclass
class OutputDrift:
    """Sums over the target tokens of the sentences in one bucket, for one converted model."""

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

    def add(self, before: Tensor, after: Tensor, target: Tensor) -> None:
        """Adds a sentence: log-probabilities of the two models, (T, V), and the reference, (T,)."""
        reference_before, reference = (x.gather(1, target[:, None]) for x in (before, after))
        self.sentences += 1
        self.tokens += len(target)
        self.loss_before -= reference_before.sum().item()
        self.loss -= reference.sum().item()
        self.divergence += (before.exp() * (before - after)).sum().item()
        self.agreements += int((before.argmax(1) == after.argmax(1)).sum())
        self.farthest = max(self.farthest, (reference_before - reference).abs().max().item())


@torch.no_grad()
def compare(
    trained: Trained, others: Sequence[BaseFairseqModel], split: Split, lengths: Sequence[Bucket]
) -> list[list[OutputDrift]]:
    """Returns, for each of the other models, its drift in every bucket that has a sentence.

    The models predict each reference token, given the tokens before it.
    """
    drifts = [[OutputDrift(bucket) for bucket in lengths] for _ in others]
    order = sorted(split.indices, key=split.sentences.num_tokens)
    most = max(BATCH_TOKENS, split.sentences.num_tokens(order[-1]))
    with bar(len(order), "comparing", "sentence") as progress:
        for indices in data_utils.batch_by_size(order, split.sentences.num_tokens, max_tokens=most):
            sample = split.sentences.collater([split.sentences[index] for index in indices])
            target = sample["target"]
            is_token = target != trained.task.target_dictionary.pad()
            source = sample["net_input"]["src_tokens"] != trained.task.source_dictionary.pad()
            before = _log_probabilities(trained.model, sample)
            for model, own in zip(others, drifts, strict=True):
                after = _log_probabilities(model, sample)
                for row, length in enumerate(source.sum(1).tolist()):
                    drift, kept = next(drift for drift in own if length in drift.bucket), is_token[row]
                    drift.add(before[row][kept], after[row][kept], target[row][kept])
            progress.update(len(indices))
    return [[drift for drift in own if drift.sentences] for own in drifts]


def _log_probabilities(model: BaseFairseqModel, sample: dict) -> Tensor:
    """Returns the log-probabilities of all words at every position of the target, (B, T, V), in float32."""
    return model.get_normalized_probs(model(**sample["net_input"]), log_probs=True).float()
