"""The worker, with every process writing the weights that it holds at the end of each epoch."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import worker

fairseqs_own = checkpoint_utils.save_checkpoint


def save_checkpoint(cfg: Any, trainer: Trainer, *args: Any) -> Any:
    rank = torch.distributed.get_rank()
    torch.save(trainer.get_model().state_dict(), Path(cfg.save_dir) / f"weights-of-rank-{rank}.pt")
    for world_size, configured, said in ((1, 2, ""), (2, 1, ""), (3, 2, ""), (3, 3, ""), (2, 2, f"of rank {rank}")):
        try:
            worker.check_together(world_size, configured, [said])
        except UserError:
            continue
        raise AssertionError(f"two processes, given {said!r}, pass for {world_size}")
    return fairseqs_own(cfg, trainer, *args)


if __name__ == "__main__":
    checkpoint_utils.save_checkpoint = save_checkpoint
    sys.exit(worker.main(sys.argv[1:], os.environ))
