"""`python -m linformer_fairseq.recipe.worker`: one process of a training, which checks how many there are.

`fairseq-train` under torchrun may train as many models as there are processes, each alone, without a word (on the CPU
it does). This is `fairseq-train` that trains one model with `--world-size` processes, or none. `launch.train_command`
starts it.
"""

import logging
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from linformer_fairseq.cli.arguments import Parser, count, cut_at_dashes
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing
from linformer_fairseq.cli.processes import die_with_parent

from .launch import LAUNCHER
from .precision import FAST_FP32, PRECISIONS, allow_rounded_factors, precision_arguments

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""The environment variables that torchrun sets for every process that it starts."""
SET_HERE = ("--device-id", "--local_rank", "--fp16", "--amp", "--bf16", "--memory-efficient-bf16", "--tpu")
"""Flags of `fairseq-train` that the worker decides upon, with all that begin with `--distributed-`; the last three ask
for a TPU."""


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns the exit status: 2 for what is refused; what goes wrong inside fairseq ends as in `fairseq-train`."""
    try:
        _train(argv, environment)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")  # in one piece: other processes say the same
        return 2
    return 0


def _train(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Trains as `fairseq_cli.train.cli_main` does, but without profiling and plasma."""
    parser = Parser(prog="worker", usage="%(prog)s --world-size W [--precision P] -- FAIRSEQ-TRAIN ARGUMENTS")
    parser.add_argument("--world-size", type=count, required=True, help="processes that train one model")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    before, arguments = cut_at_dashes(argv)
    own = parser.parse_args(before)
    check_arguments(arguments)
    cpu = "--cpu" in arguments
    if not (cpu or torch.cuda.is_available()):
        raise UserError("No GPU is visible here: see what nvidia-smi says, or add --cpu to train without one.")
    added = [*distributed_arguments(own.world_size, environment, cpu), *precision_arguments(own.precision, cpu)]

    if own.precision == FAST_FP32:
        allow_rounded_factors(cpu)

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

    def train_together(cfg: Any) -> None:
        said = [own.precision, *arguments, *inputs_on_disk(cfg)]
        check_together(own.world_size, cfg.distributed_training.distributed_world_size, said)
        fairseq_cli.train.main(cfg)

    distributed_utils.call_main(cfg, train_together)


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


def inputs_on_disk(cfg: Any) -> list[str]:
    """Describes the files on this machine's disk that decide what is trained: the text, and whether there is a
    checkpoint to go on from (a process that finds none would not wait for those that do)."""
    text = sorted(path for path in Path(cfg.task.data).glob("*.*") if path.suffix in (".txt", ".bin", ".idx"))
    checkpoint = Path(cfg.checkpoint.restore_file)
    if checkpoint == Path("checkpoint_last.pt"):  # only this one does fairseq look for in the folder
        checkpoint = cfg.checkpoint.save_dir / checkpoint
    return [*(f"{path.name} {path.stat().st_size}" for path in text), f"{checkpoint.name} {checkpoint.exists()}"]


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuses flags that the worker sets itself."""
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag in SET_HERE or flag.startswith("--distributed-"):
            raise UserError(
                f"{flag} is set by the worker: leave it out of fairseq-train's arguments, as the number of processes "
                "and the precision are said once, before them."
            )


def distributed_arguments(world_size: int, environment: Mapping[str, str], cpu: bool) -> list[str]:
    """Returns the arguments of `fairseq-train` with which this process takes its place among `world_size`, or raises
    UserError when torchrun has not started just as many."""
    missing = [name for name in TORCHRUN if name not in environment]
    if world_size > 1 and missing:
        raise UserError(
            f"{world_size} processes are to train together, but torchrun has not started this one "
            f"({', '.join(missing)} unset): let torchrun start all of them."
        )
    started = environment.get("WORLD_SIZE", "1")
    if started != str(world_size):
        raise UserError(
            f"torchrun has started {started} processes in all, but --world-size is {world_size}: nothing is trained; "
            "give every machine the same number of processes and the same NNODES."
        )
    if world_size == 1:
        return ["--distributed-world-size", "1"]  # fairseq would start a process for each visible GPU by itself
    return [
        *("--distributed-world-size", started, "--distributed-rank", environment["RANK"]),
        *("--distributed-init-method", "env://", "--distributed-no-spawn", "--device-id", environment["LOCAL_RANK"]),
        *(("--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp") if cpu else ()),
    ]


def check_together(world_size: int, configured: int, arguments: Sequence[str]) -> None:
    """Raises UserError in every process unless torch and fairseq agree that `world_size` processes train one model.

    Args:
        configured: the world size in fairseq's configuration, which its trainer asks first.
        arguments: what has to be the same on all machines; those that are paths are not looked at.
    """
    from fairseq.distributed import utils as distributed_utils

    sizes = {
        "torch.distributed": distributed_utils.get_global_world_size(),  # 1 where no group has been set up
        "fairseq's data-parallel group": distributed_utils.get_data_parallel_world_size(),
        "fairseq's configuration": configured,
    }
    if set(sizes.values()) != {world_size}:
        found = ", ".join(f"{size} in {where}" for where, size in sizes.items())
        raise UserError(f"{world_size} processes were to train one model, but there are {found}: nothing is trained.")
    if world_size > 1:
        ranks, digests = _gather(1, world_size), _gather(_digest(arguments), world_size)
        if set(ranks) != {1}:
            raise UserError(
                f"{world_size} processes were to train one model, but their ranks, counted, are {ranks}: nothing is "
                "trained."
            )
        if len(set(digests)) > 1:
            raise UserError(
                "The machines were given different settings, or see different text or checkpoints, so nothing is "
                "trained: start the same command with the same variables on each, with the data on a disk that all see."
            )


def _gather(own: int, world_size: int) -> list[int]:
    """Returns every rank's number; ranks that two processes claim hold the sum of both."""
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    said = torch.zeros(world_size, dtype=torch.long, device=device)
    said[distributed.get_rank()] = own
    distributed.all_reduce(said)
    return said.tolist()


def _digest(arguments: Sequence[str]) -> int:
    """Returns a checksum of the arguments that are no paths, as a disk may be mounted anywhere."""
    text = "\n".join(argument for argument in arguments if os.sep not in argument)
    return zlib.crc32(text.encode())


if __name__ == "__main__":
    launcher = os.environ.get(LAUNCHER)
    die_with_parent(int(launcher) if launcher else None)
    status = main(sys.argv[1:], os.environ)
    if status:
        # At once: a thread of gloo's that is the last to let go of a tensor while Python ends aborts the process
        # (pytorch#179291), and what is refused together ends right after an all-reduce.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
