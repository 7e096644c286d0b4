"""`fairseq-train` that lets every process write the weights that it holds at the end of each epoch."""

from pathlib import Path
from typing import Any

import fairseq_cli.train  # first, as it sets up logging before fairseq does
import torch
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

fairseqs_own = checkpoint_utils.save_checkpoint


def save_checkpoint(cfg: Any, trainer: Trainer, *args: Any) -> Any:
    rank = torch.distributed.get_rank()
    torch.save(trainer.get_model().state_dict(), Path(cfg.save_dir) / f"weights-of-rank-{rank}.pt")
    return fairseqs_own(cfg, trainer, *args)


if __name__ == "__main__":
    checkpoint_utils.save_checkpoint = save_checkpoint
    fairseq_cli.train.cli_main()
