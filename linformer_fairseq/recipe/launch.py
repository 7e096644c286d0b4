"""The command that starts a training: on one GPU, all GPUs of a machine, several machines, or CPU processes.

`python -m linformer_fairseq.recipe.launch` runs torchrun and ends as the worker that failed first does, with its one
sentence for the last line instead of torchrun's traceback.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.main import quiet_libraries

WORKER = "linformer_fairseq.recipe.worker"
LAUNCHER = "LINFORMER_LAUNCHER_PID"
"""The environment variable that tells workers which process started them."""
PORT = 29500
"""The port of the machine with NODE_RANK=0 unless MASTER_PORT says otherwise; torchrun's own default."""


@dataclass(frozen=True)
class Machines:
    """Where one training runs: which of how many machines this one is, and the address of the first one."""

    processes: int = 1
    """Processes on each machine; one per GPU."""
    nodes: int = 1
    node_rank: int = 0
    master_addr: str = ""
    master_port: int = PORT

    @property
    def world_size(self) -> int:
        """The number of processes that train one model."""
        return self.processes * self.nodes


def machines_from(environment: Mapping[str, str], processes: int | None, batches: int, cpu: bool) -> Machines:
    """Returns this machine's part in a training, or raises UserError for what would end in several trainings or none.

    Args:
        environment: read for NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT.
        processes: processes on this machine; unless given, one on the CPU, or as many of the visible GPUs as can share
            the `batches` of an update evenly.
    """
    if environment.get("WORLD_SIZE", "1") != "1":
        raise UserError(
            f"WORLD_SIZE={environment['WORLD_SIZE']} says that something like torchrun started this command: unset it, "
            "set NNODES, NODE_RANK and MASTER_ADDR instead and start the command once on each machine, as it starts a "
            "process for each GPU itself."
        )
    nodes = _number(environment, "NNODES", 1, 1, 2**16)
    node_rank = _number(environment, "NODE_RANK", 0, 0, nodes - 1)
    master_port = _number(environment, "MASTER_PORT", PORT, 1, 2**16 - 1)
    master_addr = environment.get("MASTER_ADDR", "")
    if nodes > 1 and not master_addr:
        raise UserError(
            f"NNODES={nodes}, but MASTER_ADDR is not set: set it to the address of the machine that has NODE_RANK=0."
        )
    if master_addr and not environment.get("NNODES"):
        raise UserError(
            f"MASTER_ADDR={master_addr}, but NNODES is not set: set it to the number of machines, 1 for this one alone."
        )
    return Machines(_processes(processes, batches, nodes, cpu), nodes, node_rank, master_addr, master_port)


def _number(environment: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environment.get(name) or str(default)
    if not (text.isdecimal() and low <= int(text) <= high):
        wanted = f"a whole number from {low} to {high}" if low < high else f"{low}"
        why = f", with NNODES={environment.get('NNODES') or 1}" if name == "NODE_RANK" else ""
        raise UserError(f"{name}={text}, but it must be {wanted}{why}.")
    return int(text)


def _processes(wanted: int | None, batches: int, nodes: int, cpu: bool) -> int:
    if cpu:
        return wanted or 1
    visible = torch.cuda.device_count()
    if not visible:
        raise UserError("No GPU is visible here: see what nvidia-smi says, or ask for a training on the CPU.")
    if wanted and wanted > visible:
        raise UserError(
            f"{wanted} processes need a GPU each, but {visible} are visible here: ask for {visible} at most."
        )
    sharing = [count for count in range(1, visible + 1) if batches % (count * nodes) == 0]
    return wanted or max(sharing, default=visible)  # `update_freq` refuses what cannot share


def train_command(machines: Machines, precision: str, arguments: Sequence[str]) -> list[str]:
    """Returns the full command that trains on this machine; for several machines it is started on each of them.

    Args:
        arguments: those of `fairseq-train` that the worker does not set itself.
    """
    world_size = machines.world_size
    worker = [*("-m", WORKER, "--world-size", str(world_size), "--precision", precision), "--", *arguments]
    if world_size == 1:
        return [sys.executable, *worker]
    rendezvous = ["--standalone"]  # on a free port
    if machines.nodes > 1:
        rendezvous = ["--node-rank", str(machines.node_rank)]
        rendezvous += ["--master-addr", machines.master_addr, "--master-port", str(machines.master_port)]
    return [
        *(sys.executable, "-m", "linformer_fairseq.recipe.launch"),
        *("--nnodes", str(machines.nodes), "--nproc-per-node", str(machines.processes)),
        *rendezvous,
        *worker,
    ]


def update_freq(batches: int, world_size: int) -> int:
    """Returns the `--update-freq` with which an update sees `batches` batches; an uneven share is refused."""
    if batches % world_size:
        fitting = [str(count) for count in range(1, batches + 1) if batches % count == 0]
        raise UserError(
            f"{batches} batches per update cannot be shared evenly by {world_size} processes: train with "
            f"{', '.join(fitting[:-1])}{' or ' * (len(fitting) > 1)}{fitting[-1]}."
        )
    return batches // world_size


def torchrun(argv: Sequence[str]) -> int:
    """Runs torchrun; returns 0, the status of the worker that failed first, or 128 and the signal that ended it."""
    quiet_libraries()
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        run.main(list(argv))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return max(failure.exitcode, 1)  # a signal's number is negative
    except SignalException as error:
        return 128 + error.sigval
    return 0


if __name__ == "__main__":
    sys.exit(torchrun(sys.argv[1:]))
