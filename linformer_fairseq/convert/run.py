"""Runs the conversion step by step."""

from typing import Any

import torch

from linformer_fairseq.checkpoints import check_checkpoint, check_torch, read_checkpoint, write_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.length_buckets import buckets
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.trained import load_split, load_trained

from .arguments import Conversion
from .checkpoint import build_model, convert_state
from .compare import OutputDrift, compare
from .fitting import fit, fittable_attention
from .report import PICTURE, summary, write_report

TRAINING = "train"


def run(asked: Conversion) -> None:
    """Writes the converted checkpoint, after fitting it, comparing it and reporting where that is asked for."""
    if asked.report is not None:
        from .plots import plot_perplexities  # where matplotlib is missing, this ends before the work starts
    torch.set_num_threads(asked.threads)
    check_torch("Converting")
    check_checkpoint(asked.checkpoint)
    torch.manual_seed(asked.seed)
    state = convert_state(read_checkpoint(asked.checkpoint), asked.checkpoint, asked.config)
    if asked.data is not None:
        drifts = _compare(asked, state)
        say(summary(drifts))
        if asked.report is not None:
            asked.report.mkdir(parents=True, exist_ok=True)
            plot_perplexities(drifts, asked.config.linformer_k, asked.report / PICTURE)
            write_report(asked, drifts)
            say(f"The report is in {asked.report / 'report.md'}.")
    write_checkpoint(state, asked.output)
    say(f"The converted model is in {asked.output}.")
    say(f"To fine-tune it: fairseq-train --finetune-from-model {asked.output} {asked.model_flags}")


def _compare(asked: Conversion, state: dict[str, Any]) -> list[list[OutputDrift]]:
    """Returns the drift of the converted model and of the fitted one, whose E and F replace those in `state`."""
    trained = load_trained(asked.checkpoint, asked.data)
    split = load_split(trained, asked.subset)
    models = [build_model(state)]
    if asked.fit:
        fitted = build_model(state)
        if not fittable_attention(fitted):
            raise UserError("There is no E or F to fit: --fit needs --linformer-projection linear or pooled-linear.")
        text = load_split(trained, TRAINING, "--fit takes its sentences from there, so leave it out")
        fit(trained.model, fitted, text.sentences, text.sample(asked.fit, asked.seed))
        models.append(fitted)
        weights = projection_weights(fitted.state_dict())
        state["model"] |= {name: weight.to(state["model"][name].dtype) for name, weight in weights.items()}
    return compare(trained, models, split, buckets(asked.lengths))
