"""The models that are compared, by name: what is projected and how; and their trainings."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linformer_fairseq.models.config import ALL_PLACES
from linformer_fairseq.recipe.settings import FAIRSEQ_MAX_POSITIONS, Model, Settings


@dataclass(frozen=True)
class Variant:
    """One way to project attention.

    In `flags` and `slots`, {k} stands for the number of slots, {half} for half of it, {more} for one and a half and
    {double} for twice as many.
    """

    name: str
    """On the command line and in results.json; its results are in a folder of this name."""
    label: str
    """In tables and plots."""
    attention: str = ""
    """Empty for the Transformer, which has none projected."""
    projection: str = "linear"
    """The kind of that attention."""
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
            numbers = {"k": k, "half": k // 2, "more": 3 * k // 2, "double": 2 * k}
            model, flags = Model(), ""
            if k:
                # not as the model's projection, which would rename the folders of older studies
                flags = f"--linformer-projection {self.projection} {self.flags.format(**numbers)}"
                model = Model(k, self.attention, slots=self.slots.format(**numbers), kind=self.projection)
            training = dataclasses.replace(shared.training, seed=seed, linformer_args=flags.split())
            settings = dataclasses.replace(shared, training=training)
            out = runs / (f"{self.name}-k{k}" if k else self.name) / f"seed-{seed}"
            yield Training(self, model, seed, settings, out)


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


ENCODER_CROSS = "encoder,cross"
TWO_LEVEL = "two-level"
WINDOW = "--linformer-window"
OPENED = "--linformer-exact-below 0 --linformer-block-size 1 --linformer-open-slots"
"""Two levels on sentences too, which by default are attended to in full; every query opens slots of its own."""
CAUSAL_WIDTH = 2
"""Tokens of a slot of causal two levels here: with k slots of the longest target that a model is built for, rather than
of a sentence, no sentence would have enough of them to close one."""
CAUSAL = f"--linformer-decoder-k {FAIRSEQ_MAX_POSITIONS // CAUSAL_WIDTH}"
"""Slots of that width in the decoder, and of k at the other places."""

_MAIN = (
    Variant("transformer", "Transformer", what="full attention"),
    Variant("linformer", "Linformer", ENCODER_CROSS, what="learned E and F in encoder and cross-attention"),
    Variant(
        "linformer-all",
        "Linformer (with decoder)",
        ALL_PLACES,
        flags=f"{WINDOW} 0",
        what="Linformer, and its causal form in the decoder's self-attention",
    ),
    Variant(
        "two-level",
        "two levels",
        ENCODER_CROSS,
        TWO_LEVEL,
        f"{OPENED} 3",
        what="means of neighbouring tokens in encoder and cross-attention, of which each query opens its best three",
    ),
    Variant(
        "two-level-all",
        "two levels (with decoder)",
        ALL_PLACES,
        TWO_LEVEL,
        f"{OPENED} 3 {CAUSAL}",
        what=f"two levels, in the decoder's self-attention too, there with slots of {CAUSAL_WIDTH} tokens at any k",
    ),
)
_SCREENED = (
    Variant(
        "two-level-linear",
        "two levels (with causal Linformer in the decoder)",
        ALL_PLACES,
        TWO_LEVEL,
        f"{OPENED} 3 --linformer-decoder-projection linear {WINDOW} {{half}}",
        what="two levels, and in the decoder's self-attention k/2 causal slots beside the last k/2 tokens",
    ),
    Variant("encoder", "Linformer in the encoder alone", "encoder"),
    Variant("cross", "Linformer in cross-attention alone", "cross"),
    Variant("decoder", "causal Linformer in the decoder alone", "decoder", flags=f"{WINDOW} 0"),
    Variant(
        "decoder-window",
        "causal Linformer in the decoder alone, half of k a window",
        "decoder",
        flags=f"{WINDOW} {{half}}",
    ),
    Variant("normal", "Linformer, E and F start normal", ENCODER_CROSS, flags="--linformer-init normal"),
    Variant(
        "identity",
        "Linformer, E and F start as the identity, empty slots masked",
        ENCODER_CROSS,
        flags="--linformer-init identity --linformer-mask-empty-slots",
    ),
    Variant("pooled-linear", "means of neighbours plus E and F", ENCODER_CROSS, "pooled-linear"),
    Variant("mean-pool", "means of neighbours", ENCODER_CROSS, "mean-pool"),
    Variant(
        "conv",
        "a learned convolution over pairs of neighbours (n/2 slots)",
        ENCODER_CROSS,
        "conv",
        slots=str(FAIRSEQ_MAX_POSITIONS // 2),
    ),
    Variant("none", "Linformer, E and F for every head", ENCODER_CROSS, flags="--linformer-sharing none"),
    Variant("key-value", "Linformer, one E = F per layer", ENCODER_CROSS, flags="--linformer-sharing key-value"),
    Variant("layerwise", "Linformer, one E = F for all layers", ENCODER_CROSS, flags="--linformer-sharing layerwise"),
    Variant("falling", "Linformer, more slots in lower layers", ENCODER_CROSS, slots="{more},{k},{half}"),
    Variant("rising", "Linformer, more slots in higher layers", ENCODER_CROSS, slots="{half},{k},{more}"),
    Variant(
        "wide-cross",
        "Linformer, twice as many slots in cross-attention",
        ENCODER_CROSS,
        flags="--linformer-cross-k {double}",
    ),
    Variant("two-level-1", "two levels, one slot opened", ENCODER_CROSS, TWO_LEVEL, f"{OPENED} 1"),
    Variant("two-level-2", "two levels, two slots opened", ENCODER_CROSS, TWO_LEVEL, f"{OPENED} 2"),
    Variant("two-level-6", "two levels, six slots opened", ENCODER_CROSS, TWO_LEVEL, f"{OPENED} 6"),
)

BASELINE = "transformer"
MAIN = tuple(variant.name for variant in _MAIN)
"""Those trained by default, with all seeds; the others were screened with one."""
VARIANTS = {variant.name: variant for variant in (*_MAIN, *_SCREENED)}


@dataclass(frozen=True)
class Description:
    """What a report says of a variant; results are stored with it, as a name may mean something else later."""

    label: str
    what: str
    flags: str = ""
    """Of fairseq-train; empty for the Transformer, and where they are not known."""


def described(name: str) -> Description:
    """Returns what results of a variant are stored with."""
    variant = VARIANTS[name]
    if not variant.attention:
        return Description(variant.label, variant.what)
    flags = (
        f"--linformer-k {variant.slots or '{k}'} --linformer-attention {variant.attention} "
        f"--linformer-projection {variant.projection} {variant.flags}"
    )
    return Description(variant.label, variant.what, flags.format(k="k", half="k/2", more="3k/2", double="2k").strip())


FORMER = {name: Description(variant.label, variant.what) for name, variant in VARIANTS.items()} | {
    "two-level": Description(
        "two levels",
        "means of neighbouring tokens in encoder and cross-attention, of which each query opens its best three",
    ),
    "two-level-all": Description(
        "two levels (with decoder)",
        "two levels, and in the decoder's self-attention k/2 causal slots beside the last k/2 tokens",
    ),
}
"""What the variants were when results were stored without a description."""
