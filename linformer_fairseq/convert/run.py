"""The order of the conversion."""

import tempfile
from pathlib import Path
from typing import Any

import torch

from linformer_fairseq.checkpoints import read_checkpoint, write_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.lengths import buckets
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.trained import Trained, load_subset, load_trained

from .arguments import Conversion
from .checkpoint import converted
from .compare import Moved, compare
from .fitting import fit, learned
from .report import summary, write_report

TRAINING = "train"


def run(asked: Conversion) -> None:
    """Converts, compares and fits as far as that is asked for, and writes the checkpoint last."""
    torch.set_num_threads(asked.threads)
    if not hasattr(torch.serialization, "add_safe_globals"):
        raise UserError("Converting needs torch 2.4 or newer, whose safe loader reads fairseq's checkpoints.")
    if not asked.checkpoint.is_file():
        raise UserError(f"{asked.checkpoint} is missing: name a checkpoint that fairseq-train saved.")
    config = asked.config
    if asked.fit:
        _check_fit(config)
    torch.manual_seed(asked.seed)
    state = converted(read_checkpoint(asked.checkpoint), asked.checkpoint, config)
    if asked.data is not None:
        moved = _compare(asked, state)
        say(summary(moved))
        if asked.report is not None:
            write_report(asked, moved)
            say(f"The report is in {asked.report / 'report.md'}.")
    write_checkpoint(state, asked.output)
    say(f"The Linformer is in {asked.output}.")
    say(f"To fine-tune it: fairseq-train --finetune-from-model {asked.output} {asked.model_flags}")


def _compare(asked: Conversion, state: dict[str, Any]) -> list[Moved]:
    """Compares the model with what it became, and with the fitted one, whose E and F it puts into `state`."""
    trained = load_trained(asked.checkpoint, asked.data)
    sentences = load_subset(trained, asked.subset)
    models = [_built(state, asked.data)]
    if asked.fit:
        fitted = _built(state, asked.data)
        if not learned(fitted.model):
            raise UserError("There is no E or F to fit: --fit needs --linformer-projection linear or pooled-linear.")
        text = load_subset(trained, TRAINING)
        order = torch.randperm(len(text), generator=torch.Generator().manual_seed(asked.seed)).tolist()
        fit(trained.model, fitted.model, text, order[: asked.fit])
        models.append(fitted)
        weights = projection_weights(fitted.model.state_dict())
        state["model"] |= {name: weight.to(state["model"][name].dtype) for name, weight in weights.items()}
    return compare(trained, [own.model for own in models], sentences, buckets(asked.lengths))


def _built(state: dict[str, Any], data: Path) -> Trained:
    """The model of a checkpoint's state, built as fairseq builds it from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "converted.pt")
        write_checkpoint(state, path)
        return load_trained(path, data)


def _check_fit(config: LinformerConfig) -> None:
    if config.linformer_sharing not in ("headwise", "none"):
        raise UserError(
            f"--fit finds an E and an F for every layer: use --linformer-sharing headwise or none, not "
            f"{config.linformer_sharing}."
        )
