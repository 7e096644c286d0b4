"""The flags of the attention of an encoder without a decoder."""

from dataclasses import dataclass, field
from typing import Any

from linformer_fairseq.models.config import AttentionConfig, default_flags
from linformer_fairseq.modules import KINDS
from linformer_fairseq.modules.registry import DEFAULT_KIND, Kind


@dataclass
class EncoderAttentionConfig(AttentionConfig):
    """The flags of the self-attention of an encoder: those of a translation model but for what says where it is."""

    _places = ("encoder",)

    linformer_projection: str = field(default=DEFAULT_KIND, metadata={"help": "kind of attention: {}", "kinds": KINDS})
    linformer_value_convolution: int = field(
        default=0,
        metadata={
            "help": "width in tokens, odd, of a convolution over the values that is added to the attention, through "
            "which a token sees its neighbours; 0 for none"
        },
    )

    def kind_of(self, place: str) -> Kind:
        return KINDS[self.linformer_projection]

    def _arguments_of(self, place: str) -> dict[str, Any]:
        return {"value_convolution": self.linformer_value_convolution}

    def _longest_of(self, place: str) -> str:
        return "--max-positions"


def encoder_default_flags(linformer_projection: str) -> dict[str, Any]:
    """The default of every flag of an encoder with this kind of attention."""
    return default_flags(linformer_projection, EncoderAttentionConfig)
