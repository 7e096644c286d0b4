"""What is looked at before fairseq's commands and its hub translate or evaluate with a model."""

import numpy as np
from fairseq.data import data_utils
from omegaconf import DictConfig


def is_command(cfg: DictConfig) -> bool:
    """Whether `prepare_for_inference_` is called by a command, which needs a `--path`, and not by fairseq's hub."""
    return cfg.common_eval.path is not None


def is_interactive(cfg: DictConfig) -> bool:
    """Whether the command is fairseq-interactive, which alone has a buffer by then."""
    return bool(cfg.interactive.buffer_size > 0)


def drops_ragged_batches() -> bool:
    """Whether this fairseq leaves a last batch out that is no multiple of `--required-batch-size-multiple`: newer ones
    do, 0.12.2 keeps it."""
    one = np.ones(1, dtype=np.int64)
    batches = data_utils.batch_by_size(np.arange(1), None, num_tokens_vec=one, required_batch_size_multiple=2)
    return not len(batches)
