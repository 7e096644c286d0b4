#!/usr/bin/env python
"""Times whole fairseq models against the length of their sentences, at a constant number of tokens in a batch.

Three parts are timed, with random weights and tokens, as no time depends on what a model has learnt: `encoder` (a
forward pass), `translation` (a step of greedy decoding, which adds a token to every sentence; the mean of the last
eight steps of a target as long as its source) and `training` (forward, backward and Adam's update of the whole model).
The models take turns, so that whatever else the machine does affects all of them alike.

--dtype is the type of encoder and translation. Training keeps float32 weights, and computes in bfloat16 under
torch.autocast, as fairseq's --amp does; float16, which would need a scaled loss, is refused there.
"""

import argparse
import contextlib
import copy
import csv
import io
import logging
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from linformer_fairseq import LinformerTransformerModel  # isort: skip  first, as it silences a message of fairseq's

import fairseq
import numpy as np
import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerDecoderBase, TransformerModel, TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tabulate import tabulate
from torch import Tensor

Contender = Callable[[], Callable[[], object]]
"""Makes ready for a run, and returns the run, which is then timed."""
T = TypeVar("T")
ARCHS = ["transformer", "linformer_transformer", "two_level_transformer"]
ALL_ATTENTION = "encoder,cross,decoder"
WARM_UP = 1
"""Runs of each model that do not count."""
STEPS = 8
"""Steps of decoding in a run."""


class Case(NamedTuple):
    """A model, and the batch that it is given: source and target, both (B, n)."""

    model: TransformerModelBase
    task: TranslationTask
    source: Tensor
    target: Tensor
    dtype: torch.dtype

    def encode(self) -> dict[str, list[Tensor]]:
        return self.model.encoder(self.source, src_lengths=self.lengths)

    @property
    def lengths(self) -> Tensor:
        return torch.full((len(self.source),), self.source.size(1), device=self.source.device)


class Spread(NamedTuple):
    """Median and quartiles, in seconds."""

    median: float
    lower: float
    upper: float


class Row(NamedTuple):
    """A part of a model at one length; without a time where it ran out of memory."""

    part: str
    model: str
    length: int
    sentences: int
    time: Spread | None


def encoder(case: Case) -> Contender:
    return lambda: case.encode


def translation(case: Case) -> Contender:
    """The last steps of decoding the target, in every run from a copy of the same state."""
    decoder, length, encoded = case.model.decoder, case.target.size(1), case.encode()
    filled = state_after(decoder, case.target[:, : length - STEPS], encoded)

    def steps(state: dict[str, Any]) -> None:
        for end in range(length - STEPS, length):
            decoder(case.target[:, : end + 1], encoder_out=encoded, incremental_state=state)

    return lambda: partial(steps, copy.deepcopy(filled))


def state_after(decoder: TransformerDecoderBase, prefix: Tensor, encoded: dict[str, list[Tensor]]) -> dict[str, Any]:
    """The decoder's incremental state after a prefix (B, p): every layer is given all of its inputs at once, as to
    decode thousands of tokens one by one takes long."""
    state: dict[str, Any] = {}
    _, extra = decoder(prefix, encoder_out=encoded, features_only=True)
    padding = encoded["encoder_padding_mask"][0] if encoded["encoder_padding_mask"] else None
    for layer, x in zip(decoder.layers, extra["inner_states"], strict=False):  # one more is the last layer's output
        layer(x, encoded["encoder_out"][0], padding, state, self_attn_mask=decoder.buffered_future_mask(x))
    return state


def training(case: Case) -> Contender:
    case.model.zero_grad()  # what a step that ran out of memory has left
    criterion = LabelSmoothedCrossEntropyCriterion(case.task, sentence_avg=False, label_smoothing=0.1)
    optimizer = torch.optim.Adam(case.model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    shifted = case.target.roll(1, dims=1)
    inputs = {"src_tokens": case.source, "src_lengths": case.lengths, "prev_output_tokens": shifted}
    sample = {"net_input": inputs, "target": case.target, "ntokens": case.target.numel()}
    half = torch.autocast(case.source.device.type, dtype=torch.bfloat16, enabled=case.dtype == torch.bfloat16)

    def step() -> None:
        with half:
            loss, tokens, _ = criterion(case.model, sample)
        (loss / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()  # at the end, so that no model's gradients take memory from the others

    return lambda: step


PARTS: dict[str, tuple[str, Callable[[Case], Contender]]] = {
    "encoder": ("Encoder: a forward pass", encoder),
    "translation": ("Translation: a step of decoding", translation),
    "training": ("Training: forward, backward and update", training),
}


def in_turn(makers: Mapping[str, Callable[[], Contender]], repeats: int, device: str) -> dict[str, list[float]]:
    """The seconds of every contender, run by run, or none where it ran out of memory. They take turns, and in every
    round another one begins."""
    contenders = {name: if_it_fits(make) for name, make in makers.items()}
    names, seconds = list(makers), {name: list[float]() for name in makers}
    for turn in range(WARM_UP + repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if own := contenders[name]:
                passed = if_it_fits(partial(seconds_of, own, device))
                if passed is None:
                    contenders[name] = own = None
                else:
                    seconds[name].append(passed)
    return {name: seconds[name][WARM_UP:] if contenders[name] else [] for name in names}


def if_it_fits(call: Callable[[], T]) -> T | None:
    """The result of a call, or None where it runs out of the GPU's memory."""
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        return call()
    torch.cuda.empty_cache()
    return None


def seconds_of(contender: Contender, device: str) -> float:
    """The time of a run, until a GPU has done all that it was given."""
    run = contender()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def spread(seconds: Sequence[float]) -> Spread:
    return Spread(*np.quantile(seconds, [0.5, 0.25, 0.75]).tolist())


def verdict(own: Spread | None, baseline: Spread | None) -> str:
    """How a model compares with the baseline: neither faster nor slower where the quartiles overlap."""
    if own and baseline and own.upper < baseline.lower:
        return "faster"
    return "slower" if own and baseline and own.lower > baseline.upper else "–"


def random_tokens(count: int, length: int, words: Dictionary, seed: int) -> Tensor:
    """Random words, each sentence with its end: (count, length)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(words.nspecial, len(words), (count, length), generator=generator)
    tokens[:, -1] = words.eos()
    return tokens


def measure(part: str, models: dict[str, argparse.Namespace], args: argparse.Namespace) -> list[Row]:
    words, dtype = Dictionary(), getattr(torch, args.dtype)
    for word in range(args.vocabulary):
        words.add_symbol(f"w{word}")
    built = {name: build(settings, words, args.seed) for name, settings in models.items()}
    for model, _ in built.values():
        if part != "training":
            model.load_state_dict(model.state_dict())  # fairseq 0.12.2 has a faster encoder for loaded weights alone
            model.make_generation_fast_(need_attn=False)
            model.to(dtype)
        model.to(args.device)
    rows = []
    for length in args.lengths:
        count = args.tokens // length
        source, target = random_tokens(2 * count, length, words, args.seed).to(args.device).split(count)
        makers = {name: partial(PARTS[part][1], Case(*own, source, target, dtype)) for name, own in built.items()}
        with torch.set_grad_enabled(part == "training"):
            times = in_turn(makers, args.repeats, args.device)
        for name, seconds in times.items():
            each = [x / STEPS if part == "translation" else x for x in seconds]
            rows.append(Row(part, name, length, count, spread(each) if each else None))
            print(f"{part}, {length:,} tokens, {name}: {shown(rows[-1].time)}", flush=True)
    return rows


def build(settings: argparse.Namespace, words: Dictionary, seed: int) -> tuple[TransformerModelBase, TranslationTask]:
    """Builds a model as fairseq-train does."""
    torch.manual_seed(seed)
    task = TranslationTask(TranslationConfig.from_namespace(settings), words, words)
    try:
        return task.build_model(copy.deepcopy(settings)), task
    except (SystemExit, AssertionError, ValueError) as error:
        refuse(f"{settings.arch} cannot be built: {str(error).removeprefix('error: ')}")


def fairseq_settings(args: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """fairseq's settings of every model, by its name in the tables."""
    positions = str(max(args.lengths))
    common = ["--max-source-positions", positions, "--max-target-positions", positions, *args.flags]
    models = {}
    for arch in args.arch:
        if ARCH_MODEL_REGISTRY.get(arch) is TransformerModel:
            models[arch] = as_fairseq_train(*common, "--arch", arch)
        elif ARCH_MODEL_REGISTRY.get(arch) is LinformerTransformerModel:
            everywhere = ["--linformer-attention", ALL_ATTENTION, *common]
            for k in args.k:
                settings = as_fairseq_train(*everywhere, "--arch", arch, "--linformer-k", str(k))
                places = settings.linformer_attention
                models[f"{arch}, k = {k}, {'all attention' if places == ALL_ATTENTION else places}"] = settings
        else:
            refuse(f"--arch {arch}: neither fairseq nor this package has such a Transformer for translation")
    return models


def as_fairseq_train(*flags: str) -> argparse.Namespace:
    """Reads flags as fairseq-train does."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser = options.get_training_parser()
            return options.parse_args_and_arch(parser, input_args=["no-data", "--task", "translation", *flags])
    except SystemExit:
        refuse(f"fairseq refuses {shlex.join(flags)}: {said.getvalue().strip().rpartition('error: ')[2]}")


def shown(time: Spread | None) -> str:
    if time is None:
        return "out of memory"
    median, lower, upper = (f"{x:#.3g}".rstrip(".") for x in time)
    return f"{median} ({lower}–{upper})"


def report(rows: list[Row], baseline: str, args: argparse.Namespace, argv: Sequence[str]) -> str:
    lines = [
        "# Time against sentence length",
        f"Seconds for a batch of {args.tokens:,} source and {args.tokens:,} target tokens: median (quartiles) of "
        f"{args.repeats} runs, the models in turn. A model is *faster* or *slower* than `{baseline}` only where their "
        "quartiles do not overlap.",
    ]
    for part in args.parts:
        own = [row for row in rows if row.part == part]
        table: dict[int, list[str]] = {}
        for row in own:
            [against] = (other.time for other in own if (other.model, other.length) == (baseline, row.length))
            cell = shown(row.time) + (f", {verdict(row.time, against)}" if row.model != baseline else "")
            table.setdefault(row.length, [f"{row.length:,} × {row.sentences}"]).append(cell)
        header = ["tokens × sentences", *dict.fromkeys(row.model for row in own)]
        lines += [f"## {PARTS[part][0]}", tabulate(table.values(), header, "pipe", disable_numparse=True)]
    command = shlex.join(["scripts/benchmark.py", *argv])
    lines.append(f"- Machine: {machine(args)}\n- Commit: {commit()}\n- Command: `{command}`")
    return "\n\n".join(lines) + "\n"


def machine(args: argparse.Namespace) -> str:
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    device = torch.cuda.get_device_name() if args.device == "cuda" else f"threads: {args.threads}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, fairseq {fairseq.__version__}"
    return f"{processor}; {device}; {args.dtype}; {versions}"


def commit() -> str:
    """The commit of this checkout, or the package's version where there is no git."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    return f"linformer_fairseq {version('linformer_fairseq')}"


def write_csv(path: Path, rows: list[Row], repeats: int) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*Row._fields[:-1], "seconds", "lower_quartile", "upper_quartile", "repeats", "note"])
        for row in rows:
            writer.writerow([*row[:-1], *(row.time or [""] * 3), repeats, "" if row.time else shown(None)])


def plot(path: Path, rows: list[Row], parts: list[str]) -> None:
    # imported at the top it would print its debugging, which fairseq's logging lets through
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(4 * len(parts) + 1, 4), layout="constrained")
    for part, axes in zip(parts, figure.subplots(1, len(parts), squeeze=False)[0], strict=True):
        for name in dict.fromkeys(row.model for row in rows):
            timed = [(row.length, row.time) for row in rows if (row.part, row.model) == (part, name) and row.time]
            lengths, times = [length for length, _ in timed], [time for _, time in timed]
            [line] = axes.plot(lengths, [time.median for time in times], marker="o", label=name)
            bounds = [time.lower for time in times], [time.upper for time in times]
            axes.fill_between(lengths, *bounds, color=line.get_color(), alpha=0.2)
        axes.set(xscale="log", yscale="log", title=PARTS[part][0], xlabel="tokens of a sentence", ylabel="seconds")
        ticks = sorted({row.length for row in rows})
        axes.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5]))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)


def refuse(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        refuse(message)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder for benchmark.md, .csv and .png")
    add("--arch", nargs="+", default=ARCHS, help="architectures; the first is what the others are compared with")
    add("--k", nargs="+", type=positive, default=[64], help="each of this package's architectures is timed with each k")
    add("--flags", type=shlex.split, default="", help="fairseq's for all models, as '--encoder-layers 2 --dropout 0'")
    add("--lengths", nargs="+", type=positive, default=[256, 512, 1024, 2048, 4096], help="tokens of a sentence")
    add("--tokens", type=positive, default=4096, help="tokens of a batch, of source and of target each")
    add("--vocabulary", type=positive, default=10_000, help="words")
    add("--repeats", type=positive, default=7, help=f"runs of each model, after {WARM_UP} to warm up")
    add("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    add("--threads", type=positive, default=torch.get_num_threads(), help="of the CPU")
    add("--seed", type=int, default=1, help="of weights and tokens")
    args = parser.parse_args(argv)
    args.lengths, args.parts = sorted({*args.lengths}), list(dict.fromkeys(args.parts))
    if max(args.lengths) > args.tokens:
        refuse(f"--lengths {max(args.lengths)} is longer than a batch: choose --tokens {max(args.lengths)} or more")
    if min(args.lengths) <= STEPS:
        refuse(f"--lengths {min(args.lengths)} is too short: choose more than {STEPS}, the steps of decoding in a run")
    if args.repeats < 3:
        refuse(f"--repeats {args.repeats} is too few for quartiles: choose 3 or more")
    if args.device == "cuda" and not torch.cuda.is_available():
        refuse("--device cuda: torch finds no GPU here")
    if args.dtype == "float16" and (args.device == "cpu" or "training" in args.parts):
        refuse("--dtype float16 is for --device cuda --parts encoder translation: choose bfloat16 or float32")
    return args


def main(argv: Sequence[str]) -> None:
    args = parse(argv)
    logging.getLogger().setLevel(logging.WARNING)  # fairseq lowers it
    models = fairseq_settings(args)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse(f"--out {args.out}: {error.strerror}")
    torch.set_num_threads(args.threads)
    rows = [row for part in args.parts for row in measure(part, models, args)]
    text = report(rows, next(iter(models)), args, argv)
    writers: dict[str, Callable[[Path], object]] = {
        "benchmark.csv": lambda path: write_csv(path, rows, args.repeats),
        "benchmark.md": lambda path: path.write_text(text, encoding="utf-8"),
        "benchmark.png": lambda path: plot(path, rows, args.parts),
    }
    for name, write in writers.items():
        write(args.out / f"part.{name}")
        os.replace(args.out / f"part.{name}", args.out / name)
    print(f"\n{text}\n{args.out / 'benchmark.png'} has the plot")


if __name__ == "__main__":
    main(sys.argv[1:])
