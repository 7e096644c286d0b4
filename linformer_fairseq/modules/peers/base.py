"""What the kinds of attention that other packages compute have in common."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from linformer_fairseq.modules.base import Call, ProjectedAttention
from linformer_fairseq.modules.ops.padding import clear_padding
from linformer_fairseq.modules.registry import encoder_only


class PeerAttention(ProjectedAttention):
    """Base of encoder self-attention whose arithmetic is another package's, between fairseq's four linear layers.

    A trained Transformer's weights load into it. What a package has beyond the four layers is in `core`, a name by
    which loading knows that a Transformer has none of it. A kind builds its core and overrides `mix`.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them; `self_attention` has to be true.
        max_positions: N, the longest sentence in tokens.

    Raises:
        NotInstalledError: the package cannot be imported.
        ValueError: for what no kind supports, any attention but an encoder's, dropout of attention probabilities where
            the package has none, and, when it is called, attention weights, an incremental state, and keys and values
            that are not the queries.
    """

    name: ClassVar[str]
    """The name of the kind."""
    drops_probabilities = False

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, max_positions: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        if not self.self_attention:
            raise ValueError(encoder_only(self.name))
        if self.dropout_module.p and not self.drops_probabilities:
            raise ValueError(f"{self.name} has no attention probabilities to drop: use --attention-dropout 0")

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.need_weights:
            raise ValueError(f"{self.name} gives no attention weights: pass need_weights=False")
        if call.incremental_state is not None:
            raise ValueError(f"{self.name} keeps no incremental_state: leave it out")
        key, value, mask = self.keys_and_values(call)
        if key is not call.query or value is not call.query:
            raise ValueError(f"{self.name} is self-attention: pass one tensor as query, key and value")
        if not call.query.numel():
            return self.out_proj(call.query), None
        return self.out_proj(self.mix(clear_padding(call.query, mask), mask)), None

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """What comes between the linear layers.

        Args:
            x: (n, B, C), zero at padded positions.
            mask: (B, n), true at padded positions.

        Returns:
            (n, B, C), of any numbers at padded positions.
        """
        raise NotImplementedError


def full_precision(x: Tensor) -> torch.autocast:
    """A context in which products of float32 stay in it, where autocast would make them in half precision."""
    return torch.autocast(x.device.type, enabled=False)
