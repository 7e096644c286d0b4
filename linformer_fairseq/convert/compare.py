"""How far a conversion moved a model's outputs, by the length of the source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor

from linformer_fairseq.cli.progress import bar
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.trained import Split, Trained

BATCH_TOKENS = 4096


@dataclass
class Moved:
    """Sums over the target tokens of the sentences in one bucket; the converted models have a sum each."""

    bucket: Bucket
    models: int
    sentences: int = 0
    tokens: int = 0
    loss: float = 0.0
    """Of the model as it was, in nats."""
    losses: list[float] = field(default_factory=list)
    """Of the converted ones."""
    divergences: list[float] = field(default_factory=list)
    """KL divergence of their predictions from the model's, in nats."""
    agreements: list[int] = field(default_factory=list)
    """Tokens whose best prediction is still the same."""
    farthest: list[float] = field(default_factory=list)
    """The largest change of a log-probability of a reference token, in nats."""

    def __post_init__(self) -> None:
        self.losses, self.divergences = [0.0] * self.models, [0.0] * self.models
        self.agreements, self.farthest = [0] * self.models, [0.0] * self.models


@torch.no_grad()
def compare(
    trained: Trained, others: Sequence[BaseFairseqModel], split: Split, lengths: Sequence[Bucket]
) -> list[Moved]:
    """What the models say of every reference token, given the ones before it, beside what the trained one says.

    Returns:
        The buckets that have a sentence.
    """
    moved = [Moved(bucket, len(others)) for bucket in lengths]
    with bar(len(split.indices), "comparing", "sentence") as progress:
        for indices in batches(split):
            sample = split.sentences.collater([split.sentences[index] for index in indices])
            target = sample["target"]
            is_token = target != trained.task.target_dictionary.pad()
            before = log_probabilities(trained.model, sample)
            after = [log_probabilities(model, sample) for model in others]
            source = sample["net_input"]["src_tokens"] != trained.task.source_dictionary.pad()
            for row, length in enumerate(source.sum(1).tolist()):
                own = next(m for m in moved if length in m.bucket)
                kept = is_token[row]
                _add(own, before[row][kept], [x[row][kept] for x in after], target[row][kept])
            progress.update(len(indices))
    return [own for own in moved if own.sentences]


def batches(split: Split) -> Iterator[list[int]]:
    """Sentences of about one length together, at most so many tokens."""
    batch: list[int] = []
    for index in sorted(split.indices, key=split.sentences.num_tokens):
        if batch and (len(batch) + 1) * split.sentences.num_tokens(index) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def log_probabilities(model: BaseFairseqModel, sample: dict) -> Tensor:
    """Of all words at every place of the target, (B, T, V), in float32."""
    return model.get_normalized_probs(model(**sample["net_input"]), log_probs=True).float()


def _add(own: Moved, before: Tensor, after: list[Tensor], target: Tensor) -> None:
    """Takes in a sentence: log-probabilities (T, V) and its tokens (T,)."""
    place = target[:, None]
    own.sentences += 1
    own.tokens += len(target)
    own.loss -= before.gather(1, place).sum().item()
    for i, moved in enumerate(after):
        own.losses[i] -= moved.gather(1, place).sum().item()
        own.divergences[i] += (before.exp() * (before - moved)).sum().item()
        own.agreements[i] += int((before.argmax(1) == moved.argmax(1)).sum())
        own.farthest[i] = max(own.farthest[i], (before - moved).gather(1, place).abs().max().item())
