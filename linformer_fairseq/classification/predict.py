"""The classes that a fine-tuned model gives texts."""

from pathlib import Path
from threading import Lock

import numpy
import torch
from fairseq import utils

from linformer_fairseq.recipe import texts
from linformer_fairseq.recipe.steps import build_folder
from linformer_fairseq.trained import Split, load_split, load_trained

from .arguments import Settings
from .prepare import SUBSETS
from .sets import DEV, LABEL, TEST
from .trainings import HEAD, FineTuning

PREDICTED = "predicted"
PREDICTIONS = "predictions"
"""The folder in that of a model."""
_LOADING = Lock()  # fairseq changes a module of another package while it loads


def store_predictions(own: FineTuning, settings: Settings, threads: int) -> None:
    """Writes the labels of the texts of dev and test, and those that a fine-tuned model gives them, as
    tab-separated files in the order of the texts."""
    folder = own.folder / PREDICTIONS
    if folder.is_dir():
        return
    with _LOADING:
        build_folder(folder, f"Classifying with {own.name}", lambda to: _write(own, settings, threads, to))


def _write(own: FineTuning, settings: Settings, threads: int, to: Path) -> None:
    torch.set_num_threads(threads)
    labels = own.texts.labels
    for split in (DEV, TEST):
        found = predict(own.checkpoint, own.data, SUBSETS[split], settings.batch_size, settings.on_cpu)
        pairs = zip(own.texts.splits[split], found, strict=True)
        lines = [f"{example.label}\t{labels[number]}" for example, number in pairs]
        texts.write_lines(to / f"{split}.tsv", [f"{LABEL}\t{PREDICTED}", *lines])


def read_predictions(own: FineTuning, split: str) -> list[int]:
    """Returns the class that a model has given every text of a split."""
    lines = texts.read_lines(own.folder / PREDICTIONS / f"{split}.tsv")[1:]
    return [own.texts.labels.index(line.split("\t")[1]) for line in lines]


@torch.no_grad()
def predict(checkpoint: Path, data: Path, subset: str, batch_size: int, on_cpu: bool) -> list[int]:
    """Returns the most probable class of every text of a split of binary data, in its order.

    Raises:
        UserError: the checkpoint does not fit the data.
    """
    trained = load_trained(checkpoint, data)
    split = load_split(trained, subset)
    model = trained.model if on_cpu else trained.model.cuda()
    classes = numpy.full(len(split.sentences), -1)
    for batch in _batches(split, batch_size):
        sample = split.sentences.collater([split.sentences[index] for index in batch])
        sample = sample if on_cpu else utils.move_to_cuda(sample)
        logits, _ = model(**sample["net_input"], features_only=True, classification_head_name=HEAD)
        classes[sample["id"].tolist()] = logits.argmax(1).tolist()
    return [int(number) for number in classes]


def _batches(split: Split, batch_size: int) -> list[list[int]]:
    """Returns the texts of a split in batches of about the same length."""
    ordered = sorted(split.indices, key=split.sentences.num_tokens)
    return [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]
