"""Training a translation model."""

from pathlib import Path

from .course import Course, run_training
from .launch import Machines, update_freq
from .settings import DONE, Model, Settings, Training

DOCUMENT_TASK = "document_translation"
LOG_INTERVAL = 50


def training_arguments(model: Model, settings: Settings, out: Path, folder: Path, freq: int) -> list[str]:
    """Returns the arguments of fairseq-train: the same for every model but for the architecture and the folder."""
    text, training = settings.text, settings.training
    every = str(training.validate_updates)
    return [
        str(out / "bin"),
        *("--task", DOCUMENT_TASK if text.dataset.has_documents else "translation"),
        *("--source-lang", text.source_lang, "--target-lang", text.target_lang),
        *model.arguments(training),
        *("--share-all-embeddings", "--dropout", str(training.dropout)),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(training.label_smoothing)),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"),
        *("--lr", str(training.lr), *_schedule(training)),
        *("--warmup-updates", str(training.warmup_updates)),
        *("--max-tokens", str(training.max_tokens), "--update-freq", str(freq)),
        *("--required-batch-size-multiple", "1", "--num-workers", "0"),
        *("--max-epoch", str(training.epochs), "--max-update", str(training.updates), "--seed", str(training.seed)),
        *("--validate-interval-updates", every, "--save-interval-updates", every),
        *("--keep-interval-updates", str(training.keep_checkpoints), "--no-epoch-checkpoints"),
        *("--save-dir", str(folder / "checkpoints")),
        *("--log-format", "json", "--log-interval", str(LOG_INTERVAL)),
        *(["--cpu"] if training.on_cpu and "--cpu" not in training.train_args else []),
        *training.train_args,
    ]


def _schedule(training: Training) -> list[str]:
    """Returns the flags of what the learning rate does after its warm-up."""
    if training.linear_decay:
        return ["--lr-scheduler", "polynomial_decay", "--total-num-update", str(training.updates)]
    return ["--lr-scheduler", "inverse_sqrt"]


def trained(model: Model, out: Path) -> bool:
    """Returns whether a model has been trained to its end."""
    return (out / "models" / model.slug / DONE).exists()


def train(model: Model, settings: Settings, out: Path, machines: Machines, threads: int, jobs: int) -> None:
    """Trains a model to its end; `train.json` in its folder says that this has been done.

    Machines other than the first one keep nothing but a log, in a folder of their own.
    """
    folder = out / "models" / model.slug
    own = out / "machines" / str(machines.node_rank) / model.slug if machines.node_rank else folder
    freq = update_freq(settings.training.update_batches, machines.world_size)
    arguments = training_arguments(model, settings, out, folder, freq)
    facts = {"k": model.k, "attention": model.attention, "projection": model.projection}
    course = Course.of(settings.training)
    run_training(model.name, folder, arguments, course, machines, threads, jobs, facts=facts, log_folder=own)
