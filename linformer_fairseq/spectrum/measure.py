"""The spectra of a model's attention over the sentences of a data set."""

from dataclasses import dataclass

import torch
from fairseq import utils
from torch.utils.data import Dataset

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.trained import Trained

from .attention_maps import PLACES, find_attentions, recorded_maps
from .statistics import Statistics


@dataclass(frozen=True)
class Spectrum:
    """One place of attention, in one bucket of lengths."""

    place: str
    bucket: Bucket
    statistics: Statistics


@torch.no_grad()
def measure(
    trained: Trained, sentences: Dataset, chosen: list[int], lengths: list[Bucket], energy: float, device: str
) -> list[Spectrum]:
    """The spectra of all places, each in every bucket that has a sentence.

    Sentences go through the model one by one, so that no padding enters a map. The length of a map is that of its
    keys: source tokens in encoder and cross-attention, target tokens in the decoder's self-attention.

    Args:
        chosen: which sentences.
        energy: share of a map's energy that its rank has to hold.

    Raises:
        UserError: the model has no attention of fairseq's kind.
    """
    attentions = find_attentions(trained.model)
    if not attentions:
        raise UserError(f"a {type(trained.model).__name__} has no attention that is known here: name a Transformer.")
    model = trained.model.to(device)
    places = {
        place: own for place in PLACES if (own := [attention for attention in attentions if attention.place == place])
    }
    longest = int(max(sentences.sizes[chosen].max(), 1))
    found: dict[tuple[str, Bucket], Statistics] = {}
    with recorded_maps(attentions) as maps, bar(len(chosen), "spectrum", "sentence") as progress:
        for index in chosen:
            sample = sentences.collater([sentences[index]])
            sample = utils.move_to_cuda(sample) if device == "cuda" else sample
            model(**sample["net_input"])
            for place, own in places.items():
                of_layers = torch.stack([maps[attention][:, 0] for attention in own])  # (L, H, T, n)
                length = of_layers.size(-1)
                bucket = next(bucket for bucket in lengths if length in bucket)
                if (place, bucket) not in found:
                    found[place, bucket] = Statistics(*of_layers.shape[:2], longest, energy)
                found[place, bucket].add(of_layers)
            progress.update()
    return [
        Spectrum(place, bucket, found[place, bucket])
        for place in places
        for bucket in lengths
        if (place, bucket) in found
    ]
