"""The order of the conversion."""

from typing import Any

import torch

from linformer_fairseq.checkpoints import check_checkpoint, check_torch, read_checkpoint, write_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.length_buckets import buckets
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.trained import load_split, load_trained

from .arguments import Conversion
from .checkpoint import built, converted
from .compare import OutputDrift, compare
from .fitting import fit, learned
from .report import summary, write_report

TRAINING = "train"


def run(asked: Conversion) -> None:
    """Converts a checkpoint, fits and compares the new model where that is asked for, and writes its checkpoint."""
    torch.set_num_threads(asked.threads)
    check_torch("Converting")
    check_checkpoint(asked.checkpoint)
    torch.manual_seed(asked.seed)
    state = converted(read_checkpoint(asked.checkpoint), asked.checkpoint, asked.config)
    if asked.data is not None:
        drifts = _compare(asked, state)
        say(summary(drifts))
        if asked.report is not None:
            write_report(asked, drifts)
            say(f"The report is in {asked.report / 'report.md'}.")
    write_checkpoint(state, asked.output)
    say(f"The converted model is in {asked.output}.")
    say(f"To fine-tune it: fairseq-train --finetune-from-model {asked.output} {asked.model_flags}")


def _compare(asked: Conversion, state: dict[str, Any]) -> list[list[OutputDrift]]:
    """Compares the trained model with the converted one, and with the fitted one, whose E and F replace `state`'s."""
    trained = load_trained(asked.checkpoint, asked.data)
    split = load_split(trained, asked.subset)
    models = [built(state)]
    if asked.fit:
        fitted = built(state)
        if not learned(fitted):
            raise UserError("There is no E or F to fit: --fit needs --linformer-projection linear or pooled-linear.")
        text = load_split(trained, TRAINING, "--fit takes its sentences from there, so leave it out")
        fit(trained.model, fitted, text.sentences, text.sample(asked.fit, asked.seed))
        models.append(fitted)
        weights = projection_weights(fitted.state_dict())
        state["model"] |= {name: weight.to(state["model"][name].dtype) for name, weight in weights.items()}
    return compare(trained, models, split, buckets(asked.lengths))
