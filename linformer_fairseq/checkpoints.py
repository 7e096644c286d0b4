"""Loading fairseq's checkpoints with torch's safe loader."""

import argparse

import torch

CHECKPOINT_TYPES = (argparse.Namespace,)
"""What fairseq's checkpoints hold beyond tensors and plain containers: the parsed command line."""


def admit_checkpoint_types() -> None:
    """Admits `CHECKPOINT_TYPES` to `torch.load(weights_only=True)`, torch's default from 2.6 on.

    A checkpoint that holds anything else, code to run for one, is still refused.
    """
    if hasattr(torch.serialization, "add_safe_globals"):  # older torch has no such list, and its default no need
        torch.serialization.add_safe_globals(list(CHECKPOINT_TYPES))
