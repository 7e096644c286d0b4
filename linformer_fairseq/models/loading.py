"""Loading checkpoints into models whose attention has weights of its own."""

import logging
import re
from collections.abc import Mapping

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

_OWN_WEIGHT = re.compile(r"(?:self|encoder)_attn2?\.(?!(?:in|q|k|v|out)_proj|bias_[kv]|linear_|pos_bias_)")
"""Names of weights in an attention that are none of fairseq's, `MultiheadAttention` and the conformer's."""
_FLAGS = "--linformer-attention, --linformer-projection (and that of each place), --linformer-value-convolution"
"""What decides which weights of their own attention modules have, beside the number of layers."""
_SHAPES = "--linformer-k, --linformer-window, --linformer-value-convolution and longest positions"
"""What decides their shapes."""


def with_own_weights(state_dict: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's state with the weights of a model's attention that are not in it, which start fresh.

    They are those of a model of full attention, two levels or a window (`--finetune-from-model`), a convolution over
    the values where the checkpoint has none, and the columns of E and F beyond the checkpoint's longest text.

    Args:
        state_dict: the checkpoint's.
        model: the model's own.

    Raises:
        ValueError: the checkpoint has weights of other places, layers, shapes or sharing.
    """
    state_dict, own, found = dict(state_dict), projection_weights(model), projection_weights(state_dict)
    for of_convolution, warning in (
        (True, "the checkpoint has no convolution over the values: the model's starts fresh"),
        (False, "the checkpoint has no projections (it is of full attention, two levels or a window): {} start fresh"),
    ):
        fresh = {key: weight for key, weight in own.items() if is_convolution(key) == of_convolution}
        if fresh and not any(is_convolution(key) == of_convolution for key in found):
            logger.warning(warning.format(", ".join(sorted({_OWN_WEIGHT.split(key)[-1] for key in fresh}))))
            state_dict.update(fresh)
            own = {key: weight for key, weight in own.items() if key not in fresh}
    for key in sorted(own.keys() ^ found.keys()):
        raise ValueError(
            f"{key} is in the {'model' if key in own else 'checkpoint'} only: give the {_FLAGS} and number of layers "
            "that the checkpoint was trained with"
        )
    grown: set[tuple[int, int]] = set()
    shared: dict[int, Tensor] = {}
    for key, weight in own.items():
        theirs, ours = tuple(found[key].shape), tuple(weight.shape)
        if len(ours) == len(theirs) == 2 and ours[0] == theirs[0] and ours[1] > theirs[1]:
            grown.add((theirs[1], ours[1]))
            state_dict[key] = torch.cat([found[key], weight[:, theirs[1] :].to(found[key])], 1)
        elif theirs != ours:
            raise ValueError(
                f"the checkpoint's {key} has shape {theirs}, this model's {ours}: give the {_SHAPES} that it was "
                "trained with"
            )
        if not torch.equal(shared.setdefault(weight.data_ptr(), found[key]), found[key]):
            raise ValueError(
                f"the checkpoint's {key} is not shared as in this model: give the --linformer-sharing that it was "
                "trained with"
            )
    for old, new in sorted(grown):
        logger.warning(f"the checkpoint's E and F are for {old:,} tokens: their columns for up to {new:,} start fresh")
    return state_dict


def is_convolution(key: str) -> bool:
    """Whether an entry of a model's state is of a convolution over the values."""
    return ".value_convolution." in key


def projection_weights(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries of a model's state that its attention has beyond fairseq's, such as E and F."""
    return {key: weight for key, weight in state_dict.items() if _OWN_WEIGHT.search(key)}
