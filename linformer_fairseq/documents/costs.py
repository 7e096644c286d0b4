"""Time and memory of the trained models, on documents of fixed lengths.

All models are given the same random tokens and translate into as many: a translation that ends early would look fast.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator

from linformer_fairseq.benchmark.efficiency.batches import equally_long
from linformer_fairseq.benchmark.efficiency.trainer import Trainer, measure_steps
from linformer_fairseq.benchmark.memory import kilobytes, limited_memory, refusal, release
from linformer_fairseq.benchmark.timing import INPUT_SETS
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.main import quiet_libraries
from linformer_fairseq.cli.processes import die_with_parent, run_command
from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.decoder import NO_LAYER
from linformer_fairseq.recipe.precision import precision_of_steps, type_of_steps
from linformer_fairseq.tasks.sentence_search import leave_attention_out
from linformer_fairseq.trained import Trained, load_trained

from .arguments import Study, checkpoint_of
from .arms import FUSED, TRANSFORMER, conversion, for_length
from .sets import TESTED
from .trainings import Training, Variant

FILE_NAME = "costs.json"
TRAINING, TRANSLATION = "training", "translation"
BASELINES = {TRAINING: FUSED.name, TRANSLATION: TRANSFORMER}
"""What the others are compared with."""
WARM_UP_TOKENS = 8
SEED = 1
STATUS = "/proc/self/status"

Row = dict[str, Any]
"""What one model costs at one length."""


def measure_costs(trainings: Sequence[Training], study: Study) -> None:
    """Adds to costs.json what is not there yet: speed and memory of training, time and memory of translation, for every
    model at every length, each row with `base`, that of the Transformer it is compared with, measured beside it (empty
    where there is none). What was measured in another way, or on another machine, is measured anew."""
    path = study.out / FILE_NAME
    names = [training.variant.name for training in trainings]
    settings = study.settings.training
    asked = {
        "repeats": study.repeats,
        "batch_tokens": study.batch_tokens,
        "beam": study.settings.translation.beam,
        "precision": precision_of_steps(settings.precision, settings.on_cpu),
        "translation_precision": settings.inference_precision,
        "threads": study.threads,
        "machine": describe_machine(),
    }
    before = read_json(path) if path.exists() else None
    rows: list[Row] = before["rows"] if before and before["asked"] == asked else []
    if TRANSFORMER in names:
        rows = [row for row in rows if row["base"]]
    for length in study.lengths:
        for part, measure in ((TRAINING, _train), (TRANSLATION, _translate)):
            done = {row["arm"] for row in rows if (row["part"], row["length"]) == (part, length)}
            if done.issuperset(names):
                continue
            say(f"Measuring {part}, documents of {length:,} tokens ...")
            wanted = [own for own in trainings if own.variant.name not in done or own.variant.name == TRANSFORMER]
            measured = list(measure(length, wanted, study))
            base = next((row for row in measured if row["arm"] == BASELINES[part]), {})
            new = [{"part": part, "length": length, **row, "base": base} for row in measured if row["arm"] not in done]
            rows = [*rows, *new]
            write_json(path, {"asked": asked, "rows": rows})


def read_costs(out: Path, arms: Sequence[str]) -> dict[str, Any] | None:
    """Returns what costs.json in a folder says of these models; None where nothing has been measured."""
    path = out / FILE_NAME
    if not path.exists():
        return None
    costs = read_json(path)
    names = [*arms, *([FUSED.name] if TRANSFORMER in arms else [])]
    rows = [row for row in costs["rows"] if row["arm"] in names]
    machine = costs["asked"].pop("machine")
    return {
        "asked": costs["asked"],
        "machines": [machine],
        "rows": sorted(rows, key=lambda row: (row["length"], row["part"], names.index(row["arm"]))),
    }


def load_for_training(arm: Variant, checkpoint: Path, length: int, study: Study) -> Trained:
    """Loads a model for training steps, as it was trained: with activations that no backward pass computes again."""
    overrides = {"checkpoint_activations": False, **_for_length(arm, length, study)}
    return load_trained(checkpoint, study.out / "bin" / TESTED, overrides)


def _for_length(arm: Variant, length: int, study: Study) -> dict[str, str]:
    return for_length(arm, length, study.settings.text.max_subwords, study.k)


def _measured(trainings: Sequence[Training], study: Study) -> Iterator[tuple[Variant, Path]]:
    """Yields the models with their checkpoints, after the Transformer also the one with fused attention everywhere."""
    for training in trainings:
        checkpoint = checkpoint_of(training)
        yield training.variant, checkpoint
        if training.variant.name == TRANSFORMER:
            fused = checkpoint.with_name(f"{FUSED.name}.pt")
            if not fused.exists():
                command = conversion(FUSED, checkpoint, fused, study.k, study.threads)
                run_command(command, "convert", fused.with_suffix(".log"), study.threads)
            yield FUSED, fused


def _train(length: int, trainings: Sequence[Training], study: Study) -> Iterator[Row]:
    """Yields tokens/s and peak memory of a training step of every model, the models in turn."""
    settings = study.settings.training
    device = torch.device("cpu" if settings.on_cpu else "cuda")
    torch.set_num_threads(study.threads)
    precision = type_of_steps(settings.precision, settings.on_cpu)
    loaded = {
        variant.name: load_for_training(variant, checkpoint, length, study)
        for variant, checkpoint in _measured(trainings, study)
    }
    trainers = {name: Trainer(own.model.to(device).train(), own.task, precision) for name, own in loaded.items()}
    words = next(iter(loaded.values())).task.source_dictionary
    tokens = max(settings.max_tokens, length)
    batches = [equally_long(length, tokens, words, SEED + number, device) for number in range(INPUT_SETS)]
    samples = [_without_weights(batch.largest) for batch in batches]
    for name, found in measure_steps(trainers, samples, study.repeats, device).items():
        speed = batches[0].target_tokens / found.time.median if found.time else None
        yield {"arm": name, "tokens_per_second": speed, "peak_bytes": found.peak_bytes, "note": found.note}
    release(device)


def _without_weights(sample: dict[str, Any]) -> dict[str, Any]:
    """Returns a batch for which no layer returns attention weights.

    fairseq's decoder asks its last layer for them in training, too, though no loss here reads them.
    """
    return {**sample, "net_input": {**sample["net_input"], "alignment_layer": NO_LAYER}}


def _translate(length: int, trainings: Sequence[Training], study: Study) -> Iterator[Row]:
    """Yields seconds and peak memory of a beam search, each model in a process of its own."""
    documents, settings = max(1, study.batch_tokens // length), study.settings.training
    options = {
        "beam": study.settings.translation.beam,
        "threads": study.threads,
        "device": "cpu" if settings.on_cpu else "cuda",
        "half": settings.inference_precision == "fp16",
    }
    data = study.out / "bin" / TESTED
    context = multiprocessing.get_context("spawn")
    for variant, checkpoint in _measured(trainings, study):
        row: Row = {
            "arm": variant.name,
            "documents": documents,
            "seconds": None,
            "peak_bytes": None,
            "note": "",
        }
        with ProcessPoolExecutor(1, mp_context=context, initializer=die_with_parent, initargs=(os.getpid(),)) as pool:
            changed = _for_length(variant, length, study)
            found = pool.submit(search, checkpoint, data, length, documents, overrides=changed, **options)
            try:
                row["seconds"], row["peak_bytes"] = found.result()
            except (RuntimeError, MemoryError) as error:  # that the process was killed among them
                row["note"] = refusal(MemoryError() if isinstance(error, BrokenExecutor) else error)
        say(f"  {variant.label}: {row['note'] or format(row['seconds'], ',.1f') + ' s'}")
        yield row


@torch.no_grad()
def search(
    checkpoint: Path,
    data: Path,
    length: int,
    documents: int,
    *,
    beam: int,
    threads: int,
    device: str,
    half: bool,
    overrides: Mapping[str, str] | None = None,
) -> tuple[float, int | None]:
    """Translates documents of `length` random tokens into as many with fairseq's beam search.

    Args:
        half: compute in half precision.
        overrides: settings of the model in place of the checkpoint's.

    Returns:
        Seconds, and the bytes that it takes at its peak beyond the model; None on a system that does not tell.
    """
    quiet_libraries()
    torch.set_num_threads(threads)
    place = torch.device(device)
    loaded = load_trained(checkpoint, data, overrides)
    model, words = loaded.model.to(place), loaded.task.target_dictionary
    model.make_generation_fast_(need_attn=False)
    if half:
        model.half()

    def translate(tokens: int) -> None:
        generator = SequenceGenerator([model], words, beam, max_len_a=0, max_len_b=tokens - 1, min_len=tokens - 1)
        leave_attention_out(generator)
        generator.generate([model], equally_long(tokens, tokens * documents, words, SEED, place).largest)
        if place.type == "cuda":
            torch.cuda.synchronize(place)

    translate(WARM_UP_TOKENS)
    release(place)
    peak = _Peak(place)
    start = time.perf_counter()
    with limited_memory(place):
        translate(length)
    return time.perf_counter() - start, peak.bytes()


class _Peak:
    """The most memory that this process takes from now on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._before: int | None = torch.cuda.memory_allocated(device)
        else:
            self._before = kilobytes(STATUS, "VmRSS")
            try:
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux then forgets the peak so far
            except OSError:
                self._before = None

    def bytes(self) -> int | None:
        if self._before is None:
            return None
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) - self._before
        peak = kilobytes(STATUS, "VmHWM")
        return None if peak is None else 1024 * (peak - self._before)
