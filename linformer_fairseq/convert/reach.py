"""How long the texts are that a model takes, and up to which length they get full attention."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel, FairseqEncoderModel

from linformer_fairseq.modules import CausalTwoLevelAttention, ProjectedAttention, TwoLevelAttention

LONGEST = 2048
"""Where lengths end that nobody has named: full attention to longer texts takes much memory."""


@dataclass(frozen=True)
class Reach:
    """What a model does with the tokens of its sources, or of its targets; an encoder alone has sources."""

    longest: int
    """The tokens of the longest text that it takes."""
    exact: int | None
    """The tokens that always get full attention; None where another kind of attention than two levels is there."""

    def ends(self, lengths: Sequence[int] | None) -> tuple[int, ...]:
        """Returns where ranges of lengths end.

        Args:
            lengths: those that are asked for, of which the model's longest takes the place of longer ones; None for
                powers of two from 8 to `LONGEST`, and the last one with full attention.
        """
        if lengths is not None:
            return tuple(sorted({min(length, self.longest) for length in lengths}))
        longest = min(self.longest, LONGEST)
        ends = {8 << power for power in range(longest.bit_length()) if 8 << power < longest} | {longest}
        if self.exact and self.exact < longest:
            ends.add(self.exact)
        return tuple(sorted(ends))


def reaches(model: BaseFairseqModel) -> tuple[Reach | None, Reach | None]:
    """Returns the reach of a model's attention to sources, None for a language model, and of that to targets, None for
    an encoder alone."""
    longest = model.max_positions()
    if isinstance(model, FairseqEncoderModel):
        return Reach(int(longest), _exact(model, int(longest), causal=False)), None
    if not isinstance(model, FairseqEncoderDecoderModel):
        return None, Reach(int(longest), _exact(model, int(longest), causal=True))
    source, target = (
        Reach(int(n), _exact(model, int(n), causal)) for n, causal in zip(longest, (False, True), strict=True)
    )
    return source, target


def _exact(model: BaseFairseqModel, longest: int, causal: bool) -> int | None:
    """Returns how many tokens of a source, or else of a target, get full attention in all layers."""
    exact = longest
    for module in model.modules():
        if not isinstance(module, ProjectedAttention) or module.causal != causal:
            continue
        if isinstance(module, CausalTwoLevelAttention):
            exact = min(exact, module.exact)
        elif isinstance(module, TwoLevelAttention):
            _, last, _ = next(module.rule.ranges(module.max_positions))
            exact = min(exact, last)
        else:
            return None
    return exact
