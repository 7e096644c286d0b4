"""Runs the conversion step by step."""

import shlex
from argparse import Namespace

import torch
from fairseq.models import BaseFairseqModel

from linformer_fairseq.checkpoints import check_checkpoint, check_torch, read_checkpoint, write_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say
from linformer_fairseq.trained import Trained, load_split, load_trained

from . import compare
from .building import build_model, build_original
from .checkpoint import convert_state, new_attention, to_fairseq, with_settings
from .finetune import finetuning_command, words_of
from .fitting import fit


def run(asked: Namespace) -> None:
    """Writes the converted checkpoint that a command line asks for, fitted and compared."""
    torch.set_num_threads(asked.threads)
    check_torch("Converting")
    check_checkpoint(asked.checkpoint)
    torch.manual_seed(asked.seed)
    trained = with_settings(read_checkpoint(asked.checkpoint), asked.checkpoint)
    before = load_trained(asked.checkpoint, asked.data) if asked.data else build_original(trained)
    if asked.to_fairseq:
        state = to_fairseq(trained, asked.checkpoint)
    else:
        flags, config = new_attention(trained, asked.flags, before.model)
        state = convert_state(trained, config)
    model = build_model(state, before.task)
    exact = compare.exact_length(before.model, model)
    comparable = compare.can_compare(model, on_text=asked.data is not None)
    if not comparable and (asked.fit or asked.csv):
        raise UserError(
            "--fit and --csv are for models that predict words and, without --data, read them: leave them out."
        )
    if asked.fit:
        text = load_split(before, "train", "--fit takes its sentences from there, so leave it out")
        fit(before.model, model, text.sentences, text.sample(asked.fit, asked.seed))
    if asked.texts and comparable:
        _compare(asked, before, model, exact)
    elif asked.texts:
        say("Outputs are not compared: that is for models that predict words and, without --data, read them.")
    write_checkpoint(state, asked.output)
    if exact:
        length = "any length" if exact == compare.ANY_LENGTH else f"up to {exact:,} positions"
        say(f"Sequences of {length} get the same outputs as before, but for rounding.")
    say(f"The converted model is in {asked.output}.")
    if asked.to_fairseq:
        return
    if command := finetuning_command(asked, flags, state):
        say(f"To fine-tune it with the settings of its training:\n{command}")
    else:
        words = shlex.join(["--finetune-from-model", str(asked.output), *words_of(flags)])
        say(f"To fine-tune it, give the command of its training an architecture of this package, and {words}")


def _compare(asked: Namespace, before: Trained, model: BaseFairseqModel, exact: int) -> None:
    """Tells how far the outputs of the converted model are from those of the trained one."""
    longest = compare.longest_text(model)
    lengths = asked.lengths or compare.default_lengths(longest, exact)
    if lengths[-1] > longest:
        raise UserError(f"--lengths {lengths[-1]} is longer than the {longest} tokens that the model takes.")
    if asked.data:
        split = load_split(before, asked.subset)
        samples, number = compare.split_samples(split), len(split.indices)
    else:
        samples = compare.random_samples(model, before.task, lengths, asked.texts, asked.seed)
        number = asked.texts * len(lengths)
    rows = compare.compare(before.model, model, samples, number, lengths, asked.data is not None)
    if not rows:
        raise UserError(f"{asked.subset} has no masked token: name another --subset.")
    say(compare.told(rows, asked.csv))
