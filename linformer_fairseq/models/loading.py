"""Loading checkpoints into models that have projections."""

import logging
import re
from argparse import Namespace
from typing import Any

import torch
from fairseq.checkpoint_utils import prune_state_dict
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig
from torch import Tensor

from linformer_fairseq.models.errors import one_sentence

logger = logging.getLogger(__name__)

_OWN_WEIGHT = re.compile(r"(?:self|encoder)_attn\.(?!(?:in|q|k|v|out)_proj|bias_[kv])")
"""Names of weights in an attention that are none of fairseq's `MultiheadAttention`."""


class ChecksProjections(BaseFairseqModel):
    """What the models of this package share: they look at the projections of a checkpoint before they load it."""

    layer_flags = (
        "--linformer-attention, --linformer-projection, --linformer-decoder-projection, --linformer-value-convolution "
        "and number of layers"
    )
    """What decides which projections there are, for refusals."""
    shape_flags = (
        "--linformer-k, --linformer-window, --linformer-sharing, --linformer-value-convolution, --max-source-positions "
        "and --max-target-positions"
    )
    """What decides their shapes."""

    def load_state_dict(
        self,
        state_dict: dict[str, Tensor],
        strict: bool = True,
        model_cfg: Namespace | DictConfig | None = None,
        args: Namespace | None = None,
    ) -> Any:
        """Lets the projections start fresh where a plain `transformer` is loaded (`--finetune-from-model`), and a
        convolution over the values where the checkpoint has none, and refuses a checkpoint whose projections are not
        this model's."""
        state_dict = dict(prune_state_dict(state_dict, model_cfg))  # fairseq's `--encoder-layers-to-keep`
        own, found = projection_weights(self.state_dict()), projection_weights(state_dict)
        for is_own, warning in (
            (is_convolution, "the checkpoint has no convolution over the values: the model's starts fresh"),
            (
                _is_projection,
                "the checkpoint has no projections (it is of full attention, two levels or a window): {} start fresh",
            ),
        ):
            fresh = {key: weight for key, weight in own.items() if is_own(key)}
            if fresh and not any(map(is_own, found)):
                logger.warning(warning.format(", ".join(sorted({_OWN_WEIGHT.split(key)[-1] for key in fresh}))))
                state_dict.update(fresh)
                own = {key: weight for key, weight in own.items() if key not in fresh}
        with one_sentence():
            self._check_projections(own, found)
        return super().load_state_dict(state_dict, strict, model_cfg, args)

    def _check_projections(self, own: dict[str, Tensor], found: dict[str, Tensor]) -> None:
        """Refuses projections `found` in a checkpoint that are not those of the model.

        Raises:
            ValueError: other places, layers, shapes or sharing.
        """
        for key in sorted(own.keys() ^ found.keys()):
            raise ValueError(
                f"{key} is in the {'model' if key in own else 'checkpoint'} only: give the {self.layer_flags} that the "
                "checkpoint was trained with"
            )
        shared: dict[int, Tensor] = {}
        for key, weight in own.items():
            theirs, ours = tuple(found[key].shape), tuple(weight.shape)
            if theirs != ours:
                raise ValueError(
                    f"the checkpoint's {key} has shape {theirs}, this model's {ours}: give the {self.shape_flags} "
                    "that it was trained with"
                )
            if not torch.equal(shared.setdefault(weight.data_ptr(), found[key]), found[key]):
                raise ValueError(
                    f"the checkpoint's {key} is not shared as in this model: give the --linformer-sharing that it was "
                    "trained with"
                )


def is_convolution(key: str) -> bool:
    """Whether an entry of a model's state is of a convolution over the values."""
    return ".value_convolution." in key


def _is_projection(key: str) -> bool:
    return not is_convolution(key)


def projection_weights(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries of a model's state that its attention has beyond fairseq's, such as E and F."""
    return {key: weight for key, weight in state_dict.items() if _OWN_WEIGHT.search(key)}
