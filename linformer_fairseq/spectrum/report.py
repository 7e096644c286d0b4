"""Reports the analysis as Markdown and as JSON."""

from typing import Any

import torch
from torch import Tensor

from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.tables import table
from linformer_fairseq.length_buckets import Bucket

from .arguments import Arguments
from .measure import Spectra
from .plots import SPREAD, TITLES
from .statistics import Statistics, rank_quantile

COVERED = 0.9
"""Share of a layer's maps for which the suggested k is large enough."""
FLAGS = {"encoder": "--linformer-k", "cross": "--linformer-cross-k", "decoder": "--linformer-decoder-k"}


def suggested_k(found: dict[Bucket, Statistics]) -> list[int]:
    """Returns, for every layer, the smallest k that suffices for `COVERED` of its maps, of all lengths and heads."""
    counts = torch.stack([statistics.rank_counts for statistics in found.values()]).sum(0)  # (L, H, R + 1)
    return [rank_quantile(layer, COVERED) for layer in counts]


def suggested_flags(places: Spectra) -> str:
    """Returns the flags that set the suggested k of every layer, for a translation model or a language model, masked
    or not."""
    ks = {place: ",".join(map(str, suggested_k(found))) for place, found in places.items()}
    if len(ks) == 1 and "cross" not in ks:  # the only attention of a language model
        return f"--linformer-k {''.join(ks.values())}"
    return " ".join(["--linformer-attention", ",".join(ks), *(f"{FLAGS[place]} {k}" for place, k in ks.items())])


def report_text(arguments: Arguments, places: Spectra, picture: str) -> str:
    """Returns the whole report in Markdown; `picture` is the file with the plots."""
    share = f"{arguments.energy:.0%}"
    parts = [
        "# Singular values of attention maps",
        f"`{arguments.checkpoint}` on `{arguments.subset}` of `{arguments.data}`. {describe_machine()}.",
        f"    {arguments.command}",
        f"![Cumulative singular values]({picture})",
        "*Left: the mean over layers, heads and sentences of the cumulative singular values, normalised (Wang et al., "
        f"2020, Figure 1); the band leaves out {SPREAD[0]:.0%} of the maps below and above. Right: for the longest "
        f"sentences, the share that the {arguments.rank} largest have in each layer and head.*",
        f"## The rank that holds {share} of the energy",
        f"The smallest r for which the best matrix of rank r misses no more than {1 - arguments.energy:.0%} of the "
        "map's squared norm: the mean over heads and sentences, and in brackets the lowest and the highest mean of a "
        "head. A map has at most as many singular values as tokens.",
    ]
    for place, found in places.items():
        parts += [f"### {TITLES[place].capitalize()}", _ranks(found)]
    parts += [
        "## Suggested k",
        f"For each layer the smallest rank that holds {share} of the energy of {COVERED:.0%} of its maps, of all heads "
        "and lengths. With fewer slots, Linformer loses some of it whatever E and F are; with as many it depends on E "
        "and F, most of all in cross-attention, whose maps are alignments. Two levels open slots and need fewer.",
        "    " + suggested_flags(places),
    ]
    return "\n\n".join(parts) + "\n"


def results(arguments: Arguments, places: Spectra) -> dict[str, Any]:
    """Returns the content of results.json."""
    return {
        "command": arguments.command,
        "machine": describe_machine(),
        "energy": arguments.energy,
        "spectra": [
            {
                "place": place,
                "shortest": bucket.shortest,
                "longest": bucket.longest,
                "sentences": statistics.sentences,
                "mean_length": statistics.mean_length(),
                "mean_rank": statistics.mean_rank().tolist(),
                "cumulative": statistics.curve().round(decimals=4).tolist(),
            }
            for place, found in places.items()
            for bucket, statistics in found.items()
        ],
        "suggested_k": {place: suggested_k(found) for place, found in places.items()},
    }


def _ranks(found: dict[Bucket, Statistics]) -> str:
    layers = len(next(iter(found.values())).mean_rank())
    rows = [
        [str(bucket), f"{own.sentences:,}", f"{own.mean_length():.1f}", *map(_cell, own.mean_rank())]
        for bucket, own in found.items()
    ]
    return table(["Length", "Sentences", "Mean length", *(f"Layer {i + 1}" for i in range(layers))], rows)


def _cell(ranks: Tensor) -> str:
    return f"{ranks.mean():.1f} ({ranks.min():.1f} ... {ranks.max():.1f})"
