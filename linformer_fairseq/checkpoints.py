"""Loading fairseq's checkpoints with torch's safe loader."""

import argparse
import collections
import typing

import torch
from fairseq.distributed.utils import _TensorPlaceholder
from omegaconf import DictConfig, ListConfig
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.nodes import AnyNode

FILE_TYPES = (argparse.Namespace,)
"""What a checkpoint's file holds beyond tensors and plain containers: the parsed command line."""

BROADCAST_TYPES = (
    *(DictConfig, ListConfig, AnyNode, ContainerMetadata, Metadata, typing.Any),
    *(_TensorPlaceholder, collections.defaultdict, dict, list, int),
)
"""What the first process of a resumed training sends to the others once it has read that file: the configuration
as an object, and a placeholder for each tensor."""

CHECKPOINT_TYPES = FILE_TYPES + BROADCAST_TYPES


def admit_checkpoint_types() -> None:
    """Admits `CHECKPOINT_TYPES` to `torch.load(weights_only=True)`, torch's default from 2.6 on.

    A checkpoint that holds anything else, code to run for one, is still refused.
    """
    if hasattr(torch.serialization, "add_safe_globals"):  # older torch has no such list, and its default no need
        torch.serialization.add_safe_globals(list(CHECKPOINT_TYPES))
