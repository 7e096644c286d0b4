"""What fairseq's encoders and decoders do differently once their attention has been replaced."""

from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar

from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from linformer_fairseq.models.errors import one_sentence

NO_LAYER = -1
"""As `alignment_layer`: no layer's attention weights, whose (T, n) matrix per head would cost as much as full
attention."""
NO_WEIGHTS = "no weights"
"""As a key of a search's incremental state: nobody reads the weights."""

Extension = TypeVar("Extension")


def extend(module: nn.Module, extension: type[Extension]) -> Extension:
    """Makes a module, in place, one of a subclass of its class and of `extension`."""
    if not isinstance(module, extension):
        module.__class__ = _subclass((extension, type(module)))
    return module  # type: ignore[return-value]


@cache
def _subclass(bases: tuple[type, type]) -> type:
    extension, base = bases

    def reduced(module: nn.Module) -> tuple[Any, ...]:
        return _blank, (bases,), vars(module)

    return type(base.__name__, bases, {"__doc__": extension.__doc__, "__reduce__": reduced})


def _blank(bases: tuple[type, type]) -> nn.Module:
    """An object of a subclass before it has a state, for copies and pickles, which find no such class by its name."""
    subclass: Any = _subclass(bases)
    return subclass.__new__(subclass)


class SingleRows:
    """An encoder that leaves it to cross-attention to share the row of a sentence among the hypotheses of a search, as
    fairseq's BART does, instead of repeating it for each."""

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        """Returns the output itself: cross-attention keeps the rows of the sentences that stay."""
        return encoder_out


class SwappedDecoder(TransformerDecoderBase):
    """A decoder that computes attention weights only where somebody may read them.

    Without `alignment_layer` they are left out in training unless `trains_alignments`, and in a search after
    `make_generation_fast_(need_attn=False)` or where `NO_WEIGHTS` is in its incremental state.
    """

    is_causal_by_itself = False
    """Whether self-attention hides the future without a mask."""
    trains_alignments = False
    """Whether training returns the last layer's attention weights, for a criterion that reads them."""
    needs_weights = True
    """Whether a search returns them."""
    ends_in_one_sentence = False
    """Whether a refusal ends the program, as `one_sentence` does: in fairseq's commands."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        with one_sentence() if self.ends_in_one_sentence else nullcontext():
            return super().forward(*arguments, **options)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor | None:
        """None where self-attention hides the future by itself, without a (T, T) tensor."""
        return None if self.is_causal_by_itself else super().buffered_future_mask(tensor)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]] | None]:
        if full_context_alignment and self.is_causal_by_itself:
            raise ValueError("full_context_alignment needs a decoder with full self-attention")
        if alignment_layer is None and not self._gives_weights(incremental_state):
            alignment_layer = NO_LAYER
        return super().extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    def _gives_weights(self, incremental_state: dict[str, Any] | None) -> bool:
        if self.training:
            return self.trains_alignments
        return incremental_state is None or (self.needs_weights and NO_WEIGHTS not in incremental_state)

    def make_generation_fast_(self, need_attn: bool = False, **options: Any) -> None:
        """Leaves the last layer's weights out of searches from now on, unless they are needed. fairseq-generate calls
        it, and needs them where it prints alignments."""
        self.needs_weights = need_attn
