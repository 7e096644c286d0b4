#!/usr/bin/env python
"""Times whole fairseq models, or attention modules alone, against length, at a constant number of tokens in a batch.

    scripts/benchmark.py --out results/models
    scripts/benchmark.py --out results/modules --parts modules --user-dir examples/peers --device cuda --dtype float16

Weights and inputs are random, as speed does not depend on what a model has learnt. The contenders take turns, so that
other load on the machine affects them all alike. A step of training is that of fairseq's own trainer, in float32 or as
--training says; everything else is in --dtype. The modules are every registered kind of attention, fairseq's own and
that of other packages, all with their linear layers, and without padding or dropout.
"""

from matplotlib import colormaps  # isort: skip  before fairseq, whose logging lets matplotlib's debugging through
from matplotlib.figure import Figure  # isort: skip
from matplotlib.ticker import LogLocator  # isort: skip
from linformer_fairseq import LinformerTransformerModel  # isort: skip  before fairseq, as it silences a message there

import argparse
import contextlib
import copy
import csv
import io
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import distributions
from itertools import accumulate, cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from fairseq.modules import MultiheadAttention
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

from linformer_fairseq.cli.arguments import Parser, count, number
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.cli.tables import table
from linformer_fairseq.models.config import AttentionConfig
from linformer_fairseq.modules import CAUSAL_KINDS, KINDS
from linformer_fairseq.modules.registry import KINDS_AT

STEPS = 8  # of decoding in a run
COLUMNS = 5  # lengths in a table
OPTIMIZER = ["--optimizer", "fused_adam", "--adam-betas", "(0.9, 0.98)"]
TRAINING = "--task translation --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --lr 1e-4"
HALF = {"--fp16", "--amp", "--bf16", "--memory-efficient-fp16", "--memory-efficient-bf16"}
ARCHS = [arch for arch, model in ARCH_MODEL_REGISTRY.items() if model in (TransformerModel, LinformerTransformerModel)]
Contender = tuple[Callable[[dict[str, Any]], object], dict[str, Any]]  # what is timed, and the state that it changes
Attention = tuple[Any, Callable[..., Tensor], int]  # a module, how it is called, and which axis are the tokens


class Use(NamedTuple):
    """What one run uses; NaN where that is not measured."""

    peak_bytes: float = np.nan  # the most that it holds beside weights and inputs
    busy: float = np.nan  # seconds that the GPU works
    kernels: float = np.nan  # that the GPU runs, copies and fills among them


class Row(NamedTuple):
    """Median and quartiles of a contender's seconds, NaN where memory ran out, and what a run uses."""

    part: str
    name: str
    length: int
    sentences: int
    tokens: int  # of all sentences, without padding
    median: float
    lower: float
    upper: float
    peak_bytes: float
    busy: float
    kernels: float

    def __str__(self) -> str:
        if np.isnan(self.median):
            return "out of memory"
        time, busy, memory = (
            f"{float(f'{x:.3g}'):,g}" for x in (self.median * 1e3, self.busy * 1e3, self.peak_bytes / 1e6)
        )
        use = "" if np.isnan(self.busy) else f", {busy} ms busy, {self.kernels:,.0f} kernels"
        return f"{time} ms{use}" + ("" if np.isnan(self.peak_bytes) else f", {memory} MB")

    def beside(self, baseline: "Row | None") -> str:
        """Writes the row for a table: bold where it is faster than a baseline, after ≈ where quartiles overlap."""
        if baseline in (None, self) or np.isnan([self.median, baseline.median]).any():
            return str(self)
        return f"**{self}**" if self.upper < baseline.lower else f"{'≈ ' * (self.lower <= baseline.upper)}{self}"


def encoder(model: TransformerModelBase, batch: dict[str, Any]) -> Contender:
    """A forward pass of the encoder"""
    return lambda _: model.encoder(batch["net_input"]["src_tokens"]), {}


def translation(model: TransformerModelBase, batch: dict[str, Any]) -> Contender:
    """A step of greedy decoding, which adds a token to every sentence: mean of the last steps of a target"""
    target = batch["net_input"]["prev_output_tokens"]
    decoder, filled, n = model.decoder, dict[str, Any](), target.size(1)
    encoded = model.encoder(batch["net_input"]["src_tokens"])
    # what comes before these steps goes through each layer at once, as thousands of single steps would take long
    _, extra = decoder(target[:, :-STEPS], encoder_out=encoded, features_only=True)
    memory, padding = encoded["encoder_out"][0], encoded["encoder_padding_mask"][0]
    for layer, x in zip(decoder.layers, extra["inner_states"], strict=False):  # one more is the last layer's output
        layer(x, memory, padding, filled, self_attn_mask=decoder.buffered_future_mask(x))
    return lambda state: [decoder(target[:, :end], encoded, state) for end in range(n - STEPS + 1, n + 1)], filled


def search(model: TransformerModelBase, batch: dict[str, Any]) -> Contender:
    """A beam search with five hypotheses for as many tokens as the source has: mean of its steps"""
    longest = batch["target"].size(1) - 1  # and the end of the sentence
    lengths = {"max_len_a": 0, "max_len_b": longest, "min_len": longest}
    generator = SequenceGenerator([model], model.decoder.dictionary, beam_size=5, **lengths)
    return lambda _: generator.generate([model], batch), {}


def training(trainer: Trainer, batch: dict[str, Any]) -> Contender:
    """A step of fairseq's trainer: forward, backward and the optimizer's update of the whole model"""

    def step(_: dict[str, Any]) -> None:
        try:
            trainer.train_step([batch], raise_oom=True)
        finally:
            trainer.model.zero_grad()  # so that no model's gradients take memory from the others
            metrics.reset()  # nor what is logged, which all share

    # the scale of the loss falls until an update does not overflow
    while (trainer.cfg.common.fp16 or trainer.cfg.common.amp) and not trainer.get_num_updates():
        step({})
    return step, {}


MODELS = {part.__name__: part for part in (encoder, translation, training, search)}
PLACES = {"self": "Encoder self-attention", "cross": "Cross-attention", "causal": "Causal self-attention"}
IN_MODEL = {"self": "encoder", "cross": "cross", "causal": "decoder"}
PASSES = {"forward": "forward alone", "training": "forward and backward", "step": "a step of decoding"}
MODULES = [f"{place}-{name}" for place in PLACES for name in PASSES if place == "causal" or name != "step"]
PACKAGES: dict[str, Callable[[int, int, int, int], nn.Module]] = {  # that have no kind, by width, heads, length and k
    "linformer": lambda c, h, n, k: import_module("linformer").LinformerSelfAttention(c, n, k=k, heads=h),
    "linformer-pytorch": lambda c, h, n, k: import_module("linformer_pytorch").MHAttention(
        n, c // h, c, k, h, 0.0, "C0", "headwise", None, None, full_attention=False, causal_mask=None
    ),
    "local-attention": lambda c, h, n, k: import_module("local_attention").LocalMHA(
        dim=c, window_size=256, dim_head=c // h, heads=h, look_forward=1, use_rotary_pos_emb=False
    ),
}
say_once = cache(tqdm.write)


def called(module: Any, x: Tensor, memory: Tensor, state: dict[str, Any] | None = None) -> Tensor:
    """Calls attention with the signature of fairseq's, which needs a mask to be causal; a decoder makes that once."""
    mask = module.future_mask if state is None else None
    return module(x, memory, memory, None, state, need_weights=False, attn_mask=mask)[0]


def attention(name: str, place: str, k: int, length: int, args: argparse.Namespace) -> Attention:
    """Builds attention for sentences of one length; a kind as a model has it."""
    own = {"self_attention": place != "cross", "encoder_decoder_attention": place == "cross"}
    if name in PACKAGES:
        package = PACKAGES[name](args.dim, args.heads, length, k)
        return package, lambda x, _: package(x), 1
    module = MultiheadAttention(args.dim, args.heads, **own)
    if name != "fairseq":
        where = IN_MODEL[place]
        flags = {"linformer_attention": where, f"linformer_{where}_projection": name}
        flags |= {"linformer_k": str(k)} if KINDS_AT[where][name].options.uses_k else {}
        config = AttentionConfig.from_namespace(argparse.Namespace(**flags)).in_model([where])
        (kind,) = config.attention(where, 1, length)
        module = kind(args.dim, args.heads, **own)
    mask = torch.full((length, length), -torch.inf).triu(1) if (name, place) == ("fairseq", "causal") else None
    module.register_buffer("future_mask", mask, persistent=False)
    return module, partial(called, module), 0


def attentions(place: str, length: int, args: argparse.Namespace) -> dict[str, Attention]:
    """Builds all attention that there is for a place, and says once what is left out, and why."""
    takes_k = {"full": False, "fairseq": False}
    takes_k |= {name: kind.options.uses_k for name, kind in KINDS_AT[IN_MODEL[place]].items()}
    takes_k |= {name: name != "local-attention" for name in PACKAGES if place == "self"}
    built = {}
    for name, k in [(name, k) for name in takes_k if name in (args.only or takes_k) for k in args.k]:
        try:  # what takes no k has one title for all
            built[f"{name}, k = {k}" if takes_k[name] else name] = attention(name, place, k, length, args)
        except (ImportError, ValueError) as error:  # a missing package, a k that does not fit
            say_once(f"{place}, {name} is left out: {error}")
    return built


@torch.no_grad()
def check(place: str, args: argparse.Namespace) -> None:
    """Refuses to time what gives no attention's output, in float32 and at the first length."""
    found, outs = attentions(place, args.lengths[0], args), dict[str, Tensor]()
    x, memory = torch.randn(2, 2, args.lengths[0], args.dim, device=args.device)
    if not found:
        raise UserError(f"{place}: nothing is left to measure at {args.lengths[0]} tokens: choose other --only.")
    if both := found.keys() >= {"full", "fairseq"}:
        found["full"][0].load_state_dict(found["fairseq"][0].state_dict())
    for name, (module, call, time_axis) in found.items():
        module.to(args.device).eval()
        query, keys = (y.transpose(1, time_axis) for y in (x, memory))
        out = outs[name] = call(query, keys if place == "cross" else query)
        if out.shape != query.shape or not out.isfinite().all():
            raise UserError(f"{place}, {name}: its output is no attention's, so nothing was timed; see --only.")
    if both and not torch.allclose(outs["full"], outs["fairseq"], 1e-3, 1e-4):
        raise UserError(f"{place}: full attention and fairseq's differ here, so nothing was timed.")


def build(flags: Sequence[str], args: argparse.Namespace, trains: bool = False) -> Any:
    """Builds a model, or fairseq's trainer of it, as fairseq-train does, from its flags."""
    torch.manual_seed(1)
    words = Dictionary(extra_special_symbols=map(str, range(args.vocabulary)))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            parser, cpu = options.get_training_parser(), ["--cpu"] if args.device == "cpu" else []
            own = ["no-data", *TRAINING.split(), *cpu, "--distributed-world-size", "1", "--save-dir", str(args.out)]
            settings = options.parse_args_and_arch(parser, [*own, *flags])
            if not trains:
                return TranslationTask(TranslationConfig.from_namespace(settings), words, words).build_model(settings)
            config = convert_namespace_to_omegaconf(settings)
            task = TranslationTask(config.task, words, words)
            trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
            trainer.cuda_env = None  # with which every step would reset torch's record of the most memory
            trainer.optimizer.zero_grad()  # which builds it
            return trainer
        except (SystemExit, AssertionError, ValueError) as error:
            reason = (said.getvalue() if str(error) == "2" else str(error)).rpartition("error: ")[2].strip()
            raise UserError(f"fairseq refuses {shlex.join(flags)}: {reason}") from None


def random_batch(part: str, length: int, args: argparse.Namespace) -> dict[str, Any]:
    """Returns a batch of random sentences, padded as fairseq does where they have different lengths.

    The first is as long as all may be. A target is as long as its source in training, and longest everywhere else.
    """
    torch.manual_seed(1)  # the same for all
    words, shape = Dictionary(), (args.tokens // length, length)
    lengths = torch.randint(args.shortest or length, length + 1, shape[:1])
    lengths[0] = length
    both = words.nspecial + torch.randint(args.vocabulary, (2, *shape))
    both[..., -1] = words.eos()
    pairs = [
        {"id": i, "source": source[-n:], "target": target[-n if part == "training" else 0 :]}
        for i, (source, target, n) in enumerate(zip(*both, lengths.tolist(), strict=True))
    ]
    return collate(pairs, words.pad(), words.eos())


def start(part: str, timed: Any, length: int, args: argparse.Namespace) -> Contender:
    """Returns what times a part of a model, or an attention module, on random inputs."""
    if part in MODELS:
        batch = random_batch(part, length, args)
        is_moved = part == "training" or args.device == "cpu"  # by the trainer, in every step
        return MODELS[part](timed, batch if is_moved else utils.move_to_cuda(batch))
    torch.manual_seed(1)  # the same for all
    shape, dtype, (place, _, passes) = (args.tokens // length, length), getattr(torch, args.dtype), part.partition("-")
    module, call, axis = timed
    module.to(args.device, dtype).train(passes == "training")
    inputs = torch.randn(3, *shape, args.dim, device=args.device, dtype=dtype)
    x, memory, upstream = inputs.transpose(2, 1 + axis).contiguous()
    memory = memory if place == "cross" else x
    if passes == "forward":
        return lambda _: call(x, memory), {}
    if passes == "training":
        wanted = [y for y in {x.requires_grad_(), memory.requires_grad_(), *module.parameters()} if y.requires_grad]
        return lambda _: torch.autograd.grad(call(x, memory), wanted, upstream, allow_unused=True), {}
    filled = dict[str, Any]()
    before, *tokens = x.split([length - STEPS, *[1] * STEPS], axis)
    call(before, before, filled)
    return lambda state: [call(token, token, state) for token in tokens], filled


def in_turn(
    make: Any, cases: Mapping[str, Any], rounds: int, device: str, peaks: bool = True
) -> dict[str, tuple[list[float], Use]]:
    """Returns every contender's seconds, run by run, and what a run uses; NaN where a GPU's memory ran out.

    Args:
        peaks: whether memory is measured; on a CPU that keeps a record of every operation.
    """
    contenders, names, seconds = dict[str, Contender](), list(cases), {name: list[float]() for name in cases}
    for _ in range(rounds):
        for name in list(names):
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                run, state = contenders[name] = contenders.get(name) or make(*cases[name])
                state = copy.deepcopy(state)
                wait(device)
                start = time.perf_counter()
                run(state)
                wait(device)
                seconds[name].append(time.perf_counter() - start)
                continue
            names.remove(name)  # what has run out of memory does not take it from the others again
            contenders.pop(name, None)
            torch.cuda.empty_cache()
        names = names[1:] + names[:1]  # in every round another one begins
    uses = {name: Use() for name in cases}
    for name, own in contenders.items():
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            uses[name] = Use(peak(*own, device) if peaks else np.nan, *(work(*own) if device == "cuda" else ()))
    return {name: (own + [np.nan] * (rounds - len(own)), uses[name]) for name, own in seconds.items()}


def wait(device: str) -> None:
    """Waits until a GPU has done all that it was told to."""
    if device == "cuda":
        torch.cuda.synchronize()


def work(run: Callable[[dict[str, Any]], object], state: dict[str, Any]) -> tuple[float, float]:
    """Returns the seconds that a GPU is busy with a run, and the number of its kernels; NaN if torch records none."""
    state = copy.deepcopy(state)
    wait("cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as recorder:
        run(state)
        wait("cuda")
    events = [event for event in recorder.events() if event.device_type.name == "CUDA"]
    # newer torch also records what a program calls a part of it
    kernels = [event.time_range.elapsed_us() for event in events if not getattr(event, "is_user_annotation", False)]
    return (sum(kernels) / 1e6, len(kernels)) if kernels else (np.nan, np.nan)


def peak(run: Callable[[dict[str, Any]], object], state: dict[str, Any], device: str) -> float:
    """Returns the most bytes that a run holds at a time, beyond those in use before it."""
    state = copy.deepcopy(state)
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(state)
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorder:
        run(state)
    # all allocations and releases; newer torch counts nanoseconds, older microseconds
    events = [event for event in recorder.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns() if hasattr(event, "start_ns") else event.start_us())
    return max(accumulate((event.nbytes() for event in events), initial=0))


def measure(part: str, args: argparse.Namespace) -> Iterator[Row]:
    """Measures all contenders, length by length."""
    trainings = args.training if part == "training" else {"": []} if part in MODELS else {}
    built = {
        f"{name}, {title}" if len(trainings) > 1 and title else name: build([*flags, *more], args, part == "training")
        for title, more in trainings.items()
        for name, flags in args.models.items()
    }
    for model in built.values() if part != "training" else ():
        model.load_state_dict(model.state_dict())  # fairseq 0.12.2 has a faster encoder for loaded weights alone
        model.to(args.device, getattr(torch, args.dtype)).make_generation_fast_(need_attn=False)
    for length in args.lengths:
        per_run = {"translation": STEPS, "causal-step": STEPS, "search": length}.get(part, 1)
        found = built or attentions(part.partition("-")[0], length, args)
        cases = {name: (part, each, length, args) for name, each in found.items()}
        sentences = args.tokens // length
        tokens = random_batch(part, length, args)["net_input"]["src_lengths"].sum() if built else sentences * length
        # training a model on a CPU warms up at the first length alone: a run takes long, and the first is hardly longer
        warm_up = 3 if args.device == "cuda" else int(part != "training" or length == args.lengths[0])
        with torch.set_grad_enabled(part.endswith("training")):
            # a search has too many operations for a record of them
            peaks = part != "search" or args.device == "cuda"
            measured = in_turn(start, cases, warm_up + args.repeats, args.device, peaks)
        for name, (seconds, use) in measured.items():
            median, lower, upper = np.quantile(np.array(seconds[warm_up:]) / per_run, [0.5, 0.25, 0.75]).tolist()
            use = use._replace(busy=use.busy / per_run, kernels=use.kernels / per_run)
            row = Row(part, name, length, sentences, int(tokens), median, lower, upper, *use)
            tqdm.write(f"{part}, {length:,} tokens, {name}: {row}")
            sys.stdout.flush()
            yield row


def recorded(rows: Iterable[Row], path: Path) -> list[Row]:
    """Writes rows as they come, so that what was measured is kept if a run is cut short, and returns them."""
    written = list[Row]()
    for row in rows:
        with open(path, "a" if written else "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([row] if written else [Row._fields, row])
        written.append(row)
    return written


def machine() -> str:
    """Returns one line with processor, cores, GPU and versions."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info.read_text() if info.exists() else "", re.MULTILINE)
    parts = [f"{(names or [platform.processor() or platform.machine()])[0]}, {os.cpu_count()} cores"]
    parts += [torch.cuda.get_device_name(0)] if torch.cuda.is_available() else []
    fairseq = next(
        f"{name} {dist.version}" for name in ("fairseq-fixed", "fairseq") for dist in distributions(name=name)
    )
    return "; ".join([*parts, f"Python {platform.python_version()}, torch {torch.__version__}, {fairseq}"])


def report(rows: list[Row], args: argparse.Namespace, argv: Sequence[str]) -> str:
    """Returns a table of every part, for the longest sentences, and what made it."""
    lengths, tables = args.lengths[-COLUMNS:], ""
    header = ["", *(f"{length:,} × {args.tokens // length:,}" for length in lengths)]
    for part in args.parts:
        found = {(row.name, row.length): row for row in rows if row.part == part}
        names, (place, _, passes) = list(dict.fromkeys(name for name, _ in found)), part.partition("-")
        cells = {(name, n): row.beside(found.get((names[0], n))) for (name, n), row in found.items()}
        lines = [[name, *(cells.get((name, n), "–") for n in lengths)] for name in names]
        title = f"{PLACES[place]}, {PASSES[passes]}" if passes else MODELS[part].__doc__
        tables += f"\n## {title}\n\n{table(header, lines)}\n"
    padding = f", with padding, as sentences have at least {args.shortest}" if args.shortest else ""
    gpu = ", how long and with how many kernels the GPU is busy in one" if any(row.kernels > 0 for row in rows) else ""
    dtype = "" if args.parts == ["training"] else f", {args.dtype}"
    steps = "; ".join(f"`{shlex.join(flags)}`" for flags in args.training.values())
    trained = f"\n- Training: fairseq's trainer, {steps}" if "training" in args.parts else ""
    git = f"git -C {shlex.quote(str(Path(__file__).parent))} describe --always --dirty 2>/dev/null || echo unknown"
    return f"""# Time and memory against length

Tokens of a sentence × sentences, in batches of {args.tokens:,} source and {args.tokens:,} target tokens{padding}:
median of {args.repeats} runs, the contenders in turn{gpu}, and the most memory that a run takes, weights and inputs
apart (not of a search on a CPU). What is faster than the first line is **bold**; ≈ stands before what does not differ
from it, as their quartiles overlap.
`benchmark.csv` has all lengths and quartiles. k is that of all attention, unless `--flags` below says otherwise.

- Machine: {machine()}; {args.device}, {args.threads} threads{dtype}{trained}
- Commit: {subprocess.getoutput(git)}
- Command: `{shlex.join(["scripts/benchmark.py", *argv])}`
{tables}"""


def plot(path: Path, rows: list[Row], args: argparse.Namespace) -> None:
    """Draws time, from quartile to quartile, and memory of every part against the length."""
    names, colours = dict.fromkeys(row.name for row in rows), cycle(["black", *colormaps["tab20"](range(20))])
    styles = {name: {"color": c, "marker": m} for name, c, m in zip(names, colours, cycle("osvDP^X*"), strict=False)}
    figure, lines = Figure(figsize=(10, 3 * len(args.parts) + 2), layout="constrained"), {}
    for part, panels in zip(args.parts, figure.subplots(len(args.parts), 2, squeeze=False), strict=True):
        for name, style in styles.items():
            own = [(x.length, x.median, x.lower, x.upper, x.peak_bytes) for x in rows if x[:2] == (part, name)]
            length, median, lower, upper, held = np.array(own).reshape(-1, 5).T * [[1], [1e3], [1e3], [1e3], [1e-6]]
            lines[name] = panels[0].errorbar(length, median, [median - lower, upper - median], **style)
            panels[1].plot(length, held, **style)
        for axes, unit in zip(panels, ("milliseconds", "megabytes"), strict=True):
            if not any(np.isfinite(line.get_ydata()).any() for line in axes.get_lines()):
                axes.set_visible(False)  # nothing was measured, or everything ran out of memory
                continue
            axes.set(title=part, xlabel="tokens of a sentence", ylabel=unit, xscale="log", yscale="log")
            axes.set_xticks(args.lengths, labels=[f"{length:,}" for length in args.lengths])
            axes.set_xticks([], minor=True)
            axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:,g}", minor_formatter="")
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=3)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150, format="png")


def check_precision(args: argparse.Namespace) -> None:
    """Refuses flags of precision that would have no effect, or that fairseq does not take on this device."""
    if named := sorted(HALF & set(args.flags)):
        raise UserError(f"{named[0]} is for training alone: give it as --training={named[0]}.")
    if args.training and "training" not in args.parts:
        raise UserError("--training is for the part training alone: add that to --parts, or leave it out.")
    if args.parts == ["training"] and args.dtype != "float32":
        raise UserError("--dtype is for all but training: choose --training=--amp or --training=--fp16 instead.")
    if named := sorted(HALF & {word for flags in args.training or () for word in flags}):
        if any("bf16" in flag for flag in named):
            raise UserError(f"{named[0]} looks for a TPU in fairseq-train: choose --amp or --fp16.")
        if args.device == "cpu":
            raise UserError(f"{named[0]} needs a GPU in fairseq's trainer: choose --device cuda, or leave it out.")


def main(argv: Sequence[str]) -> None:
    """Measures what a command line asks for, and writes the results."""
    archs = ["transformer", "full_transformer", "linformer_transformer", "two_level_transformer"]
    longer = number(int, STEPS + 1, 10**9, f"a whole number above {STEPS}, the steps of decoding in a run")
    add = (parser := Parser(description=__doc__)).add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder for benchmark.md, .csv and .png")
    add("--parts", nargs="+", choices=[*MODELS, *MODULES, "modules"], default=list(MODELS)[:3], help="what is measured")
    add("--k", nargs="+", type=count, default=[64], help="projected dimensions to measure with")
    add("--lengths", nargs="+", type=longer, default=[256, 512, 1024, 2048, 4096], help="tokens in a sentence")
    add("--tokens", type=count, default=4096, help="tokens in a batch, with padding, on each of source and target side")
    add("--shortest", type=count, metavar="N", help="models get sentences of random lengths from N on, and padding")
    add("--repeats", type=number(int, 3, 10**9, "3 or more"), default=7, help="timed runs of each, after a warm-up")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="device to measure on")
    add("--dtype", choices=["float32", "float16", "bfloat16"], default="float32", help="precision of all but training")
    add("--threads", type=count, default=torch.get_num_threads(), help="CPU threads")
    add("--arch", nargs="+", choices=ARCHS, default=archs, metavar="ARCH", help="models; the first is the baseline")
    add("--flags", type=shlex.split, default="", help="fairseq flags for models, as '--encoder-layers 2 --dropout 0'")
    text = f"fairseq flags for training, as --training=--fp16, after {shlex.join(OPTIMIZER)} unless they have another"
    add("--training", type=shlex.split, action="append", metavar="FLAGS", help=f"{text}; may be repeated")
    add("--vocabulary", type=count, default=10_000, help="words in a model's vocabulary")
    add("--dim", type=count, default=512, help="width of modules")
    add("--heads", type=count, default=8, help="attention heads of modules")
    add("--only", nargs="+", metavar="NAME", help="modules (default: all): fairseq, names of kinds and packages")
    add("--user-dir", type=Path, metavar="DIR", help="a package that registers more kinds, such as examples/peers")
    args = parser.parse_args(argv)
    args.parts = list(dict.fromkeys(part for name in args.parts for part in (MODULES if name == "modules" else [name])))
    args.lengths = sorted(set(args.lengths))
    if (longest := args.lengths[-1]) > args.tokens:
        raise UserError(f"--lengths {longest} is longer than a batch: choose --tokens {longest} or more.")
    check_precision(args)
    if args.shortest and not set(args.parts) <= MODELS.keys():
        raise UserError("--shortest pads batches of models alone: leave it out, or choose other --parts.")
    if args.shortest and args.shortest > args.lengths[0]:
        raise UserError(f"--shortest {args.shortest} is longer than --lengths {args.lengths[0]}: choose a smaller one.")
    if args.dim % args.heads:
        raise UserError(f"--dim {args.dim} is no multiple of --heads {args.heads}: choose others.")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda needs a GPU that torch sees: use --device cpu.")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler would print when it begins and ends
    if args.user_dir and not (args.user_dir / "__init__.py").is_file():
        raise UserError(f"--user-dir {args.user_dir} is no Python package: name a folder with an __init__.py.")
    utils.import_user_module(args)
    if unknown := set(args.only or []) - (known := {"fairseq", *KINDS, *CAUSAL_KINDS, *PACKAGES}):
        raise UserError(f"--only {min(unknown)} is no attention known here: choose from {', '.join(sorted(known))}.")
    given = {shlex.join(flags): flags for flags in args.training or [[]]}
    args.training = {  # fairseq's flags, by what was given
        name: [*OPTIMIZER * all(word.partition("=")[0] != OPTIMIZER[0] for word in flags), *flags]
        for name, flags in given.items()
    }
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    args.models = {}  # fairseq's flags, by the model's name in the tables
    for arch, k in [(arch, k) for arch in args.arch for k in args.k]:
        name, flags = arch, f"--arch {arch} --max-source-positions {longest} --max-target-positions {longest}"
        if ARCH_MODEL_REGISTRY[arch] is LinformerTransformerModel and not arch.startswith("full_"):
            name, flags = f"{arch}, k = {k}", f"{flags} --linformer-attention encoder,cross,decoder --linformer-k {k}"
        args.models[name] = flags.split() + args.flags
    for place in dict.fromkeys(part.partition("-")[0] for part in args.parts if part in MODULES):
        check(place, args)
    for flags in args.training.values() if "training" in args.parts[1:] else ():
        build([*args.models[next(iter(args.models))], *flags], args, trains=True)  # what fairseq refuses, at once
    parts = tqdm(args.parts, unit="part", disable=None)
    rows = recorded((row for part in parts for row in measure(part, args)), args.out / "benchmark.csv")
    with replacing(args.out / "benchmark.md") as path:
        path.write_text(text := report(rows, args, argv), encoding="utf-8")
    plot(args.out / "benchmark.png", rows, args)
    print(f"\n{text}\n{args.out / 'benchmark.png'} has the plot")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:]), "benchmark.csv has what was measured so far."))
