#!/usr/bin/env python
"""Times whole fairseq models against the length of their sentences, at a constant number of tokens in a batch.

Three parts are timed, with random weights and tokens, as no time depends on what a model has learnt: `encoder` (a
forward pass), `translation` (a step of decoding, which adds a token to every sentence; the mean over the last steps of
a target as long as its source) and `training` (forward, backward and Adam's update of the whole model). The models
take turns, so that whatever else the machine does affects all of them alike.

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
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import fairseq
import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerDecoderBase, TransformerModel, TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from matplotlib.figure import Figure
from tabulate import tabulate
from torch import Tensor

from linformer_fairseq import LinformerTransformerModel

Contender = Callable[[], Callable[[], object]]
"""Makes ready for a run, and returns the run, which is then timed."""
T = TypeVar("T")
ALL_ATTENTION = "encoder,cross,decoder"
WARM_UP = 1
"""Runs of each model that do not count."""
STEPS = 8
"""Steps of decoding in a run."""


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
    parser = Parser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder for benchmark.md, .csv and .png")
    archs = ["transformer", "linformer_transformer", "two_level_transformer"]
    add("--arch", nargs="+", default=archs, help="architectures; the first is what the others are compared with")
    add("--k", nargs="+", type=positive, default=[64], help="each of this package's architectures is timed with each k")
    add(
        "--flags",
        type=shlex.split,
        default="",
        help="fairseq's flags for all models, as '--encoder-layers 2 --decoder-layers 2'",
    )
    add("--lengths", nargs="+", type=positive, default=[256, 512, 1024, 2048, 4096], help="tokens of a sentence")
    add("--tokens", type=positive, default=4096, help="tokens of a batch")
    add("--vocabulary", type=positive, default=10_000, help="words")
    add("--repeats", type=positive, default=7, help=f"runs of each model, after {WARM_UP} to warm up")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    add("--threads", type=positive, default=torch.get_num_threads(), help="on the CPU")
    add("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if max(args.lengths) > args.tokens:
        refuse(f"--lengths {max(args.lengths)} is longer than a batch of --tokens {args.tokens}")
    if min(args.lengths) < 2:
        refuse("--lengths must be at least 2: a word and the end of the sentence")
    if args.device == "cuda" and not torch.cuda.is_available():
        refuse("--device cuda: torch finds no GPU here")
    if args.dtype == "float16" and args.device == "cpu":
        refuse("--dtype float16 is for --device cuda; use float32 or bfloat16")
    if args.dtype == "float16" and "training" in args.parts:
        refuse("--dtype float16 is not for training: use bfloat16, or --parts encoder translation")
    return args


def parse_models(args: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """fairseq's settings of every model, by its name in the tables."""
    positions = str(max(args.lengths))
    common = ["--max-source-positions", positions, "--max-target-positions", positions, *args.flags]
    models = {}
    for arch in args.arch:
        kind = ARCH_MODEL_REGISTRY.get(arch)
        if kind is TransformerModel:
            models[arch] = fairseq_settings([*common, "--arch", arch])
        elif kind is LinformerTransformerModel:
            for k in args.k:
                own = ["--linformer-attention", ALL_ATTENTION, *common, "--arch", arch, "--linformer-k", str(k)]
                settings = fairseq_settings(own)
                places = settings.linformer_attention
                models[f"{arch}, k = {k}, {'all attention' if places == ALL_ATTENTION else places}"] = settings
        else:
            refuse(f"--arch {arch}: neither fairseq nor this package has such a Transformer for translation")
    return models


def fairseq_settings(flags: list[str]) -> argparse.Namespace:
    """Reads flags as fairseq-train does."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser = options.get_training_parser()
            return options.parse_args_and_arch(parser, input_args=["no-data", "--task", "translation", *flags])
    except SystemExit:
        refuse(f"fairseq refuses {shlex.join(flags)}: {said.getvalue().strip().rpartition('error: ')[2]}")


def build(settings: argparse.Namespace, words: Dictionary, seed: int) -> tuple[TransformerModelBase, TranslationTask]:
    """Builds a model as fairseq-train does."""
    torch.manual_seed(seed)
    task = TranslationTask(TranslationConfig.from_namespace(settings), words, words)
    try:
        return task.build_model(copy.deepcopy(settings)), task
    except (SystemExit, AssertionError, ValueError) as error:
        refuse(f"{settings.arch} cannot be built: {str(error).removeprefix('error: ')}")


def random_tokens(count: int, length: int, words: Dictionary, seed: int) -> Tensor:
    """Random words, each sentence with its end: (count, length)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(words.nspecial, len(words), (count, length), generator=generator)
    tokens[:, -1] = words.eos()
    return tokens


def lengths_of(tokens: Tensor) -> Tensor:
    return torch.full((len(tokens),), tokens.size(1), device=tokens.device)


def encoder_pass(model: TransformerModelBase, task: TranslationTask, source: Tensor, target: Tensor) -> Contender:
    return lambda: partial(model.encoder, source, src_lengths=lengths_of(source))


def decoding(model: TransformerModelBase, task: TranslationTask, source: Tensor, target: Tensor) -> Contender:
    """The last steps of decoding a target, in every run from a copy of the same state."""
    encoded = model.encoder(source, src_lengths=lengths_of(source))
    length = target.size(1)
    first = length - steps_of(length)
    filled = state_after(model.decoder, target[:, :first], encoded)

    def steps(state: dict[str, Any]) -> None:
        for end in range(first + 1, length + 1):
            model.decoder(target[:, :end], encoder_out=encoded, incremental_state=state)

    return lambda: partial(steps, copy.deepcopy(filled))


def steps_of(length: int) -> int:
    """The steps of decoding in a run."""
    return min(STEPS, length - 1)


def state_after(decoder: TransformerDecoderBase, prefix: Tensor, encoded: dict[str, list[Tensor]]) -> dict[str, Any]:
    """The decoder's incremental state after a prefix (B, p): every layer is given all of its inputs at once, as to
    decode thousands of tokens one by one takes long."""
    state: dict[str, Any] = {}
    _, extra = decoder(prefix, encoder_out=encoded, features_only=True)
    padding = encoded["encoder_padding_mask"][0] if encoded["encoder_padding_mask"] else None
    for layer, x in zip(decoder.layers, extra["inner_states"], strict=False):  # one more is the last layer's output
        layer(x, encoded["encoder_out"][0], padding, state, self_attn_mask=decoder.buffered_future_mask(x))
    return state


def training(
    model: TransformerModelBase,
    task: TranslationTask,
    source: Tensor,
    target: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Contender:
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    inputs = {"src_tokens": source, "src_lengths": lengths_of(source), "prev_output_tokens": target.roll(1, dims=1)}
    sample = {"net_input": inputs, "target": target, "ntokens": target.numel()}

    def step() -> None:
        with torch.autocast(source.device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss, tokens, _ = criterion(model, sample)
        (loss / tokens).backward()
        optimizer.step()
        optimizer.zero_grad()  # at the end, so that no model's gradients take memory from the others

    return lambda: step


PARTS = {"encoder": encoder_pass, "translation": decoding, "training": training}
TITLES = {
    "encoder": "Encoder: a forward pass",
    "translation": "Translation: a step of decoding",
    "training": "Training: forward, backward and update",
}


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


def in_turn(makers: Mapping[str, Callable[[], Contender]], repeats: int, device: str) -> dict[str, list[float]]:
    """The seconds of every contender, run by run, or none where it ran out of memory. They take turns, and in every
    round another one begins."""
    contenders = {name: if_it_fits(make) for name, make in makers.items()}
    names, seconds = list(makers), {name: list[float]() for name in makers}
    for turn in range(WARM_UP + repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            own = contenders[name]
            passed = if_it_fits(partial(seconds_of, own, device)) if own else None
            if passed is None:
                contenders[name] = None
            else:
                seconds[name].append(passed)
    return {name: seconds[name][WARM_UP:] if contenders[name] else [] for name in names}


def spread(seconds: Sequence[float]) -> Spread:
    lower, median, upper = statistics.quantiles([*seconds] * (2 if len(seconds) == 1 else 1), n=4, method="inclusive")
    return Spread(median, lower, upper)


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
    make = partial(training, dtype=dtype) if part == "training" else PARTS[part]
    rows = []
    for length in args.lengths:
        count = args.tokens // length
        source, target = random_tokens(2 * count, length, words, args.seed).to(args.device).split(count)
        makers = {name: partial(make, model, task, source, target) for name, (model, task) in built.items()}
        with torch.set_grad_enabled(part == "training"):
            times = in_turn(makers, args.repeats, args.device)
        steps = steps_of(length) if part == "translation" else 1
        for name, seconds in times.items():
            rows.append(Row(part, name, length, count, spread([x / steps for x in seconds]) if seconds else None))
            print(f"{part}, {length:,} tokens, {name}: {shown(rows[-1].time)}", flush=True)
    return rows


def shown(time: Spread | None) -> str:
    if time is None:
        return "out of memory"
    median, lower, upper = (f"{x:#.3g}".rstrip(".") for x in time)
    return f"{median} ({lower}–{upper})"


def verdict(own: Spread | None, baseline: Spread | None) -> str:
    """How a model compares with the baseline: neither faster nor slower where the quartiles overlap."""
    if own and baseline and own.upper < baseline.lower:
        return "faster"
    return "slower" if own and baseline and own.lower > baseline.upper else "–"


def write_csv(path: Path, rows: list[Row], repeats: int) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*Row._fields[:-1], "seconds", "lower_quartile", "upper_quartile", "repeats", "note"])
        for row in rows:
            writer.writerow([*row[:-1], *(row.time or [""] * 3), repeats, "" if row.time else shown(None)])


def report(rows: list[Row], baseline: str, args: argparse.Namespace, argv: Sequence[str]) -> str:
    lines = [
        "# Time against sentence length",
        f"Seconds for {args.tokens:,} tokens of source and of target in all, whatever the length of the sentences: "
        f"median (quartiles) of {args.repeats} runs, the models in turn. A model is *faster* or *slower* than "
        f"`{baseline}` where their quartiles do not overlap.",
    ]
    for part in args.parts:
        own = [row for row in rows if row.part == part]
        names = list(dict.fromkeys(row.model for row in own))
        table = []
        for length in args.lengths:
            times = {row.model: row.time for row in own if row.length == length}
            others = [f"{shown(times[name])}, {verdict(times[name], times[baseline])}" for name in names[1:]]
            table.append([f"{length:,}", args.tokens // length, shown(times[baseline]), *others])
        lines += [f"## {TITLES[part]}", tabulate(table, ["tokens", "sentences", *names], "pipe", disable_numparse=True)]
    facts = {
        "Machine": machine(args),
        "Commit": commit(),
        "Command": f"`{shlex.join(['scripts/benchmark.py', *argv])}`",
    }
    return "\n\n".join([*lines, "\n".join(f"- {name}: {fact}" for name, fact in facts.items())]) + "\n"


def machine(args: argparse.Namespace) -> str:
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    device = torch.cuda.get_device_name() if args.device == "cuda" else f"{args.threads} threads"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, fairseq {fairseq.__version__}"
    return f"{processor}, {device}, {args.dtype}; {versions}"


def commit() -> str:
    """The commit of this checkout, or the package's version where there is no git."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    return f"linformer_fairseq {version('linformer_fairseq')}"


def plot(path: Path, rows: list[Row], parts: list[str]) -> None:
    figure = Figure(figsize=(4 * len(parts) + 1, 4), layout="constrained")
    for part, axes in zip(parts, figure.subplots(1, len(parts), squeeze=False)[0], strict=True):
        names = dict.fromkeys(row.model for row in rows)
        for name, marker in zip(names, cycle("o^sDvPX*"), strict=False):
            timed = [(row.length, row.time) for row in rows if (row.part, row.model) == (part, name) and row.time]
            lengths, times = [length for length, _ in timed], [time for _, time in timed]
            [line] = axes.plot(lengths, [time.median for time in times], marker=marker, label=name)
            bounds = [time.lower for time in times], [time.upper for time in times]
            axes.fill_between(lengths, *bounds, color=line.get_color(), alpha=0.2)
        ticks = sorted({row.length for row in rows})
        axes.set(xscale="log", yscale="log", title=TITLES[part], xlabel="tokens of a sentence", ylabel="seconds")
        axes.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str]) -> None:
    args = parse(argv)
    logging.getLogger().setLevel(logging.WARNING)  # fairseq sets it to INFO
    models = parse_models(args)
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
        part = args.out / f"part.{name}"
        write(part)
        os.replace(part, args.out / name)
    print(f"\n{text}\n{args.out / 'benchmark.png'} has the plot")


if __name__ == "__main__":
    main(sys.argv[1:])
