"""Loads a trained model with its task and data, for the commands that analyse or convert it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.data import FairseqDataset
from fairseq.models import BaseFairseqModel
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks import FairseqTask

from linformer_fairseq.checkpoints import check_checkpoint, read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode, and the task that holds its dictionaries and data."""

    model: BaseFairseqModel
    task: FairseqTask


def load_trained(checkpoint: Path, data: Path) -> Trained:
    """Loads a checkpoint of any of fairseq's models or of this package.

    Args:
        checkpoint: a file that fairseq-train saved.
        data: the folder that it was trained on.

    Raises:
        UserError: the file is no checkpoint or is refused by torch's safe loader, or the folder lacks what its task
            reads, such as dictionaries.
    """
    check_checkpoint(checkpoint)
    if hasattr(torch.serialization, "add_safe_globals"):  # refuses what would run code, whichever loader fairseq uses
        read_checkpoint(checkpoint)
    overrides = {"data": str(data), **plain_encoder()}
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), overrides)
    try:
        task = tasks.setup_task(state["cfg"].task, from_checkpoint=True)
    except Exception as error:  # whatever a task makes of another folder
        raise UserError(f"{data} is not the data of {checkpoint} ({error}): name what it was trained on.") from None
    try:
        models, *_ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], task=task, state=state)
    except RuntimeError:  # torch's, on sizes
        raise UserError(
            f"{checkpoint} does not fit the dictionaries in {data}: name the data that it was trained on."
        ) from None
    return Trained(models[0].eval(), task)


@dataclass(frozen=True)
class Split:
    """A split of a task's data."""

    sentences: FairseqDataset
    indices: list[int]
    """The sentences that are short enough for the model."""

    def sample(self, count: int, seed: int) -> list[int]:
        """Returns the indices of `count` sentences, or of all if there are fewer, in random order."""
        order = torch.randperm(len(self.indices), generator=torch.Generator().manual_seed(seed)).tolist()
        return [self.indices[place] for place in order[:count]]


def load_split(trained: Trained, name: str, advice: str = "name another --subset") -> Split:
    """Loads a split of the task's data, such as "valid".

    Raises:
        UserError: there is no such split, or no sentence in it is short enough for the model; it ends with `advice`.
    """
    try:
        trained.task.load_dataset(name)
    except FileNotFoundError as error:
        raise UserError(f"there is no {name} in the data ({error}): {advice}.") from None
    sentences = trained.task.dataset(name)
    sentences.set_epoch(1)  # as fairseq-validate does; it decides the masks of a masked language model
    longest = utils.resolve_max_positions(trained.task.max_positions(), trained.model.max_positions())
    taken, _ = sentences.filter_indices_by_size(numpy.arange(len(sentences)), longest)
    if not len(taken):
        raise UserError(f"{name} has no sentence that the model takes, of at most {longest} tokens: {advice}.")
    if len(taken) < len(sentences):
        say(f"{len(sentences) - len(taken):,} of {name}'s {len(sentences):,} sentences are too long for the model.")
    return Split(sentences, taken.tolist())


def plain_encoder() -> dict[str, Any]:
    """Returns settings that keep fairseq 0.12.2 from running a loaded Transformer's encoder in torch's fused kernel.

    The kernel refuses left-padded batches ("Mask Type should be defined"), returns no attention weights, and times of a
    fused baseline would not be comparable. The one flag that turns it off without changing the result is that for
    checkpointed activations, which has no other effect without gradients.
    """
    has_fused_path = "_load_from_state_dict" in vars(TransformerEncoderLayerBase)
    return {"checkpoint_activations": True} if has_fused_path else {}
