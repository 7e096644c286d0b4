"""Runs the conversion step by step."""

import shlex
from argparse import Namespace
from typing import Any

import torch
from fairseq.models import BaseFairseqModel

from linformer_fairseq.checkpoints import (
    check_checkpoint,
    check_torch,
    model_settings,
    read_checkpoint,
    write_checkpoint,
)
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.trained import Trained, load_split, load_trained

from .checkpoint import build_model, build_original, convert_state, vocabulary_sizes
from .compare import (
    compare,
    default_lengths,
    exact_length,
    longest_text,
    random_samples,
    split_samples,
    table_of,
    write_csv,
)
from .families import MASKED_LANGUAGE_MODEL, TRANSLATION, family_of, is_of_fairseq, task_of
from .finetune import finetuning_command
from .fitting import fit, fittable_attention

TRAINING = "train"
MASKING = "masked_lm"
"""The task whose data masked language models are compared on."""


def run(asked: Namespace) -> None:
    """Writes the converted checkpoint, after fitting it and comparing it where that is asked for.

    Args:
        asked: what `arguments.parse` returns.
    """
    torch.set_num_threads(asked.threads)
    check_torch("Converting")
    check_checkpoint(asked.checkpoint)
    torch.manual_seed(asked.seed)
    trained = read_checkpoint(asked.checkpoint)
    family = family_of(trained, asked.checkpoint)
    config = family.config({**family.kept(model_settings(trained)), **asked.flags})
    state = convert_state(trained, family, config)
    model = build_model(state)
    # texts below the new model's exact length keep their outputs where those were full attention's
    exact = exact_length(model) if is_of_fairseq(trained, family) else None
    if asked.data and family is MASKED_LANGUAGE_MODEL and task_of(trained) != MASKING:
        raise UserError(f"--data has the masks of {MASKING}, and {asked.checkpoint} is of another task: leave it out.")
    if asked.data or asked.texts:
        rows = _compared(asked, trained, model, state, exact)
        say(table_of(rows))
        if asked.csv is not None:
            write_csv(rows, asked.csv)
    write_checkpoint(state, asked.output)
    if exact is not None:
        texts = "Sources and targets" if family is TRANSLATION else "Texts"
        say(f"{texts} of up to {exact:,} tokens get the same outputs as before, but for rounding.")
    say(f"The converted model is in {asked.output}.")
    command = finetuning_command(asked, family, config, state)
    if command is None:
        flags = f"--finetune-from-model {shlex.quote(str(asked.output))} {family.flags(config)}"
        say(f"To fine-tune it, give the command of its training an architecture of this package, and {flags}")
    else:
        say(f"To fine-tune it with the settings of its training:\n{command}")


def _compared(
    asked: Namespace, trained: dict[str, Any], model: BaseFairseqModel, state: dict[str, Any], exact: int | None
) -> list[dict[str, Any]]:
    """Returns how far the outputs of the converted model are from those of the trained one, after fitting it.

    Args:
        trained: the state of the trained model.
        model, state: the converted one, whose E and F fitting replaces.
    """
    longest = longest_text(model)
    lengths = asked.lengths or default_lengths(longest, exact)
    if lengths[-1] > longest:
        raise UserError(f"--lengths {lengths[-1]} is longer than the {longest} tokens that the model takes.")
    if asked.data is None:
        original, number = build_original(trained), asked.texts * len(lengths)
        texts = random_samples(model, vocabulary_sizes(trained["model"]), lengths, asked.texts, asked.seed)
        return compare(original, model, texts, number, lengths, on_text=False)
    loaded = load_trained(asked.checkpoint, asked.data)
    split = load_split(loaded, asked.subset)
    if asked.fit:
        _fit(asked, loaded, model, state)
    samples = split_samples(loaded, split)
    rows = compare(loaded.model, model, samples, len(split.indices), lengths, on_text=True)
    if not rows:
        raise UserError(f"{asked.subset} has no masked token: name another --subset.")
    return rows


def _fit(asked: Namespace, trained: Trained, model: BaseFairseqModel, state: dict[str, Any]) -> None:
    """Fits E and F of the converted model to attention maps of the trained one, in the model and in its state."""
    if not fittable_attention(model):
        raise UserError("There is no E or F to fit: --fit needs --linformer-projection linear.")
    text = load_split(trained, TRAINING, "--fit takes its sentences from there, so leave it out")
    fit(trained.model, model, text.sentences, text.sample(asked.fit, asked.seed))
    weights = projection_weights(model.state_dict())
    state["model"] |= {name: weight.to(state["model"][name].dtype) for name, weight in weights.items()}
