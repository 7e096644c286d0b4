"""The analysis as Markdown and as JSON."""

from typing import Any

import torch
from torch import Tensor

from linformer_fairseq.benchmark.report import table
from linformer_fairseq.cli.machine import describe_machine

from .arguments import Arguments
from .measure import Spectrum
from .plots import SPREAD, TITLES
from .statistics import rank_quantile

COVERED = 0.9
"""Share of a layer's maps that the suggested k is enough for."""
FLAGS = {"encoder": "--linformer-k", "cross": "--linformer-cross-k", "decoder": "--linformer-decoder-k"}


def suggested_k(found: list[Spectrum]) -> list[int]:
    """For every layer the smallest k that is enough for `COVERED` of its maps, all lengths and heads together."""
    counts = torch.stack([spectrum.statistics.rank_counts() for spectrum in found]).sum(0)  # (L, H, R + 1)
    return [rank_quantile(layer, COVERED) for layer in counts]


def report_text(arguments: Arguments, places: dict[str, list[Spectrum]], picture: str) -> str:
    """All of it; `picture` is the file with the plots."""
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
        "map's squared norm. Means over heads and sentences, and beside them those of the head with the lowest and of "
        "the one with the highest. A map has as many singular values as it has tokens at most.",
    ]
    for place, found in places.items():
        parts += [f"### {TITLES[place].capitalize()}", _ranks(found)]
    parts += [
        "## Suggested k",
        f"For each layer the smallest rank that holds {share} of the energy of {COVERED:.0%} of its maps, heads and "
        "lengths together. With fewer slots alone (`--linformer-projection linear`) something is lost whatever they "
        "hold; with as many it depends on the slots, most of all in cross-attention, whose maps are alignments. Two "
        "levels, the default, open slots and need fewer.",
        "    " + suggested_flags(places),
    ]
    return "\n\n".join(parts) + "\n"


def suggested_flags(places: dict[str, list[Spectrum]]) -> str:
    """Flags that set the suggested k of every layer, of a translation model or of a language model."""
    if set(places) == {"decoder"}:
        return f"--linformer-k {','.join(map(str, suggested_k(places['decoder'])))}"
    own = (f"{FLAGS[place]} {','.join(map(str, suggested_k(found)))}" for place, found in places.items())
    return f"--linformer-attention {','.join(places)} {' '.join(own)}"


def results(arguments: Arguments, places: dict[str, list[Spectrum]]) -> dict[str, Any]:
    """What was found, as numbers."""
    return {
        "command": arguments.command,
        "machine": describe_machine(),
        "energy": arguments.energy,
        "spectra": [
            {
                "place": place,
                "shortest": spectrum.bucket.shortest,
                "longest": spectrum.bucket.longest,
                "sentences": spectrum.statistics.sentences,
                "mean_length": spectrum.statistics.tokens / spectrum.statistics.sentences,
                "mean_rank": spectrum.statistics.mean_rank().tolist(),
                "cumulative": _rounded(spectrum.statistics.curve()),
            }
            for place, found in places.items()
            for spectrum in found
        ],
        "suggested_k": {place: suggested_k(found) for place, found in places.items()},
    }


def _ranks(found: list[Spectrum]) -> str:
    layers = len(found[0].statistics.mean_rank())
    rows = []
    for spectrum in found:
        statistics = spectrum.statistics
        length = f"{statistics.tokens / statistics.sentences:.1f}"
        rows.append([str(spectrum.bucket), f"{statistics.sentences:,}", length, *map(_cell, statistics.mean_rank())])
    return table(["Length", "Sentences", "Mean length", *(f"Layer {i + 1}" for i in range(layers))], rows)


def _cell(ranks: Tensor) -> str:
    return f"{ranks.mean():.1f} ({ranks.min():.1f} ... {ranks.max():.1f})"


def _rounded(curve: Tensor) -> list[Any]:
    return (curve * 1e4).round().div(1e4).tolist()
