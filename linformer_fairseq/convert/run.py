"""Runs the conversion step by step."""

import shlex
from argparse import Namespace
from typing import Any

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel

from linformer_fairseq.checkpoints import check_checkpoint, check_torch, read_checkpoint, write_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.models.swap import places_of
from linformer_fairseq.modules import BaseAttention
from linformer_fairseq.trained import Trained, load_split, load_trained

from .building import build_model, build_original, complete
from .checkpoint import attention, convert_state, flags_of, to_fairseq, with_settings
from .compare import (
    ANY_LENGTH,
    can_compare,
    compare,
    default_lengths,
    exact_length,
    longest_text,
    random_samples,
    split_samples,
    table_of,
    write_csv,
)
from .finetune import finetuning_command, words_of
from .fitting import fit, fittable_attention

TRAINING = "train"


def run(asked: Namespace) -> None:
    """Writes the converted checkpoint, after fitting it and comparing it where that is asked for.

    Args:
        asked: what `arguments.parse` returns.
    """
    torch.set_num_threads(asked.threads)
    check_torch("Converting")
    check_checkpoint(asked.checkpoint)
    torch.manual_seed(asked.seed)
    trained = with_settings(read_checkpoint(asked.checkpoint), asked.checkpoint)
    before = load_trained(asked.checkpoint, asked.data) if asked.data else build_original(trained)
    if asked.to_fairseq:
        state = to_fairseq(trained, asked.checkpoint)
    else:
        places = _places_of(before.model)
        flags = flags_of(trained, asked.flags, places)
        state = convert_state(trained, attention(flags, places))
    model = build_model(state, before.task)
    exact = exact_length(before.model, model)
    if asked.fit:
        _fit(asked, before, model)
    if asked.texts:
        _compare(asked, before, model, exact)
    complete(state, model)
    write_checkpoint(state, asked.output)
    if exact:
        say(_same_outputs(model, exact))
    say(f"The converted model is in {asked.output}.")
    if not asked.to_fairseq:
        _tell_training(asked, flags, state)


def _places_of(model: BaseFairseqModel) -> set[str]:
    """Returns the places where a model has attention, fairseq's or this package's."""
    own = (module for module in model.modules() if isinstance(module, BaseAttention))
    found = {"cross" if x.encoder_decoder_attention else "decoder" if x.causal else "encoder" for x in own}
    return found | places_of(model)


def _fit(asked: Namespace, before: Trained, model: BaseFairseqModel) -> None:
    """Fits E and F of the converted model to attention maps of the trained one."""
    if not fittable_attention(model):
        raise UserError("There is no E or F to fit: --fit needs --linformer-projection linear.")
    text = load_split(before, TRAINING, "--fit takes its sentences from there, so leave it out")
    fit(before.model, model, text.sentences, text.sample(asked.fit, asked.seed))


def _compare(asked: Namespace, before: Trained, model: BaseFairseqModel, exact: int) -> None:
    """Tells how far the outputs of the converted model are from those of the trained one."""
    on_text = asked.data is not None
    if not can_compare(model, on_text):
        say("Outputs are not compared, as the model does not both read and predict words one by one.")
        return
    longest = longest_text(model)
    lengths = asked.lengths or default_lengths(longest, exact)
    if lengths[-1] > longest:
        raise UserError(f"--lengths {lengths[-1]} is longer than the {longest} tokens that the model takes.")
    if on_text:
        split = load_split(before, asked.subset)
        samples, number = split_samples(before.task, split), len(split.indices)
    else:
        samples, number = (
            random_samples(model, before.task, lengths, asked.texts, asked.seed),
            asked.texts * len(lengths),
        )
    rows = compare(before.model, model, samples, number, lengths, on_text)
    if not rows:
        raise UserError(f"{asked.subset} has no masked token: name another --subset.")
    say(table_of(rows))
    if asked.csv is not None:
        write_csv(rows, asked.csv)


def _same_outputs(model: BaseFairseqModel, exact: int) -> str:
    """Returns the sentence that says up to which length outputs are as before."""
    texts = "Sources and targets" if isinstance(model, FairseqEncoderDecoderModel) else "Texts"
    length = f"up to {min(exact, longest_text(model)):,} tokens"
    if not can_compare(model, on_text=False):  # of sound, for example, which fewer positions stand for in the model
        texts, length = "Inputs", f"up to {exact:,} positions of the attention"
    length = "any length" if exact == ANY_LENGTH else length
    return f"{texts} of {length} get the same outputs as before, but for rounding."


def _tell_training(asked: Namespace, flags: dict[str, Any], state: dict[str, Any]) -> None:
    """Tells how to fine-tune the converted model."""
    command = finetuning_command(asked, flags, state)
    if command is not None:
        say(f"To fine-tune it with the settings of its training:\n{command}")
        return
    words = shlex.join(["--finetune-from-model", str(asked.output), *words_of(flags)])
    say(f"To fine-tune it, give the command of its training an architecture of this package, and {words}")
