"""Documents in Python: fairseq's hub interface, which a checkpoint is loaded into, with `translate_document`."""

from typing import Any

from fairseq.hub_utils import GeneratorHubInterface

from linformer_fairseq.tasks.document_translation import DocumentTranslationTask
from linformer_fairseq.tasks.sentences import join_sentences, split_sentences


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
    def from_hub(cls, hub: GeneratorHubInterface) -> "DocumentHubInterface":
        """Returns the interface to the same models and task."""
        return cls(hub.cfg, hub.task, hub.models).to(hub.device)

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """fairseq's `generate`; what would end one of its commands with a sentence is a ValueError here."""
        try:
            return super().generate(*arguments, **options)
        except SystemExit as error:
            raise ValueError(str(error).removeprefix("error: ")) from None

    def translate_document(self, sentences: list[str], beam: int = 5, **options: Any) -> list[str]:
        """Translates the sentences of one document together.

        Args:
            sentences: as the checkpoint's tokeniser and subword encoder take them.
            beam: hypotheses at a time.
            options: flags of fairseq-generate by their names in Python, `lenpen=0.6`.

        Returns:
            the translations, as many as there are sentences unless `--sentence-count free` is set.

        Raises:
            ValueError: a task other than `document_translation`, a sentence that is empty or holds the separator, or
                one that is longer than the model.
        """
        if not isinstance(self.task, DocumentTranslationTask):
            raise ValueError(
                "the checkpoint is not of --task document_translation: train with it, or load with "
                'task={"_name": "document_translation"}'
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
        return split_sentences(self.translate(join_sentences(sentences, separator), beam=beam, **options), separator)
