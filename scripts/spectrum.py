#!/usr/bin/env python
"""Finds the singular values of a trained model's attention maps, and what they suggest for --linformer-k.

    scripts/spectrum.py checkpoint_best.pt DATA --out results/spectrum

Any fairseq Transformer will do, RoBERTa and language models included. The rank of a map is the smallest r for which the
best matrix of rank r keeps the share --energy of the map's squared norm (Eckart and Young, 1936). The k of a layer is
the rank that nine in ten of its maps do not exceed: with fewer slots Linformer loses more, whatever E and F are.
"""

from matplotlib import colormaps  # isort: skip  before fairseq, whose logging lets matplotlib's debugging through
from matplotlib.figure import Figure  # isort: skip
from linformer_fairseq.trained import load_split, load_trained  # isort: skip  before fairseq, to silence a message there

import csv
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.models import BaseFairseqModel
from fairseq.modules import MultiheadAttention
from torch import Tensor
from tqdm import tqdm

from linformer_fairseq.cli.arguments import Parser, count, natural, number
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.cli.tables import table

FLAGS = {"encoder": "--linformer-k", "cross": "--linformer-cross-k", "decoder": "--linformer-decoder-k"}
LARGEST = [2**i for i in range(10)]  # the numbers of singular values whose share of all is told
FIELDS = ["place", "layer", "head", "length", "maps", "tokens", "rank", "k", *(f"share_{r}" for r in LARGEST)]
Layer = tuple[str, int]  # place, and number from 1 on
k_of = partial(np.quantile, q=0.9, method="inverted_cdf")  # what nine in ten ranks do not exceed


def record(model: BaseFairseqModel) -> dict[Layer, tuple[Any, Any]]:
    """Has a model keep what each attention gave in its last pass, weights by head too, and was given; returns where."""
    last, wanted = dict[Layer, Any](), {"need_weights": True, "need_head_weights": True}
    for name, module in model.named_modules():
        if isinstance(module, MultiheadAttention) and (side := name.partition(".")[0]) in FLAGS:
            place = "cross" if module.encoder_decoder_attention else side
            layer = place, sum(own == place for own, _ in last) + 1
            last[layer] = None
            keep = partial(lambda layer, _, args, given, out: last.update({layer: (out, given)}), layer)
            module.register_forward_hook(keep, with_kwargs=True)
            module.register_forward_pre_hook(lambda _, args, given: (args, {**given, **wanted}), with_kwargs=True)
            module.skip_embed_dim_check = True  # or fairseq has torch compute it, which gives the mean over heads alone
    return last


def maps_of(last: dict[Layer, tuple[Any, Any]]) -> Iterator[tuple[Layer, Tensor]]:
    """Yields the maps of all heads, (H, T, n), layer by layer and sentence by sentence, without padding."""
    padding = {layer: given.get("key_padding_mask") for layer, (_, given) in last.items()}
    for layer, ((_, weights), _) in last.items():
        queries, keys = padding["decoder", layer[1]] if layer[0] == "cross" else padding[layer], padding[layer]
        for sentence, own in enumerate(weights.transpose(0, 1)):
            own = own if queries is None else own[:, ~queries[sentence]]
            yield layer, own if keys is None else own[:, :, ~keys[sentence]]


def spectrum(maps: Tensor, energy: float) -> Tensor:
    """Returns tokens, rank and shares of the `LARGEST` singular values, (H, 2 + 10), of a sentence's maps (H, T, n)."""
    values = torch.linalg.svdvals(maps.double()).cpu()
    energies, sums = values.square().cumsum(1), values.cumsum(1)
    rank = (energies < (energy - 1e-9) * energies[:, -1:]).sum(1, keepdim=True) + 1
    shares = sums[:, [min(largest, values.size(1)) - 1 for largest in LARGEST]] / sums[:, -1:]
    return torch.cat([torch.full_like(rank, maps.size(2)), rank, shares], 1)


@torch.no_grad()
def measure(args: Namespace) -> dict[Layer, np.ndarray]:
    """Returns the spectra of every layer, (sentences, H, 2 + 10)."""
    trained = load_trained(args.checkpoint, args.data)
    split, last = load_split(trained, args.subset), record(trained.model)
    if not last:
        raise UserError(f"a {type(trained.model).__name__} has no attention that is known here: name a Transformer.")
    found: dict[Layer, list[Tensor]] = {layer: [] for place in FLAGS for layer in last if layer[0] == place}
    for index in tqdm(split.sample(args.sentences or len(split.indices), seed=1), unit="sentence", disable=None):
        trained.model(**split.sentences.collater([split.sentences[index]])["net_input"])
        for layer, maps in maps_of(last):
            found[layer].append(spectrum(maps, args.energy))
    return {layer: torch.stack(own).numpy() for layer, own in found.items()}


def by_length(own: np.ndarray, ends: Sequence[int]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the ranges of lengths that sentences of a layer are in, and their spectra."""
    for low, high in pairwise([0, *sorted(set(ends)), np.inf]):
        if (inside := (low < own[:, 0, 0]) & (own[:, 0, 0] <= high)).any():
            yield f"{low + 1}-{high}".removesuffix("inf"), own[inside]


def suggestion(found: dict[Layer, np.ndarray]) -> str:
    """Returns the flags that give every layer its k."""
    ks: dict[str, list[str]] = {}
    for (place, _), own in found.items():
        ks.setdefault(place, []).append(f"{k_of(own[:, :, 1]):.0f}")
    if len(ks) == 1:  # the only attention of a language model, masked or not
        return f"--linformer-k {','.join(*ks.values())}"
    return " ".join(["--linformer-attention", ",".join(ks), *(f"{FLAGS[place]} {','.join(ks[place])}" for place in ks)])


def plot(path: Path, found: dict[Layer, np.ndarray], ends: Sequence[int]) -> None:
    """Draws the cumulative singular values of the longest sentences, and the rank by length, layer by layer."""
    places = dict.fromkeys(place for place, _ in found)
    figure = Figure(figsize=(10, 3 * len(places)), layout="constrained")
    for place, (left, right) in zip(places, figure.subplots(len(places), 2, squeeze=False), strict=True):
        layers = {layer: own for (where, layer), own in found.items() if where == place}
        for layer, own in layers.items():
            means = np.array([spectra.mean((0, 1)) for _, spectra in by_length(own, ends)])
            style = {"color": colormaps["viridis"]((layer - 1) / len(layers)), "marker": "."}
            left.plot(LARGEST, means[-1, 2:], **style)
            right.plot(means[:, 0], means[:, 1], label=f"layer {layer}", **style)
        left.set(title=f"{place}, longest", xlabel="rank", ylabel="cumulative singular values", ylim=(0, 1.02))
        left.set_xscale("log", base=2)
        left.xaxis.set_major_formatter("{x:g}")
        right.set(title=place, xlabel="tokens", ylabel="rank", ylim=(0, None))
        right.legend(fontsize="small")
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150, format="png")


def main(argv: Sequence[str]) -> None:
    """Measures a model, and writes figures and plot."""
    add = (parser := Parser(description=__doc__)).add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint that fairseq-train saved")
    add("data", type=Path, metavar="DATA", help="folder that fairseq-preprocess wrote")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for spectrum.csv and .png")
    add("--subset", default="valid", help="split to take sentences from")
    add("--sentences", type=natural, default=1000, help="number of sentences, drawn at random; 0: all")
    add("--lengths", nargs="+", type=count, default=[16, 32, 64, 128], help="ends of ranges of lengths, in tokens")
    add("--energy", type=number(float, 0.001, 0.999, "a number from 0.001 to 0.999"), default=0.9, help="share kept")
    args = parser.parse_args(argv)
    if args.out.is_file():
        raise UserError(f"--out {args.out} is a file: name a folder.")
    found, rows = measure(args), list[list[Any]]()
    for layer, own in found.items():
        for title, spectra in by_length(own, args.lengths):
            heads = {"all": spectra.reshape(-1, own.shape[2])} | {h + 1: spectra[:, h] for h in range(own.shape[1])}
            for head, maps in heads.items():
                tokens, rank, *shares = maps.mean(0).round(4).tolist()
                rows.append([*layer, head, title, len(maps), tokens, rank, int(k_of(maps[:, 1])), *shares])
    args.out.mkdir(parents=True, exist_ok=True)
    with replacing(args.out / "spectrum.csv") as path, open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([FIELDS, *rows])
    plot(args.out / "spectrum.png", found, args.lengths)
    header, *lines = [[str(row[i]) for i in (0, 1, 3, 4, 6, 7)] for row in [FIELDS, *rows] if row[2] in ("head", "all")]
    print(table(header, lines))
    print(f"It suggests {suggestion(found)}")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:]), "no result has been written."))
