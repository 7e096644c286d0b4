"""Training one model, from wherever an earlier attempt stopped."""

import os
import shutil
import zipfile
from pathlib import Path

from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.progress import say

from . import logs
from .fairseq_command import command_line, run_fairseq
from .settings import Model, Settings

DONE = "train.json"
LOG = "train.log"
LOG_INTERVAL = 50


def training_arguments(model: Model, settings: Settings, out: Path, folder: Path) -> list[str]:
    """The arguments of fairseq-train: the same for every model but for the architecture and the folder."""
    every = str(settings.validate_updates)
    return [
        str(out / "bin"),
        *("--task", "translation"),
        *("--source-lang", settings.source_lang, "--target-lang", settings.target_lang),
        *model.arguments(settings),
        *("--share-all-embeddings", "--dropout", str(settings.dropout)),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(settings.label_smoothing)),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"),
        *("--lr", str(settings.lr), "--lr-scheduler", "inverse_sqrt"),
        *("--warmup-updates", str(settings.warmup_updates)),
        *("--max-tokens", str(settings.max_tokens), "--required-batch-size-multiple", "1"),
        *("--max-epoch", str(settings.epochs), "--seed", str(settings.seed), "--num-workers", "0"),
        *("--validate-interval-updates", every, "--save-interval-updates", every),
        *("--keep-interval-updates", "1", "--no-epoch-checkpoints"),
        *("--save-dir", str(folder / "checkpoints")),
        *("--log-format", "json", "--log-interval", str(LOG_INTERVAL)),
        *settings.train_args,
    ]


def trained(model: Model, out: Path) -> bool:
    """Whether a model has been trained to its last epoch."""
    return (out / "models" / model.slug / DONE).exists()


def train(model: Model, settings: Settings, out: Path, jobs: int, lock: int) -> None:
    """Train a model to its last epoch; `train.json` in its folder says that this has been done."""
    folder = out / "models" / model.slug
    if trained(model, out):
        say(f"Training {model.name}: done before")
        return
    folder.mkdir(parents=True, exist_ok=True)
    again = repair_checkpoints(folder / "checkpoints")
    say(f"Training {model.name}{', from where it stopped' if again else ''} ...")
    arguments = training_arguments(model, settings, out, folder)
    run_fairseq(
        "train",
        arguments,
        log=folder / LOG,
        threads=settings.threads,
        lock=lock,
        on_line=lambda line: _show_progress(model, settings, line),
        what=model.name,
    )
    write_json(
        folder / DONE,
        {
            "k": model.k,
            "attention": model.attention,
            "jobs": jobs,
            "machine": describe_machine(),
            "command": command_line("train", arguments),
        },
    )


def _show_progress(model: Model, settings: Settings, line: str) -> None:
    found = logs.entry(line)
    if not found:
        return
    kind, values = found
    if kind == "train_inner":
        done = 100 * values["update"] / settings.epochs
        say(
            f"  {model.name}: {done:3.0f} %, epoch {values['epoch']:.0f} of {settings.epochs}, "
            f"update {values['num_updates']:.0f}, loss {values['loss']:.2f}, {values['wps']:,.0f} tokens/s"
        )
    elif kind == "valid":
        update, perplexity = values["valid_num_updates"], values["valid_ppl"]
        say(f"  {model.name}: validation perplexity {perplexity:.2f} after {update:.0f} updates")


def repair_checkpoints(folder: Path) -> bool:
    """Replace checkpoints that a kill left half copied; says whether there is one to go on from.

    fairseq writes a checkpoint whole under one name, then copies it to its other names (best, last) in place:
    a broken one is always a copy of the newest whole one.
    """
    if not folder.is_dir():
        return False
    for part in folder.glob("*.tmp"):
        part.unlink()
    checkpoints = sorted(folder.glob("checkpoint*.pt"), key=lambda path: path.stat().st_mtime_ns)
    whole = [path for path in checkpoints if zipfile.is_zipfile(path)]
    for path in checkpoints:
        if path in whole:
            continue
        if not whole:
            path.unlink()
            continue
        part = path.with_name(path.name + ".tmp")
        shutil.copyfile(whole[-1], part)
        os.replace(part, path)
    return (folder / "checkpoint_last.pt").exists()
