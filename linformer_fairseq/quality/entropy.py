"""How widely a trained model spreads its attention: the mean entropy of its maps' rows."""

from pathlib import Path

import torch
from torch import Tensor

from linformer_fairseq.spectrum.attention_maps import PLACES, find_attentions, recorded_maps
from linformer_fairseq.trained import load_split, load_trained

SENTENCES = 200


def row_entropy(maps: Tensor) -> Tensor:
    """The entropy of each row of maps (..., T, n), in nats, (..., T).

    Learned projections may give tokens negative weights: what counts then is the share that each has in the sum of all
    absolute weights.
    """
    shares = maps.abs() / maps.abs().sum(-1, keepdim=True)
    return -torch.xlogy(shares, shares).sum(-1)


@torch.no_grad()
def attention_entropy(checkpoint: Path, data: Path, subset: str) -> dict[str, float]:
    """The mean over layers, heads, queries and the first sentences of a split, for every place of attention."""
    trained = load_trained(checkpoint, data)
    split = load_split(trained, subset)
    attentions = find_attentions(trained.model)
    sums, rows = dict.fromkeys(PLACES, 0.0), dict.fromkeys(PLACES, 0)
    with recorded_maps(attentions) as maps:
        for index in split.indices[:SENTENCES]:
            trained.model(**split.sentences.collater([split.sentences[index]])["net_input"])
            for attention in attentions:
                entropy = row_entropy(maps[attention].double())
                sums[attention.place] += entropy.sum().item()
                rows[attention.place] += entropy.numel()
    return {place: sums[place] / rows[place] for place in PLACES if rows[place]}
