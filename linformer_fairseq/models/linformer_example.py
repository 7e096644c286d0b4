"""Checkpoints of the `linformer_roberta` in fairseq's own `examples/linformer`: their settings and names here.

That model projects before the linear layers, as this package does, so that its weights mean the same. It also projects
padding, which this package does not: sentences that it saw padded get other features here.
"""

import re
from argparse import Namespace

from torch import Tensor

_COMPRESSED = re.compile(r"(.*\.self_attn)\.compress_([kv])\.weight")
_OLD_PREFIX = re.compile(r"^decoder\.")
"""What the encoder was called in fairseq before 0.10."""
_ELSEWHERE = re.compile(r"\.compress_(?:layer|[kv])\.|(?:^encoder|\.layers\.\d+)\.version$")
"""What has no place here: copies of shared projections, their biases, which the example never adds, and its own
versions; that of fairseq's encoder stays."""


def adopt_settings(args: Namespace) -> None:
    """Adds to a model's flags those of this package that say the same as the example's, where it has these."""
    if getattr(args, "compressed", None) is None:
        return
    sharing = "headwise"
    if getattr(args, "shared_layer_kv_compressed", 0):
        sharing = "layerwise"
    elif getattr(args, "shared_kv_compressed", 0):
        sharing = "key-value"
    longest = getattr(args, "max_positions", None) or args.tokens_per_sample
    args.linformer_projection, args.linformer_sharing = "linear", sharing
    args.linformer_k = str(longest // args.compressed)
    args.linformer_freeze_projection = bool(getattr(args, "freeze_compress", 0))


def adopt_weights(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns a model's state with E and F of the example under their names here; any other state as it is."""
    if not any(map(_COMPRESSED.fullmatch, state_dict)):
        return state_dict
    state_dict = {_OLD_PREFIX.sub("encoder.", key): weight for key, weight in state_dict.items()}
    found = {key: weight for key, weight in state_dict.items() if _COMPRESSED.fullmatch(key)}
    own = {key: weight for key, weight in state_dict.items() if not _ELSEWHERE.search(key)}
    for key, weight in found.items():
        attention, side = _COMPRESSED.fullmatch(key).groups()  # type: ignore[union-attr]
        if side == "k":
            own[f"{attention}.key_projection.weight"] = weight
            own[f"{attention}.value_projection.weight"] = found.get(f"{attention}.compress_v.weight", weight)
    return own
