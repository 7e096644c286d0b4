"""Speed and memory of training steps, of models with random weights on random tokens."""

from pathlib import Path
from typing import Any

import torch
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.masked_lm import MaskedLMTask

from linformer_fairseq.benchmark.efficiency.trainer import Trainer, measure_steps
from linformer_fairseq.benchmark.timing import INPUT_SETS
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe.flags import parse_training
from linformer_fairseq.recipe.precision import precision_of_steps, type_of_steps

from .arguments import Study
from .arms import BASELINE
from .text import BIN
from .trainings import MASKED, Training, training_arguments, training_of

FILE_NAME = "costs.json"
SEED = 1

Row = dict[str, Any]
"""What one model costs at one length."""


def measure_costs(study: Study) -> None:
    """Adds to costs.json what is not there yet: tokens per second and peak memory of a training step of every model at
    every length, the models in turn, each row with `base`, that of the Transformer that was measured beside it (empty
    where there is none). What was measured in another way, or on another machine, is measured anew."""
    path = study.out / FILE_NAME
    settings = study.settings
    asked = {
        "repeats": study.repeats,
        "max_tokens": settings.max_tokens,
        "precision": precision_of_steps(settings.precision, settings.on_cpu),
        "models": {name: getattr(settings, name) for name in ("arch", "convolution")}
        | {"size_flags": list(settings.size_flags), "k": study.k},
        "threads": study.threads,
        "machine": describe_machine(),
    }
    before = read_json(path) if path.exists() else None
    rows: list[Row] = before["rows"] if before and before["asked"] == asked else []
    for length in study.lengths:
        done = {row["arm"] for row in rows if row["length"] == length}
        if not done.issuperset(arm.name for arm in study.arms):
            say(f"Measuring training, blocks of {length:,} tokens ...")
            rows = [row for row in rows if row["length"] != length] + _measured(study, length)
            write_json(path, {"asked": asked, "rows": rows})


def _measured(study: Study, length: int) -> list[Row]:
    settings = study.settings
    device = torch.device("cpu" if settings.on_cpu else "cuda")
    torch.set_num_threads(study.threads)
    precision = type_of_steps(settings.precision, settings.on_cpu)
    words = Dictionary.load(str(study.out / BIN / "dict.txt"))
    trainers = {}
    for arm in study.arms:
        own = training_of(arm, study, length, SEED)
        trainers[arm.name] = _trainer(own, study, words, device, precision)
    sentences = max(1, settings.max_tokens // length)
    samples = [_blocks(words, sentences, length, SEED + number, device) for number in range(INPUT_SETS)]
    measured = {
        name: {
            "arm": name,
            "length": length,
            "k": study.k,
            "tokens_per_second": sentences * length / found.time.median if found.time else None,
            "peak_bytes": found.peak_bytes,
            "note": found.note,
        }
        for name, found in measure_steps(trainers, samples, study.repeats, device).items()
    }
    base = measured.get(BASELINE, {})
    return [{**row, "base": base} for row in measured.values()]


def _trainer(own: Training, study: Study, words: Dictionary, device: torch.device, precision: torch.dtype) -> Trainer:
    arguments = training_arguments(own, study.settings, Path(), study.settings.updates)
    cfg = convert_namespace_to_omegaconf(parse_training(arguments))
    task = MaskedLMTask(cfg.task, words)
    torch.manual_seed(SEED)
    model = task.build_model(cfg.model)
    loss = MaskedLmLoss(MaskedLmConfig(tpu=False), task)
    return Trainer(model.to(device).train(), task, precision, loss)


def _blocks(words: Dictionary, sentences: int, length: int, seed: int, device: torch.device) -> dict[str, Any]:
    """Returns a batch of blocks of random words, of which some are masked and to be predicted."""
    generator = torch.Generator().manual_seed(seed)
    mask = words.index("<mask>")
    tokens = torch.randint(words.nspecial, mask, (sentences, length), generator=generator)
    predicted = torch.rand(sentences, length, generator=generator) < MASKED
    target = tokens.masked_fill(~predicted, words.pad()).to(device)
    return {
        "net_input": {"src_tokens": tokens.masked_fill(predicted, mask).to(device)},
        "target": target,
        "ntokens": sentences * length,
        "nsentences": sentences,
    }
