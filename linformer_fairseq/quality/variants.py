"""The models that are compared: by name, what is projected and how."""

from dataclasses import dataclass

from linformer_fairseq.recipe.settings import Model


@dataclass(frozen=True)
class Variant:
    """One way to project attention; `attention` is empty for the Transformer, which has none projected."""

    name: str
    what: str
    """For the report."""
    attention: str = ""
    flags: tuple[str, ...] = ()
    """Further ones of the model's; HALF stands for k / 2."""

    def models(self, ks: list[int]) -> list[Model]:
        """One for each k; the Transformer has none."""
        return [Model(k, self.attention) for k in ks] if self.attention else [Model()]

    def flags_for(self, model: Model) -> list[str]:
        """Those of one of the models."""
        return [str(model.k // 2) if flag == HALF else flag for flag in self.flags]

    def folder_for(self, model: Model) -> str:
        """A name for the results of all models that have the same flags."""
        return f"{self.name}-k{model.k}" if HALF in self.flags else self.name


HALF = "k/2"


_PAPER = ("--linformer-projection", "linear")
_TWO_LEVEL = ("--linformer-projection", "two-level")
_WINDOW = ("--linformer-decoder-k", HALF, "--linformer-window", HALF)

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("transformer", "full attention"),
        Variant("paper", "the paper's: learned E and F, one each a layer", "encoder,cross", _PAPER),
        Variant("paper-all", "the same, and the causal decoder", "encoder,cross,decoder", _PAPER),
        Variant("two-level", "means of neighbours, each query opens its best two", "encoder,cross", _TWO_LEVEL),
        Variant(
            "two-level-all",
            "the same, and the causal decoder: k/2 slots and the last k/2 tokens",
            "encoder,cross,decoder",
            (*_TWO_LEVEL, *_WINDOW),
        ),
    )
}
BASELINE = "transformer"
