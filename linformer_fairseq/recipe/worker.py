"""`python -m linformer_fairseq.recipe.worker`: `fairseq-train` in one process, whatever GPUs there are, that counts the
updates of a resumed training and keeps its checkpoints as an uninterrupted one does.
"""

import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from linformer_fairseq.cli.arguments import Parser, cut_at_dashes
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing

from .precision import PRECISIONS, precision_arguments

SET_HERE = ("--device-id", "--local_rank", "--fp16", "--amp", "--bf16", "--memory-efficient-bf16", "--tpu")
"""Flags of `fairseq-train` that the worker decides upon, with all that begin with `--distributed-`; the last three ask
for a TPU."""


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 2 for what is refused; what goes wrong inside fairseq ends as in `fairseq-train`."""
    try:
        _train(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _train(argv: Sequence[str]) -> None:
    """Trains as `fairseq_cli.train.cli_main` does, but without profiling and plasma."""
    parser = Parser(prog="worker", usage="%(prog)s [--precision P] -- FAIRSEQ-TRAIN ARGUMENTS")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    before, arguments = cut_at_dashes(argv)
    own = parser.parse_args(before)
    check_arguments(arguments)
    cpu = "--cpu" in arguments
    if not (cpu or torch.cuda.is_available()):
        raise UserError("No GPU is visible here: see what nvidia-smi says, or add --cpu to train without one.")
    # fairseq would start a process for each visible GPU by itself
    added = ["--distributed-world-size", "1", *precision_arguments(own.precision, cpu)]

    logging.getLogger().handlers.clear()  # importing the plugin set some up; fairseq-train's module brings its own
    import fairseq_cli.train
    from fairseq import checkpoint_utils, options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.distributed import utils as distributed_utils

    args = options.parse_args_and_arch(options.get_training_parser(), input_args=[*arguments, *added])
    cfg = convert_namespace_to_omegaconf(args)
    cfg.common.bf16 = own.precision == "bf16"  # set here, as the flag would ask for a TPU

    fairseq_cli.train.train = stopping_at_max_update(fairseq_cli.train.train)
    checkpoint_utils.save_checkpoint = saving_at_ends_of_epochs(checkpoint_utils.save_checkpoint)
    distributed_utils.call_main(cfg, fairseq_cli.train.main)


def stopping_at_max_update(train: Callable[..., tuple[list[Any], bool]]) -> Callable[..., tuple[list[Any], bool]]:
    """Returns fairseq's `train`, which trains for an epoch, without an update where a checkpoint has had all of them.

    fairseq's own looks at --max-update after an update only, so that each resumption would add one.
    """

    def train_unless_done(cfg: Any, trainer: Any, *rest: Any) -> tuple[list[Any], bool]:
        updates = cfg.optimization.max_update
        if updates and trainer.get_num_updates() >= updates:
            return [None], True
        return train(cfg, trainer, *rest)

    return train_unless_done


def saving_at_ends_of_epochs(save: Callable[..., Any]) -> Callable[..., Any]:
    """Returns fairseq's `save_checkpoint` that leaves out no checkpoint of --save-interval-updates.

    fairseq's own leaves out those at the end of an epoch, where it writes that of the epoch, if any.
    """

    def save_all(cfg: Any, trainer: Any, epoch_itr: Any, *rest: Any) -> Any:
        saved = save(cfg, trainer, epoch_itr, *rest)
        last = Path(cfg.save_dir) / f"checkpoint_last{trainer.checkpoint_suffix}.pt"
        updates, every = trainer.get_num_updates(), cfg.save_interval_updates
        due = every > 0 and updates % every == 0 and epoch_itr.end_of_epoch()
        if due and trainer.should_save_checkpoint_on_current_rank and last.exists():
            name = f"checkpoint_{epoch_itr.epoch}_{updates}{trainer.checkpoint_suffix}.pt"
            with replacing(last.with_name(name)) as part:
                shutil.copyfile(last, part)
        return saved

    return save_all


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuses flags that the worker sets itself."""
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag in SET_HERE or flag.startswith("--distributed-"):
            raise UserError(
                f"{flag} is set by the worker: leave it out of fairseq-train's arguments, as one process trains, in "
                "the precision that is said before them."
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
