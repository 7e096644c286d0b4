"""The whole models that are measured: fairseq's Transformer, and Linformers of the same size."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.models.config import LinformerConfig

from ..models import TRANSFORMER, ModelSizes, build

DEFAULTS = LinformerConfig()
ALL_LINEAR = "encoder,cross,decoder"


@dataclass(frozen=True)
class Contender:
    """A model without its sizes."""

    name: str
    arch: str
    flags: dict[str, str | int] = field(default_factory=dict)

    def build(self, sizes: ModelSizes, task: TranslationTask, positions: int) -> TransformerModelBase:
        """Returns the model for sources and targets of up to `positions` tokens, in training mode."""
        longest = {"max_source_positions": positions, "max_target_positions": positions}
        return build(self.arch, sizes, task, **longest, **self.flags)


def transformer() -> Contender:
    return Contender(TRANSFORMER, "transformer_wmt_en_de")


def linformer(
    k: int,
    attention: str = DEFAULTS.linformer_attention,
    sharing: str = DEFAULTS.linformer_sharing,
    projection: str = "linear",
) -> Contender:
    """Returns a Linformer; its name says what differs from the usual one."""
    name = f"Linformer, k = {k}"
    if attention != DEFAULTS.linformer_attention:
        name += f" ({attention.replace(',', ', ')})"
    if sharing != DEFAULTS.linformer_sharing:
        name += f", sharing {sharing}"
    if projection != "linear":
        name += f", {projection}"
    flags = {
        "linformer_k": str(k),
        "linformer_attention": attention,
        "linformer_sharing": sharing,
        "linformer_projection": projection,
        "linformer_window": 0,
    }
    return Contender(name, "linformer_transformer_wmt_en_de", flags)


def contenders(ks: Sequence[int], all_linear_k: int | None) -> list[Contender]:
    """Returns fairseq's Transformer, a Linformer for each k, and one that projects the decoder's self-attention too."""
    all_linear = [] if all_linear_k is None else [linformer(all_linear_k, ALL_LINEAR)]
    return [transformer(), *(linformer(k) for k in ks), *all_linear]
