#!/usr/bin/env python
"""Measures what other attention in place of full attention costs a trained model, with no training after the change.

    scripts/places.py checkpoint_best.pt DATA --csv places.csv \\
        "--linformer-encoder-projection key-clusters --linformer-k 256" \\
        "--linformer-cross-projection two-level --linformer-k 128"

Each setting has flags of the attention, as fairseq-train takes them, between quotation marks; places whose kind it
does not name keep full attention. Any of fairseq's models that predicts words will do: translation, language models,
RoBERTa. Told are the perplexity of the texts under teacher forcing, and how many rows of keys a query gets, those of
means and padding that are hidden from it included.
"""

from linformer_fairseq.trained import load_split, load_trained  # isort: skip  before fairseq, to silence a message there

import csv
import math
import shlex
import sys
from argparse import SUPPRESS, Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import BaseFairseqModel
from torch.overrides import TorchFunctionMode

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.cli.arguments import Parser, count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import check_output, replacing
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.cli.progress import bar
from linformer_fairseq.cli.tables import table
from linformer_fairseq.convert.building import build_model
from linformer_fairseq.convert.checkpoint import convert_state, new_attention, with_settings
from linformer_fairseq.convert.compare import PAD, Sample, split_samples
from linformer_fairseq.models.config import PLACES, add_flags
from linformer_fairseq.modules import BaseAttention
from linformer_fairseq.trained import Split

FIELDS = ["setting", "texts", "tokens", *(f"rows, {place}" for place in PLACES), "perplexity", "change, %"]


class Rows(TorchFunctionMode):
    """Counts the queries of a model's attention in fused kernels, and the rows of keys that each gets, by place."""

    def __init__(self, model: BaseFairseqModel) -> None:
        super().__init__()
        self.place: str = ""
        self.queries, self.read = Counter[str](), Counter[str]()
        for module in model.modules():
            if isinstance(module, BaseAttention):
                module.register_forward_pre_hook(self.enter)

    def enter(self, module: BaseAttention, _: Any) -> None:
        """Notes the place of the attention that is computed next."""
        self.place = module.place

    def mean(self, place: str) -> float | None:
        """The rows that a query of a place gets, as far as they are counted."""
        return round(self.read[place] / self.queries[place], 1) if self.queries[place] else None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, keys = args[0], args[1].size(-2)
            queries = query.shape[:-1].numel()
            self.queries[self.place] += queries
            self.read[self.place] += queries * (keys + 1) // 2 if kwargs.get("is_causal") else queries * keys
        return func(*args, **kwargs)


@torch.no_grad()
def loss(model: BaseFairseqModel, samples: Sequence[Sample], name: str) -> tuple[float, list[float | None]]:
    """The mean negative log-likelihood of the tokens of samples, and the rows that a query gets in each of PLACES,
    None where no fused kernel computes the attention, or there is none of this package's."""
    total, tokens, rows = 0.0, 0, Rows(model)
    with bar(len(samples), name, "batch") as progress:
        for inputs, target, _ in samples:
            with rows:
                output = model(**inputs)[0]
            places = target != PAD
            found = model.get_normalized_probs((output[places][None], None), log_probs=True)[0]
            total -= found.double().gather(1, target[places][:, None]).sum().item()
            tokens += int(places.sum())
            progress.update()
    return total / tokens, [rows.mean(place) for place in PLACES]


def samples_of(split: Split, shortest: int, longest: int, texts: int) -> list[Sample]:
    """The texts of a split with so many tokens, in batches.

    Raises:
        UserError: there are none.
    """
    sentences = split.sentences
    within = [index for index in split.indices if shortest <= sentences.num_tokens(index) <= longest]
    if not within:
        raise UserError(f"no text has {shortest} to {longest} tokens: give other --shortest and --longest.")
    return list(split_samples(Split(sentences, within[: texts or None])))


def measure(args: Namespace) -> list[list[Any]]:
    """Returns a row of FIELDS for the trained model, and for each setting."""
    trained = load_trained(args.checkpoint, args.data)
    state = with_settings(read_checkpoint(args.checkpoint), args.checkpoint)
    samples = samples_of(load_split(trained, args.subset), args.shortest, args.longest, args.texts)
    texts, tokens = sum(len(x[1]) for x in samples), sum(int((x[1] != PAD).sum()) for x in samples)
    configs = {setting: new_attention(state, flags, trained.model)[1] for setting, flags in args.settings.items()}
    before, rows = loss(trained.model, samples, "as trained")
    found = [["as trained", texts, tokens, *rows, math.exp(before), 0.0]]
    for setting, config in configs.items():
        model = build_model(convert_state(state, config), trained.task)
        after, rows = loss(model, samples, setting)
        found.append([setting, texts, tokens, *rows, math.exp(after), 100 * math.expm1(after - before)])
    return found


def settings_of(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the flags of the attention that each setting names.

    Raises:
        UserError: a flag that is not one of the attention's.
    """
    parser = Parser(prog="a setting", add_help=False, argument_default=SUPPRESS)
    add_flags(parser)
    return {text: {"linformer_projection": "full", **vars(parser.parse_args(shlex.split(text)))} for text in texts}


def main(argv: Sequence[str]) -> None:
    """Measures a model, and writes and prints a table."""
    add = (parser := Parser(description=__doc__)).add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="a checkpoint that fairseq-train saved")
    add("data", type=Path, metavar="DATA", help="folder that fairseq-preprocess wrote")
    add("settings", nargs="+", metavar="SETTING", help="flags of the attention, between quotation marks")
    add("--csv", type=Path, metavar="FILE", help="where the table is written to, too")
    add("--subset", default="valid", help="split to take texts from")
    add("--texts", type=natural, default=0, help="number of texts, the first of the split; 0: all")
    add("--shortest", type=count, default=1, metavar="TOKENS", help="shorter texts are left out")
    add("--longest", type=count, default=1 << 20, metavar="TOKENS", help="longer texts are left out")
    args = parser.parse_args(argv)
    args.settings = settings_of(args.settings)
    if args.csv is not None:
        check_output(args.csv)
        if args.csv.resolve() == args.checkpoint.resolve():
            raise UserError(f"{args.csv} is the checkpoint itself: name another file for --csv.")
    found = measure(args)
    told = [
        [name, *("–" if x is None else str(x) for x in own), f"{perplexity:.3f}", f"{change:+.2f}"]
        for name, *own, perplexity, change in found
    ]
    print(table(FIELDS, told))
    if args.csv is not None:
        with replacing(args.csv) as part, open(part, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([FIELDS, *found])


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:]), "no result has been written."))
