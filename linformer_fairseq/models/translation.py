"""fairseq's `transformer` with another attention: its Python interface, which translates documents."""

from typing import Any

from fairseq.models.transformer import TransformerModel

from linformer_fairseq.models.register import SwappedModel, register_with_attention
from linformer_fairseq.tasks.hub import DOCUMENT_FLAGS, DocumentHubInterface


class LinformerTransformerModel(SwappedModel, TransformerModel):
    """fairseq's `transformer` with another attention in any of three places: the encoder's self-attention, the
    decoder's cross-attention and its causal self-attention."""

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        **kwargs: Any,
    ) -> DocumentHubInterface:
        """fairseq's `from_pretrained`, whose interface translates documents as well.

        Args:
            kwargs: flags that replace those of the checkpoint; `task="document_translation"` and flags of that task
                for one that was trained as fairseq's `translation`.
        """
        task = kwargs.pop("task", None)
        hub = super().from_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)
        flags = {name: value for name, value in kwargs.items() if task and name in DOCUMENT_FLAGS}
        return DocumentHubInterface.from_hub(hub, task, **flags)


register_with_attention("transformer", LinformerTransformerModel)
