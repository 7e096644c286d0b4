"""Measures the spectra of a model's attention over the sentences of a data set."""

from itertools import groupby
from operator import attrgetter

import torch
from fairseq import utils
from fairseq.data import FairseqDataset

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.trained import Trained

from .attention_maps import find_attentions, recorded_maps
from .statistics import Statistics

Spectra = dict[str, dict[Bucket, Statistics]]
"""The statistics of every place of attention, in the order of `PLACES`, and of every bucket, by length."""


@torch.no_grad()
def measure(
    trained: Trained, sentences: FairseqDataset, chosen: list[int], lengths: list[Bucket], energy: float, device: str
) -> Spectra:
    """Returns the spectra of all places, in every bucket that has a sentence.

    Sentences go through the model one by one, so that no padding enters a map. The length of a map is that of its
    keys: source tokens in encoder and cross-attention, target tokens in the decoder's self-attention. A masked language
    model reads text with its task's masks.

    Args:
        chosen: indices of the sentences.
        energy: share of a map's energy that its rank has to hold.

    Raises:
        UserError: the model has none of fairseq's attention modules.
    """
    attentions = find_attentions(trained.model)
    if not attentions:
        raise UserError(f"a {type(trained.model).__name__} has no attention that is known here: name a Transformer.")
    model = trained.model.to(device)
    places = {place: list(own) for place, own in groupby(attentions, attrgetter("place"))}
    longest = int(max(map(sentences.num_tokens, chosen)))
    found: Spectra = {place: {} for place in places}
    with recorded_maps(attentions) as maps, bar(len(chosen), "spectrum", "sentence") as progress:
        for index in chosen:
            sample = sentences.collater([sentences[index]])
            sample = utils.move_to_cuda(sample) if device == "cuda" else sample
            model(**sample["net_input"])
            for place, own in places.items():
                of_layers = [maps[attention][:, 0] for attention in own]  # L times (H, T, n)
                heads, _, length = of_layers[0].shape
                bucket = next(bucket for bucket in lengths if length in bucket)
                if bucket not in found[place]:
                    found[place][bucket] = Statistics(len(own), heads, longest, energy)
                found[place][bucket].add(of_layers)
            progress.update()
    return {place: {bucket: own[bucket] for bucket in lengths if bucket in own} for place, own in found.items()}
