"""Documents of random words, and the task that translates them."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor

from linformer_fairseq.tasks.document_translation import DocumentTranslationConfig, DocumentTranslationTask
from tests.models.toy import batch, toy_model

SEPARATOR = "<sep>"


def document_task(words: int = 12, **flags: object) -> DocumentTranslationTask:
    """Returns a task over some words and the separator."""
    dictionary = Dictionary()
    for word in [*(f"w{word}" for word in range(words)), SEPARATOR]:
        dictionary.add_symbol(word)
    return DocumentTranslationTask(DocumentTranslationConfig(**flags), dictionary, dictionary)


def document_model(task: DocumentTranslationTask, arch: str = "linformer_transformer", **flags: object) -> Any:
    """Returns a random model in double precision, whose outputs do not repeat its inputs."""
    return toy_model(arch, task, share_all_embeddings=False, **flags).double()


def document(task: DocumentTranslationTask, lengths: Sequence[int], seed: int = 0) -> Tensor:
    """Returns a document with sentences of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    first, end = task.src_dict.nspecial, task.source_separator
    tokens: list[int] = []
    for length in lengths:
        tokens += [*torch.randint(first, end, (length,), generator=generator).tolist(), task.source_separator]
    return torch.tensor([*tokens[:-1], task.src_dict.eos()])


def generator(task: DocumentTranslationTask, models: list[TransformerModelBase], **flags: object) -> Any:
    """Returns the generator that fairseq's commands would build with these flags."""
    config = GenerationConfig()
    for name, value in flags.items():
        setattr(config, name, value)
    return task.build_generator(models, config)


def translate_documents(
    task: DocumentTranslationTask, model: TransformerModelBase, documents: list[Tensor], **flags: object
) -> list[list[dict[str, Any]]]:
    """Returns the hypotheses of some documents in one batch."""
    return task.inference_step(generator(task, [model], **flags), [model], batch(task, documents, left_pad=True))


def counts(task: DocumentTranslationTask, tokens: Tensor) -> int:
    """Returns the number of sentences of a translation."""
    return int(tokens.eq(task.target_separator).sum()) + 1
