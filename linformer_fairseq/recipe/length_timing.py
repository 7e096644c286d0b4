"""Time of forward passes and training steps against sentence length, at a constant number of tokens in a batch.

Times do not depend on what a model has learnt: the models have random weights, and positions for the longest sentence.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.benchmark.efficiency.batches import Sample, equally_long
from linformer_fairseq.benchmark.efficiency.trainer import Trainer
from linformer_fairseq.benchmark.forward import ENCODER, WHOLE, forward_call, random_tokens, shapes
from linformer_fairseq.benchmark.memory import release
from linformer_fairseq.benchmark.timing import interleaved
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.config import ALL_PLACES

from .settings import POSITION_FLAGS, Model, Settings
from .train import training_arguments

FILE_NAME = "lengths.json"
WARM_UP = 1
TRAINING = "training step"
"""Forward and backward of the whole model, and the update of its weights."""


@dataclass(frozen=True)
class Lengths:
    """Sentence lengths to time the models at."""

    tokens: int
    """Source tokens in a batch, whatever the length of the sentences."""
    lengths: list[int]
    """Lengths of sentences in tokens; those beyond `tokens` are left out."""
    repeats: int
    ks: list[int] = dataclasses.field(default_factory=list)
    """k of further models of each kind, which are not trained, and are linear in all attention."""
    training: bool = False
    """Whether to time training steps too."""


@dataclass(frozen=True)
class _Contender:
    """A model to time."""

    net: TransformerModelBase
    """As fairseq-generate makes it."""
    trainer: Trainer | None
    """Trains another model of the same form; None where training steps are not timed."""


def measure_lengths(wanted: Lengths, models: list[Model], settings: Settings, out: Path, threads: int) -> bool:
    """Adds to `out/lengths.json` the seconds per batch of every model at every length that is not there yet.

    Args:
        models: those that have been trained, which are timed with the same settings; `wanted.ks` adds others.

    Returns:
        Whether there was any such length.
    """
    path = out / FILE_NAME
    precision = settings.training.inference_precision
    device = torch.device("cpu" if settings.training.on_cpu else "cuda")
    untrained = _untrained(wanted.ks, models)
    asked = {
        **dataclasses.asdict(wanted),
        "models": [model.name for model in models + untrained],
        "untrained": [model.name for model in untrained],
        "threads": threads,
        "precision": precision,
        "machine": describe_machine(),
    }
    before = read_json(path) if path.exists() else None
    rows = before["rows"] if before and before["asked"] == asked else []
    done = {row["length"] for row in rows}
    batches = shapes(wanted.tokens, wanted.lengths)
    missing = [(length, sentences) for length, sentences in batches if length not in done]
    if not missing:
        say("Timing the models at several lengths: already done")
        return False
    say(f"Timing the models at several lengths, {wanted.tokens:,} tokens per batch ...")
    torch.set_num_threads(threads)
    longest = max(length for length, _ in batches)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    # the exact length of those that were trained was chosen for the text that they were trained on
    default = dataclasses.replace(settings, training=dataclasses.replace(settings.training, exact_below=None))
    contenders = {}
    for model in models + untrained:
        build = partial(_build, model, default if model in untrained else settings, out, longest, device)
        net, _ = build()
        net.eval()
        net.make_generation_fast_(need_attn=False)
        contenders[model] = _Contender(net.to(dtype), Trainer(*build(), dtype) if wanted.training else None)
    for length, sentences in missing:
        rows = [*rows, *_rows(length, sentences, contenders, wanted.repeats, device)]
        write_json(path, {"asked": asked, "rows": rows})
        say(f"  {length:,} tokens per sentence, {sentences} at a time: done")
    return True


def _untrained(ks: list[int], models: list[Model]) -> list[Model]:
    """Returns models of the same kinds with these k, but for those that are there."""
    kinds = dict.fromkeys(model.projection for model in models if model.k)
    return [model for kind in kinds for k in ks if (model := Model(k, ALL_PLACES, kind)) not in models]


def _rows(
    length: int, sentences: int, contenders: dict[Model, _Contender], repeats: int, device: torch.device
) -> list[dict[str, Any]]:
    """Returns the times of all models at one length, part by part, as lengths.json has them."""
    rows = []
    for part, calls in _calls(length, sentences, contenders, device).items():
        with torch.set_grad_enabled(part == TRAINING):
            timings = interleaved(calls, repeats, WARM_UP, device)
        for model in contenders:
            row = {"model": model.name, "part": part, "length": length, "sentences": sentences}
            spread = timings.spreads.get(model)
            row["seconds"] = spread.median if spread else None
            row["quartiles"] = [spread.lower, spread.upper] if spread else None
            row["note"] = timings.notes.get(model, "")
            rows.append(row)
        release(device)
    return rows


def _calls(
    length: int, sentences: int, contenders: dict[Model, _Contender], device: torch.device
) -> dict[str, dict[Model, Callable[[int], Any]]]:
    """Returns what to time of every model, by part."""
    words = next(iter(contenders.values())).net.encoder.dictionary
    tokens = random_tokens(words, sentences, length, device)
    calls = {
        part: {model: forward_call(part, own.net, tokens) for model, own in contenders.items()}
        for part in (ENCODER, WHOLE)
    }
    trainers = {model: own.trainer for model, own in contenders.items() if own.trainer}
    if trainers:
        [batch] = equally_long(length, sentences * length, words, seed=1, device=device).samples
        calls[TRAINING] = {model: partial(_train, trainer, batch) for model, trainer in trainers.items()}
    return calls


def _train(trainer: Trainer, batch: Sample, run: int) -> None:
    """Takes a training step, and ignores its number."""
    trainer.step(batch)


def _build(
    model: Model, settings: Settings, out: Path, longest: int, device: torch.device
) -> tuple[TransformerModelBase, TranslationTask]:
    """Returns a model with random weights in training mode, and its task."""
    positions = [part for flag in POSITION_FLAGS for part in (flag, str(longest))]
    arguments = [*training_arguments(model, settings, out, out, freq=1), *positions]
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
    task = tasks.setup_task(args)
    return task.build_model(args).to(device), task
