"""The models that are compared: by name, what is projected and how."""

from collections.abc import Callable
from dataclasses import dataclass

from linformer_fairseq.recipe.settings import FAIRSEQ_MAX_POSITIONS, Model


@dataclass(frozen=True)
class Variant:
    """One way to project attention; `attention` is empty for the Transformer, which has none projected."""

    name: str
    what: str
    """For the report."""
    attention: str = ""
    flags: Callable[[int], str] = lambda k: ""
    """Further ones of the model with k slots."""
    slots: Callable[[int], str] = lambda k: ""
    """What `--linformer-k` says where that is not k."""

    def models(self, ks: list[int]) -> list[Model]:
        """One for each k; the Transformer has none."""
        return [Model(k, self.attention, slots=self.slots(k)) for k in ks] if self.attention else [Model()]

    def folder(self, model: Model) -> str:
        """A name for the results of one of the models."""
        return f"{self.name}-k{model.k}" if model.k else self.name


def _kind(name: str) -> str:
    return f"--linformer-projection {name}"


def _opening(slots: int) -> str:
    return f"{_kind('two-level')} --linformer-open-slots {slots}"


TWO, THREE = "encoder,cross", "encoder,cross,decoder"
LINEAR, TWO_LEVEL = _kind("linear"), _opening(3)

_MAIN = (
    Variant("transformer", "full attention"),
    Variant("paper", "the paper's: learned E and F, one each a layer", TWO, lambda k: LINEAR),
    Variant(
        "paper-all",
        "the paper's, and its causal form in the decoder",
        THREE,
        lambda k: f"{LINEAR} --linformer-window 0",
    ),
    Variant("two-level", "means of neighbours, each query opens its best three", TWO, lambda k: TWO_LEVEL),
    Variant(
        "two-level-all",
        "two-level, and in the decoder k/2 causal slots beside the last k/2 tokens",
        THREE,
        lambda k: f"{TWO_LEVEL} --linformer-window {k // 2}",
    ),
)
_SCREENED = (
    Variant("encoder", "the paper's in the encoder alone", "encoder", lambda k: LINEAR),
    Variant("cross", "the paper's in cross-attention alone", "cross", lambda k: LINEAR),
    Variant("decoder", "the causal form in the decoder alone", "decoder", lambda k: f"{LINEAR} --linformer-window 0"),
    Variant(
        "decoder-window",
        "k/2 slots beside the last k/2 tokens in the decoder alone",
        "decoder",
        lambda k: f"{LINEAR} --linformer-window {k // 2}",
    ),
    Variant("normal", "E and F start normal", TWO, lambda k: f"{LINEAR} --linformer-init normal"),
    Variant(
        "identity",
        "E and F start as the identity, empty slots masked",
        TWO,
        lambda k: f"{LINEAR} --linformer-init identity --linformer-mask-empty-slots",
    ),
    Variant("pooled-linear", "means of neighbours, and learned E and F", TWO, lambda k: _kind("pooled-linear")),
    Variant("mean-pool", "means of neighbours", TWO, lambda k: _kind("mean-pool")),
    Variant(
        "conv",
        "a learned convolution over pairs of neighbours: n/2 slots",
        TWO,
        lambda k: _kind("conv"),
        lambda k: str(FAIRSEQ_MAX_POSITIONS // 2),
    ),
    Variant("none", "E and F for every head", TWO, lambda k: _shared("none")),
    Variant("key-value", "one E = F a layer", TWO, lambda k: _shared("key-value")),
    Variant("layerwise", "one E = F for all layers", TWO, lambda k: _shared("layerwise")),
    Variant("falling", "more slots in lower layers", TWO, lambda k: LINEAR, lambda k: f"{3 * k // 2},{k},{k // 2}"),
    Variant("rising", "more slots in higher layers", TWO, lambda k: LINEAR, lambda k: f"{k // 2},{k},{3 * k // 2}"),
    Variant(
        "wide-cross", "twice as many slots in cross-attention", TWO, lambda k: f"{LINEAR} --linformer-cross-k {2 * k}"
    ),
    Variant("two-level-1", "each query opens its best slot", TWO, lambda k: _opening(1)),
    Variant("two-level-2", "each query opens its best two", TWO, lambda k: _opening(2)),
    Variant("two-level-6", "each query opens its best six", TWO, lambda k: _opening(6)),
)


def _shared(name: str) -> str:
    return f"{LINEAR} --linformer-sharing {name}"


BASELINE = "transformer"
MAIN = tuple(variant.name for variant in _MAIN)
"""Those of the tables with all seeds; the others were tried with one."""
VARIANTS = {variant.name: variant for variant in (*_MAIN, *_SCREENED)}
