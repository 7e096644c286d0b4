"""How widely a trained model spreads its attention: the mean entropy of its maps' rows."""

from collections.abc import Iterable
from pathlib import Path

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor

from linformer_fairseq.spectrum.attention_maps import find_attentions, recorded_maps
from linformer_fairseq.trained import load_split, load_trained

SENTENCES = 200


def row_entropy(maps: Tensor) -> Tensor:
    """Returns the entropy of each row of maps (..., T, n), in nats: (..., T).

    Learned projections may give tokens negative weights; then it is the entropy of the shares that tokens have in the
    sum of absolute weights.
    """
    shares = maps.abs() / maps.abs().sum(-1, keepdim=True)
    return -torch.xlogy(shares, shares).sum(-1)


def attention_entropy(checkpoint: Path, data: Path, subset: str) -> dict[str, float]:
    """Returns the `mean_entropy` of a trained model over the first `SENTENCES` sentences of a split."""
    trained = load_trained(checkpoint, data)
    split = load_split(trained, subset)
    samples = (split.sentences.collater([split.sentences[index]]) for index in split.indices[:SENTENCES])
    return mean_entropy(trained.model, samples)


@torch.no_grad()
def mean_entropy(model: BaseFairseqModel, samples: Iterable[dict]) -> dict[str, float]:
    """Returns the mean over layers, heads, queries and samples, of one sentence each, at every place of attention."""
    attentions = find_attentions(model)
    entropies: dict[str, list[Tensor]] = {}
    with recorded_maps(attentions) as maps:
        for sample in samples:
            model(**sample["net_input"])
            for attention in attentions:
                own = row_entropy(maps[attention].double()).flatten()
                entropies.setdefault(attention.place, []).append(own)
    return {place: torch.cat(own).mean().item() for place, own in entropies.items()}
