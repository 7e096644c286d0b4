"""Documents in Python: fairseq's hub interface, which a checkpoint is loaded into, with `translate_document`."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.hub_utils import GeneratorHubInterface
from fairseq.tasks import TASK_DATACLASS_REGISTRY, setup_task
from omegaconf import open_dict

from linformer_fairseq.tasks.document_translation import DocumentTranslationConfig, DocumentTranslationTask
from linformer_fairseq.tasks.sentences import join_sentences, split_sentences

DOCUMENT_FLAGS = frozenset(DocumentTranslationConfig.__annotations__)
"""The names of the flags that `document_translation` has beyond fairseq's `translation`."""


@contextmanager
def _value_errors() -> Iterator[None]:
    """Makes a ValueError of a sentence that would end one of fairseq's commands."""
    try:
        yield
    except SystemExit as error:
        raise ValueError(str(error).removeprefix("error: ")) from None


class DocumentHubInterface(GeneratorHubInterface):
    """fairseq's `GeneratorHubInterface` for models that translate documents.

    `LinformerTransformerModel.from_pretrained` returns one; `from_hub` makes one of what any other model's
    `from_pretrained` returns, fairseq's own `TransformerModel` for one. Everything else is as in fairseq.
    """

    def __init__(self, cfg: Any, task: Any, models: Any) -> None:
        super().__init__(cfg, task, models)
        # fairseq builds its encoders past the task, whose own leave the separator whole
        self.tokenizer = task.build_tokenizer(cfg.tokenizer)
        self.bpe = task.build_bpe(cfg.bpe)

    @classmethod
    def from_hub(cls, hub: GeneratorHubInterface, task: str | None = None, **flags: Any) -> "DocumentHubInterface":
        """Returns an interface to the same models.

        Args:
            hub: what a model's `from_pretrained` returns.
            task: replaces the task of the checkpoint; "document_translation" for one that was trained on documents
                as fairseq's `translation`.
            flags: of the task by their names in Python, `sentence_count="free"`; others are the checkpoint's.

        Raises:
            ValueError: a dictionary without the separator, a task without a dataclass of flags, or a flag that the
                task does not have.
        """
        if task is None and not flags:
            return cls(hub.cfg, hub.task, hub.models).to(hub.device)
        cfg = copy.deepcopy(hub.cfg)
        name = task or cfg.task._name
        if name not in TASK_DATACLASS_REGISTRY:
            raise ValueError(f'there is no task {name} with flags to set: name task="document_translation"')
        if unknown := flags.keys() - TASK_DATACLASS_REGISTRY[name].__dataclass_fields__.keys():
            raise ValueError(f"the task {name} has no flag {min(unknown)}: leave it out")
        with open_dict(cfg), _value_errors():
            cfg.task = {**cfg.task, "_name": name, **flags}
            return cls(cfg, setup_task(cfg.task, from_checkpoint=True), hub.models).to(hub.device)

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """fairseq's `generate`; what would end one of its commands with a sentence is a ValueError here."""
        with _value_errors():
            return super().generate(*arguments, **options)

    def translate_document(self, sentences: list[str], beam: int = 5, **options: Any) -> list[str]:
        """Translates the sentences of one document together.

        Args:
            sentences: as the checkpoint's tokeniser and subword encoder take them.
            beam: hypotheses at a time.
            options: flags of fairseq-generate by their names in Python, `lenpen=0.6`.

        Returns:
            the translations, as many as there are sentences unless `--sentence-count free` is set.

        Raises:
            ValueError: a task other than `document_translation`; a sentence that is empty, holds the separator or is
                longer than the model; a translation longer than the model, with `no_split_documents`.
        """
        if not isinstance(self.task, DocumentTranslationTask):
            raise ValueError(
                "the checkpoint is not of --task document_translation: train with it, or name "
                'task="document_translation" when you load a checkpoint that was trained on documents'
            )
        separator = self.task.cfg.sentence_separator
        if isinstance(sentences, str):
            raise ValueError("a document is a list of sentences: put the string into a list")
        for number, sentence in enumerate(sentences, 1):
            if not sentence.strip():
                raise ValueError(f"sentence {number} is empty: leave it out")
            if separator in sentence:
                raise ValueError(f"sentence {number} holds {separator}, which divides sentences: cut it there")
        if not sentences:
            return []
        translated = self.translate(join_sentences(sentences, separator), beam=beam, **options)
        found = split_sentences(translated, separator)
        if self.task.cfg.sentence_count == "forced" and len(found) != len(sentences):
            raise ValueError(
                "the translation is longer than the longest target of the model: leave out --no-split-documents, or "
                "translate fewer sentences at a time"
            )
        return found
