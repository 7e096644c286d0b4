"""The datasets that the recipe knows, each in a file of its own."""

from argparse import Namespace
from collections.abc import Sequence

from linformer_fairseq.cli.errors import UserError

from .base import Dataset
from .documents import DocumentFolder, MadeDocuments
from .folder import Folder
from .synthetic import Synthetic
from .wmt14 import Wmt14

DATASETS: tuple[type[Dataset], ...] = (Folder, Wmt14, Synthetic)
"""Texts of sentences. The last one has no flag: it is taken where no other is asked for."""
OF_DOCUMENTS: tuple[type[Dataset], ...] = (DocumentFolder, MadeDocuments)
"""Texts of documents, likewise."""


def from_arguments(args: Namespace, known: Sequence[type[Dataset]]) -> Dataset:
    """Returns the one of the known datasets that a command line asks for.

    Raises:
        UserError: it asks for two, or for languages that the dataset is not in.
    """
    asked = [dataset for dataset in known if dataset.flag and getattr(args, dataset.flag[2:].replace("-", "_"))]
    if len(asked) > 1:
        raise UserError(f"{asked[0].flag} and {asked[1].flag} name two texts: leave one out.")
    dataset = (asked or known)[-1].from_arguments(args)
    if dataset.languages and dataset.languages != {args.source_lang, args.target_lang}:
        languages = " and ".join(sorted(dataset.languages))
        raise UserError(f"{dataset.name} is in {languages} only: name your own text with {Folder.flag}.")
    return dataset
