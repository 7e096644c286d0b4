"""The flags of the attention of an encoder without a decoder."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import ChoiceEnum

from linformer_fairseq.models.config import AttentionConfig, check_kind, default_flags, described, with_options_of
from linformer_fairseq.modules import KINDS
from linformer_fairseq.modules.registry import DEFAULT_KIND, Kind
from linformer_fairseq.modules.value_convolution import check_width


@dataclass
@with_options_of(KINDS.values(), defaults={}, places={"encoder"})
class EncoderAttentionConfig(AttentionConfig):
    """The flags of the self-attention of an encoder: those of a translation model but for what says where it is."""

    linformer_projection: ChoiceEnum(tuple(KINDS)) = field(  # type: ignore[valid-type]
        default=DEFAULT_KIND, metadata={"help": f"kind of attention: {described(KINDS.values())}"}
    )
    linformer_value_convolution: int = field(
        default=0,
        metadata={
            "help": "width in tokens, odd, of a convolution over the values that is added to the attention, through "
            "which a token sees its neighbours; 0 for none"
        },
    )

    @property
    def places(self) -> set[str]:
        return {"encoder"}

    def validate(self) -> None:
        check_kind("--linformer-projection", self.linformer_projection, KINDS)
        if self.linformer_value_convolution:
            check_width(self.linformer_value_convolution)
        super().validate()
        self._check_needs()

    def kind_of(self, place: str) -> Kind:
        return KINDS[self.linformer_projection]

    def _arguments_of(self, place: str) -> dict[str, Any]:
        return {"value_convolution": self.linformer_value_convolution}

    def _longest_of(self, place: str) -> str:
        return "--max-positions"


def encoder_default_flags(linformer_projection: str) -> dict[str, Any]:
    """The default of every flag of an encoder with this kind of attention."""
    return default_flags(linformer_projection, EncoderAttentionConfig)
