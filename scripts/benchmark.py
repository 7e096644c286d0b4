#!/usr/bin/env python
"""Times whole fairseq models against the length of their sentences, at a constant number of tokens in a batch.

Weights and tokens are random, as speed does not depend on what a model has learnt. The models take turns, so that other
load on the machine affects all alike. In bfloat16, training computes under torch.autocast, as fairseq's --amp does.
"""

from matplotlib.figure import Figure  # isort: skip  before fairseq, whose logging lets matplotlib's debugging through
from linformer_fairseq import LinformerTransformerModel  # isort: skip  before fairseq, as it silences a message there

import argparse
import contextlib
import copy
import csv
import io
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from linformer_fairseq.cli.arguments import Parser, check_device, count, number
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing, write_text
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.cli.tables import table

STEPS = 8  # of decoding in a run
ARCHS = [arch for arch, model in ARCH_MODEL_REGISTRY.items() if model in (TransformerModel, LinformerTransformerModel)]
Contender = tuple[Callable[[dict[str, Any]], object], dict[str, Any]]  # what is timed, and the state that it changes


class Row(NamedTuple):
    """Median and quartiles of the seconds of a part of a model; NaN where it ran out of memory."""

    part: str
    model: str
    length: int
    sentences: int
    median: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return "out of memory" if np.isnan(self[4]) else "{:#.3g} ({:#.3g}–{:#.3g})".format(*self[4:])

    def verdict(self, baseline: "Row") -> str:
        """Compares the model with a baseline: neither faster nor slower where their quartiles overlap."""
        return "faster" if self.upper < baseline.lower else "slower" if self.lower > baseline.upper else "–"


def encoder(model: TransformerModelBase, source: torch.Tensor, target: torch.Tensor, half: bool) -> Contender:
    """A forward pass of the encoder"""
    return lambda _: model.encoder(source), {}


def translation(model: TransformerModelBase, source: torch.Tensor, target: torch.Tensor, half: bool) -> Contender:
    """A step of greedy decoding, which adds a token to every sentence: mean of the last steps of a target"""
    decoder, encoded, filled, n = model.decoder, model.encoder(source), dict[str, Any](), target.size(1)
    # what comes before these steps goes through each layer at once, as thousands of single steps would take long
    _, extra = decoder(target[:, :-STEPS], encoder_out=encoded, features_only=True)
    memory, padding = encoded["encoder_out"][0], encoded["encoder_padding_mask"][0]
    for layer, x in zip(decoder.layers, extra["inner_states"], strict=False):  # one more is the last layer's output
        layer(x, memory, padding, filled, self_attn_mask=decoder.buffered_future_mask(x))
    return lambda state: [decoder(target[:, :end], encoded, state) for end in range(n - STEPS + 1, n + 1)], filled


def training(model: TransformerModelBase, source: torch.Tensor, target: torch.Tensor, half: bool) -> Contender:
    """Forward, backward and Adam's update of the whole model"""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))

    def step(_: dict[str, Any]) -> None:
        with torch.autocast(source.device.type, torch.bfloat16, enabled=half):
            log_probs = model.get_normalized_probs(model(source, None, target.roll(1, dims=1)), log_probs=True)
            loss, _nll = label_smoothed_nll_loss(log_probs, target, epsilon=0.1)
        (loss / target.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()  # at the end, so that no model's gradients take memory from the others

    return step, {}


PARTS = {part.__name__: part for part in (encoder, translation, training)}


def in_turn(make: Callable[..., Contender], cases: dict[str, tuple[Any, ...]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of every contender, run by run; NaN where a GPU's memory ran out."""
    wait: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None
    contenders, names, seconds = dict[str, Contender](), list(cases), {name: list[float]() for name in cases}
    for _ in range(rounds):
        for name in names:
            try:
                run, state = contenders[name] = contenders.get(name) or make(*cases[name])
                state = copy.deepcopy(state)
                wait()
                start = time.perf_counter()
                run(state)
                wait()
                seconds[name].append(time.perf_counter() - start)
            except torch.cuda.OutOfMemoryError:
                seconds[name].append(np.nan)
        names = names[1:] + names[:1]  # in every round another one begins
    return seconds


def measure(part: str, args: argparse.Namespace) -> Iterator[Row]:
    """Times a part of all models, length by length; what runs out of memory is not tried at longer ones."""
    words, dtype = Dictionary(extra_special_symbols=map(str, range(args.vocabulary))), getattr(torch, args.dtype)
    built = {name: build(flags, words).to(args.device) for name, flags in args.models.items()}
    for model in built.values() if part != "training" else ():
        model.load_state_dict(model.state_dict())  # fairseq 0.12.2 has a faster encoder for loaded weights alone
        model.to(dtype).make_generation_fast_(need_attn=False)
    per_run = STEPS if part == "translation" else 1
    for length in args.lengths:
        shape = 2, args.tokens // length, length
        source, target = torch.randint(words.unk() + 1, len(words), shape, device=args.device)
        cases = {name: (model, source, target, dtype == torch.bfloat16) for name, model in built.items()}
        # training on a CPU warms up at the first length alone: a run takes long, and the first is hardly longer
        warm_up = int(part != "training" or args.device == "cuda" or length == args.lengths[0])
        with torch.set_grad_enabled(part == "training"):
            times = in_turn(PARTS[part], cases, warm_up + args.repeats)
        built = {name: built[name] for name, seconds in times.items() if not np.isnan(seconds).any()}
        for name in args.models:
            seconds = np.array(times[name][warm_up:] if name in built else np.nan) / per_run
            row = Row(part, name, length, len(source), *np.quantile(seconds, [0.5, 0.25, 0.75]).tolist())
            print(f"{part}, {length:,} tokens, {name}: {row}", flush=True)
            yield row


def build(flags: list[str], words: Dictionary) -> TransformerModelBase:
    """Builds a model as fairseq-train does, from its flags."""
    torch.manual_seed(1)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            parser = options.get_training_parser()
            settings = options.parse_args_and_arch(parser, ["no-data", "--task", "translation", *flags])
            return TranslationTask(TranslationConfig.from_namespace(settings), words, words).build_model(settings)
        except (SystemExit, AssertionError, ValueError) as error:
            reason = (said.getvalue() if str(error) == "2" else str(error)).rpartition("error: ")[2].strip()
            raise UserError(f"fairseq refuses {shlex.join(flags)}: {reason}") from None


def report(rows: list[Row], args: argparse.Namespace, argv: Sequence[str]) -> str:
    """Returns a table of every part, and what made it."""
    tables: dict[str, list[list[str]]] = {part: [] for part in args.parts}
    for start in range(0, len(rows), len(args.models)):
        first, *others = rows[start : start + len(args.models)]
        cells = [f"{first.length:,} × {first.sentences}", str(first), *(f"{x}, {x.verdict(first)}" for x in others)]
        tables[first.part].append(cells)
    git = f"git -C {shlex.quote(str(Path(__file__).parent))} describe --always --dirty 2>/dev/null || echo unknown"
    return f"""# Time against sentence length

Seconds for a batch of {args.tokens:,} source and {args.tokens:,} target tokens: median (quartiles) of {args.repeats}
runs, the models in turn. A model is *faster* or *slower* than `{rows[0].model}` only where their quartiles do not
overlap. k is that of encoder, cross- and decoder attention, unless `--flags` below says otherwise.

- Machine: {describe_machine()}; {args.device}, {args.threads} threads, {args.dtype}
- Commit: {subprocess.getoutput(git)}
- Command: `{shlex.join(["scripts/benchmark.py", *argv])}`
""" + "".join(f"\n## {PARTS[x].__doc__}\n\n{table(['tokens × sentences', *args.models], tables[x])}\n" for x in tables)


def plot(path: Path, rows: list[Row], args: argparse.Namespace) -> None:
    """Draws a panel for every part: medians against the length, with bars from quartile to quartile."""
    figure = Figure(figsize=(4 * len(args.parts) + 1, 4), layout="constrained")
    for part, axes in zip(args.parts, figure.subplots(1, len(args.parts), squeeze=False)[0], strict=True):
        for name in args.models:
            median, lower, upper = np.array([row[4:] for row in rows if (row.part, row.model) == (part, name)]).T
            axes.errorbar(args.lengths, median, [median - lower, upper - median], marker="o", capsize=3, label=name)
        axes.set(title=part, xlabel="tokens of a sentence", ylabel="seconds", xscale="log", yscale="log")
        axes.set_xticks(args.lengths, labels=[f"{length:,}" for length in args.lengths])
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(args.parts))
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150, format="png")


def main(argv: Sequence[str]) -> None:
    """Times what a command line asks for, and writes the results."""
    parser, archs = Parser(description=__doc__), ["transformer", "linformer_transformer", "two_level_transformer"]
    longer = number(int, STEPS + 1, 10**9, f"a whole number above {STEPS}, the steps of decoding in a run")
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder for benchmark.md, .csv and .png")
    add("--arch", nargs="+", choices=ARCHS, default=archs, metavar="ARCH", help="the first is the baseline")
    add("--k", nargs="+", type=count, default=[64], help="each of this package's architectures is timed with each k")
    add("--flags", type=shlex.split, default="", help="fairseq's for all models, as '--encoder-layers 2 --dropout 0'")
    add("--lengths", nargs="+", type=longer, default=[256, 512, 1024, 2048, 4096], help="tokens of a sentence")
    add("--tokens", type=count, default=4096, help="tokens of a batch, of source and of target each")
    add("--vocabulary", type=count, default=10_000, help="words")
    add("--repeats", type=number(int, 3, 10**9, "3 or more"), default=7, help="runs of each model, after a warm-up")
    add("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="what is timed")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where")
    add("--dtype", choices=["float32", "float16", "bfloat16"], default="float32", help="what it computes in")
    add("--threads", type=count, default=torch.get_num_threads(), help="of the CPU")
    args = parser.parse_args(argv)
    args.lengths, args.parts = sorted(set(args.lengths)), list(dict.fromkeys(args.parts))
    if (longest := args.lengths[-1]) > args.tokens:
        raise UserError(f"--lengths {longest} is longer than a batch: choose --tokens {longest} or more.")
    if args.dtype == "float16" and "training" in args.parts:
        raise UserError("--dtype float16 would need a scaled loss in training: choose bfloat16 or other --parts.")
    check_device(args.device)
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    args.models = {}  # fairseq's flags, by the model's name in the tables
    for arch, k in [(arch, k) for arch in args.arch for k in args.k]:
        name, flags = arch, f"--arch {arch} --max-source-positions {longest} --max-target-positions {longest}"
        if ARCH_MODEL_REGISTRY[arch] is LinformerTransformerModel:
            name, flags = f"{arch}, k = {k}", f"{flags} --linformer-attention encoder,cross,decoder --linformer-k {k}"
        args.models[name] = flags.split() + args.flags
    rows = [row for part in args.parts for row in measure(part, args)]
    with replacing(args.out / "benchmark.csv") as path, open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([Row._fields, *rows])
    write_text(args.out / "benchmark.md", text := report(rows, args, argv))
    plot(args.out / "benchmark.png", rows, args)
    print(f"\n{text}\n{args.out / 'benchmark.png'} has the plot")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:]), "no result has been written."))
