"""The models that are compared, by name: what is projected and how; and their trainings."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linformer_fairseq.recipe.settings import FAIRSEQ_MAX_POSITIONS, Model, Settings


@dataclass(frozen=True)
class Variant:
    """One way to project attention.

    In `flags` and `slots`, {k} stands for the number of slots, {half} for half of it and {more} for one and a half.
    """

    name: str
    """On the command line and in results.json; its results are in a folder of this name."""
    label: str
    """In tables and plots."""
    attention: str = ""
    """Empty for the Transformer, which has none projected."""
    flags: str = ""
    """Further flags of the model with k slots."""
    slots: str = ""
    """What `--linformer-k` says where that is not k."""
    what: str = ""
    """An explanation for the report, where the label needs one."""

    def trainings(self, ks: list[int], seed: int, shared: Settings, runs: Path) -> "Iterator[Training]":
        """Yields the training of one model for each k, or of the one Transformer.

        Args:
            shared: the settings of all trainings but for seed and flags.
            runs: the folder where each variant has one for each k.
        """
        for k in ks if self.attention else [0]:
            flags, slots = (text.format(k=k, half=k // 2, more=3 * k // 2) for text in (self.flags, self.slots))
            model = Model(k, self.attention, slots=slots) if self.attention else Model()
            training = dataclasses.replace(shared.training, seed=seed, linformer_args=flags.split())
            settings = dataclasses.replace(shared, training=training)
            ending = f"-k{k}" if k else ""
            former = runs / f"{FORMER_NAMES.get(self.name, self.name)}{ending}"
            out = former if former.is_dir() else runs / f"{self.name}{ending}"
            yield Training(self, model, seed, settings, out / f"seed-{seed}")


@dataclass(frozen=True)
class Training:
    """One model of the study, in an output folder of the recipe's of its own."""

    variant: Variant
    model: Model
    seed: int
    settings: Settings
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / "models" / self.model.slug


TWO, THREE = "encoder,cross", "encoder,cross,decoder"
LINEAR, TWO_LEVEL = "--linformer-projection linear", "--linformer-projection two-level --linformer-open-slots"

_MAIN = (
    Variant("transformer", "Transformer", what="full attention"),
    Variant("linformer", "Linformer", TWO, LINEAR, what="learned E and F in encoder and cross-attention"),
    Variant(
        "linformer-all",
        "Linformer (with decoder)",
        THREE,
        f"{LINEAR} --linformer-window 0",
        what="Linformer, and its causal form in the decoder's self-attention",
    ),
    Variant(
        "two-level",
        "two levels",
        TWO,
        f"{TWO_LEVEL} 3",
        what="means of neighbouring tokens in encoder and cross-attention, of which each query opens its best three",
    ),
    Variant(
        "two-level-all",
        "two levels (with decoder)",
        THREE,
        f"{TWO_LEVEL} 3 --linformer-window {{half}}",
        what="two levels, and in the decoder's self-attention k/2 causal slots beside the last k/2 tokens",
    ),
)
_SCREENED = (
    Variant("encoder", "Linformer in the encoder alone", "encoder", LINEAR),
    Variant("cross", "Linformer in cross-attention alone", "cross", LINEAR),
    Variant("decoder", "causal Linformer in the decoder alone", "decoder", f"{LINEAR} --linformer-window 0"),
    Variant(
        "decoder-window",
        "causal Linformer in the decoder alone, half of k a window",
        "decoder",
        f"{LINEAR} --linformer-window {{half}}",
    ),
    Variant("normal", "Linformer, E and F start normal", TWO, f"{LINEAR} --linformer-init normal"),
    Variant(
        "identity",
        "Linformer, E and F start as the identity, empty slots masked",
        TWO,
        f"{LINEAR} --linformer-init identity --linformer-mask-empty-slots",
    ),
    Variant("pooled-linear", "means of neighbours plus E and F", TWO, "--linformer-projection pooled-linear"),
    Variant("mean-pool", "means of neighbours", TWO, "--linformer-projection mean-pool"),
    Variant(
        "conv",
        "a learned convolution over pairs of neighbours (n/2 slots)",
        TWO,
        "--linformer-projection conv",
        slots=str(FAIRSEQ_MAX_POSITIONS // 2),
    ),
    Variant("none", "Linformer, E and F for every head", TWO, f"{LINEAR} --linformer-sharing none"),
    Variant("key-value", "Linformer, one E = F a layer", TWO, f"{LINEAR} --linformer-sharing key-value"),
    Variant("layerwise", "Linformer, one E = F for all layers", TWO, f"{LINEAR} --linformer-sharing layerwise"),
    Variant("falling", "Linformer, more slots in lower layers", TWO, LINEAR, slots="{more},{k},{half}"),
    Variant("rising", "Linformer, more slots in higher layers", TWO, LINEAR, slots="{half},{k},{more}"),
    Variant("two-level-2", "two levels, two slots opened", TWO, f"{TWO_LEVEL} 2"),
    Variant("two-level-6", "two levels, six slots opened", TWO, f"{TWO_LEVEL} 6"),
)

BASELINE = "transformer"
MAIN = tuple(variant.name for variant in _MAIN)
"""Those trained by default, with all seeds; the others were screened with one."""
VARIANTS = {variant.name: variant for variant in (*_MAIN, *_SCREENED)}
FORMER_NAMES = {"linformer": "paper", "linformer-all": "paper-all"}
"""What older studies called variants, on the command line and in their folders, in which they go on."""
