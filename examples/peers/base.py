"""What the kinds of attention that other packages compute have in common."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from linformer_fairseq.modules.base import BaseAttention, Call
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, flag_of


@contextmanager
def package(name: str, without: str = "") -> Iterator[None]:
    """Imports within are of the package that pip installs by this name; a ValueError tells that it is missing.

    They do not find the module `without`: one that is not needed, and fails to load if built for another torch.
    """
    hides = bool(without) and without not in sys.modules
    if hides:
        sys.modules[without] = None  # type: ignore[assignment]  # as Python documents
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{name} cannot be imported ({error}): pip install 'linformer_fairseq[peers]'") from error
    finally:
        if hides:
            del sys.modules[without]


@dataclass
class PeerOptions(AttentionOptions):
    """Positive numbers, each of which is an argument of the attention; there is no k."""

    uses_k = False

    def validate(self) -> None:
        super().validate()
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise ValueError(f"{flag_of(name)} must be at least 1, not {value}")

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        own = {option.name.removeprefix("linformer_"): getattr(self, option.name) for option in fields(self)}
        return [own] * len(layers.projected_dims)


class PeerAttention(BaseAttention):
    """Encoder self-attention whose arithmetic is another package's, between fairseq's four linear layers.

    A trained Transformer's weights load into it. What a package has beyond the four layers is in `core`, a name by
    which loading knows that a Transformer has none of it. A kind builds its core and overrides `mix`.
    """

    name: ClassVar[str]
    drops_probabilities = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.self_attention:
            raise ValueError(f"{self.name} is for the encoder's self-attention alone: pass self_attention=True")
        if self.dropout_module.p and not self.drops_probabilities:
            raise ValueError(f"{self.name} has no attention probabilities to drop: use --attention-dropout 0")

    def forward(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        if any(x is not None and x is not query for x in (key, value)):
            raise ValueError(f"{self.name} is self-attention: pass one tensor as query, key and value")
        return super().forward(query, query, query, *args, **options)

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.need_weights:
            raise ValueError(f"{self.name} gives no attention weights: pass need_weights=False")
        if call.incremental_state is not None:
            raise ValueError(f"{self.name} keeps no incremental_state: leave it out")
        assert call.key is not None
        return self.split_heads(self.mix(call.key, None if call.padding is None else call.padding.mask)), None

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What comes between the linear layers.

        Args:
            x: (n, B, C), zero at padded positions.
            mask: (B, n), true at padded positions, which are on the right; None where there are none.

        Returns:
            (n, B, C), of any numbers at padded positions.
        """
        raise NotImplementedError


def full_precision(x: Tensor) -> torch.autocast:
    """A context in which products of float32 stay in it, where autocast would make them in half precision."""
    return torch.autocast(x.device.type, enabled=False)
