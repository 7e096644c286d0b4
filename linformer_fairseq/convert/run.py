"""Runs the conversion step by step."""

import shlex
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
from linformer_fairseq.length_buckets import Bucket, buckets
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.trained import Trained, load_split, load_trained

from .arguments import Conversion
from .checkpoint import build_model, build_original, convert_state, vocabulary_sizes
from .compare import Comparison, compare
from .families import MASKED_LANGUAGE_MODEL, family_of, is_of_fairseq, task_of
from .finetune import finetuning_command
from .fitting import fit, fittable_attention
from .reach import Reach, reaches
from .report import PICTURE, exact_texts, summary, write_report
from .texts import RandomEncoderTexts, RandomTexts, SplitTexts

TRAINING = "train"
MASKING = "masked_lm"
"""The task whose data masked language models are compared on."""


def run(asked: Conversion) -> None:
    """Writes the converted checkpoint, after fitting it, comparing it and reporting where that is asked for."""
    if asked.report is not None:
        from .plots import plot_comparison  # where matplotlib is missing, this ends before the work starts
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
    exact = exact_texts(*reaches(model)) if is_of_fairseq(trained, family) else ""
    if asked.data and family is MASKED_LANGUAGE_MODEL and task_of(trained) != MASKING:
        raise UserError(f"--data has the masks of {MASKING}, and {asked.checkpoint} is of another task: leave it out.")
    comparison = _compare_on_split(asked, model, state) if asked.data else _compare_on_tokens(asked, trained, model)
    if comparison is not None:
        say(summary(comparison, asked.data is not None))
    if asked.report is not None and comparison is not None:
        asked.report.mkdir(parents=True, exist_ok=True)
        plot_comparison(comparison, asked.data is not None, config.linformer_k, asked.report / PICTURE)
        write_report(asked, family, exact, comparison)
        say(f"The report is in {asked.report / 'report.md'}.")
    write_checkpoint(state, asked.output)
    if exact:
        say(exact)
    say(f"The converted model is in {asked.output}.")
    command = finetuning_command(asked, family, config, state)
    if command is None:
        flags = f"--finetune-from-model {shlex.quote(str(asked.output))} {family.flags(config)}"
        say(f"To fine-tune it, give the command of its training an architecture of this package, and {flags}")
    else:
        say(f"To fine-tune it with the settings of its training:\n{command}")


def _compare_on_split(asked: Conversion, model: BaseFairseqModel, state: dict[str, Any]) -> Comparison:
    """Returns how far the converted model and the fitted one are; the weights of the latter replace those in `state`.

    Args:
        model: the converted model, of `state`.
    """
    assert asked.data is not None
    trained = load_trained(asked.checkpoint, asked.data)
    split = load_split(trained, asked.subset)
    models = [model]
    if asked.fit:
        models.append(_fitted(asked, trained, state))
    source, target = reaches(model)
    texts = SplitTexts(trained, split, has_sources=source is not None)
    by_source, by_position = ([] if r is None else buckets(r.ends(asked.lengths)) for r in (source, target))
    found = compare(trained.model, models, texts, texts.number, by_source, by_position)
    if not found.sources[0] and not found.positions[0]:
        raise UserError(f"{asked.subset} has no masked token: name another --subset.")
    return found


def _compare_on_tokens(asked: Conversion, trained: dict[str, Any], model: BaseFairseqModel) -> Comparison | None:
    """Returns how far the converted model is on random tokens; None where that is not asked for.

    Args:
        trained: the state of the trained model.
    """
    if not asked.texts:
        return None
    source, target = reaches(model)
    _check_lengths(asked.lengths, source, target)
    lengths, ends = (() if r is None else r.ends(asked.lengths) for r in (source, target))
    words = vocabulary_sizes(trained["model"])
    texts: RandomTexts | RandomEncoderTexts
    if target is None:
        texts = RandomEncoderTexts(words[0], lengths, asked.texts, asked.seed)
    else:
        exact = (None if source is None else source.exact, target.exact)
        texts = RandomTexts(words, lengths, ends[-1], exact, asked.texts, asked.seed)
    by_source = [Bucket(length, length) for length in lengths]
    return compare(build_original(trained), [model], texts, texts.number, by_source, buckets(ends)[:-1])


def _check_lengths(lengths: tuple[int, ...] | None, source: Reach | None, target: Reach | None) -> None:
    """Refuses lengths that no text of a model can have."""
    longest = max(reach.longest for reach in (source, target) if reach is not None)
    if lengths is not None and lengths[-1] > longest:
        raise UserError(f"--lengths {lengths[-1]} is longer than the {longest} tokens that the model takes.")


def _fitted(asked: Conversion, trained: Trained, state: dict[str, Any]) -> BaseFairseqModel:
    """Returns the model with E and F fitted to attention maps of the trained one, which replace those in `state`."""
    fitted = build_model(state)
    if not fittable_attention(fitted):
        raise UserError("There is no E or F to fit: --fit needs --linformer-projection linear or pooled-linear.")
    text = load_split(trained, TRAINING, "--fit takes its sentences from there, so leave it out")
    fit(trained.model, fitted, text.sentences, text.sample(asked.fit, asked.seed))
    weights = projection_weights(fitted.state_dict())
    state["model"] |= {name: weight.to(state["model"][name].dtype) for name, weight in weights.items()}
    return fitted
