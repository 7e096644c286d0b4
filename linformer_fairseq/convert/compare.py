"""How far the outputs of converted models are from those of the trained one, by the length of the source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor

from linformer_fairseq.cli.progress import bar
from linformer_fairseq.lengths import Bucket
from linformer_fairseq.trained import Split, Trained

BATCH_TOKENS = 4096


@dataclass
class OutputDrift:
    """Sums over the target tokens of the sentences in one bucket; each converted model has a sum of its own."""

    bucket: Bucket
    models: int
    sentences: int = 0
    tokens: int = 0
    loss: float = 0.0
    """Negative log-likelihood under the trained model, in nats."""
    losses: list[float] = field(default_factory=list)
    """The same under the converted models."""
    divergences: list[float] = field(default_factory=list)
    """KL divergence of their predictions from the trained model's, in nats."""
    agreements: list[int] = field(default_factory=list)
    """Tokens whose best prediction is the trained model's."""
    farthest: list[float] = field(default_factory=list)
    """The largest change of a reference token's log-probability, in nats."""

    def __post_init__(self) -> None:
        self.losses, self.divergences = [0.0] * self.models, [0.0] * self.models
        self.agreements, self.farthest = [0] * self.models, [0.0] * self.models

    def add(self, before: Tensor, after: list[Tensor], target: Tensor) -> None:
        """Adds a sentence.

        Args:
            before: log-probabilities of the trained model, (T, V).
            after: those of the converted models, each (T, V).
            target: the reference, (T,).
        """
        place = target[:, None]
        self.sentences += 1
        self.tokens += len(target)
        self.loss -= before.gather(1, place).sum().item()
        for i, own in enumerate(after):
            self.losses[i] -= own.gather(1, place).sum().item()
            self.divergences[i] += (before.exp() * (before - own)).sum().item()
            self.agreements[i] += int((before.argmax(1) == own.argmax(1)).sum())
            self.farthest[i] = max(self.farthest[i], (before - own).gather(1, place).abs().max().item())


@torch.no_grad()
def compare(
    trained: Trained, others: Sequence[BaseFairseqModel], split: Split, lengths: Sequence[Bucket]
) -> list[OutputDrift]:
    """Compares the predictions of all models for each reference token, given the tokens before it.

    Returns:
        The drift in every bucket that has a sentence.
    """
    drifts = [OutputDrift(bucket, len(others)) for bucket in lengths]
    with bar(len(split.indices), "comparing", "sentence") as progress:
        for indices in batches(split):
            sample = split.sentences.collater([split.sentences[index] for index in indices])
            target = sample["target"]
            is_token = target != trained.task.target_dictionary.pad()
            before = log_probabilities(trained.model, sample)
            after = [log_probabilities(model, sample) for model in others]
            source = sample["net_input"]["src_tokens"] != trained.task.source_dictionary.pad()
            for row, length in enumerate(source.sum(1).tolist()):
                drift = next(drift for drift in drifts if length in drift.bucket)
                kept = is_token[row]
                drift.add(before[row][kept], [x[row][kept] for x in after], target[row][kept])
            progress.update(len(indices))
    return [drift for drift in drifts if drift.sentences]


def batches(split: Split) -> Iterator[list[int]]:
    """Yields sentences of similar length together, at most `BATCH_TOKENS` tokens with their padding."""
    batch: list[int] = []
    for index in sorted(split.indices, key=split.sentences.num_tokens):
        if batch and (len(batch) + 1) * split.sentences.num_tokens(index) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def log_probabilities(model: BaseFairseqModel, sample: dict) -> Tensor:
    """Returns the log-probabilities of all words at every position of the target, (B, T, V), in float32."""
    return model.get_normalized_probs(model(**sample["net_input"]), log_probs=True).float()
