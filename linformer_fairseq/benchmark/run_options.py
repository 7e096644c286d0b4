"""How and where to measure: the options that every benchmark has."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from linformer_fairseq.cli.arguments import count, natural
from linformer_fairseq.cli.machine import cpu_count, describe_machine

from .options import option

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run, under their names on the command line."""

    command: str
    out: Path = option(None, "folder for the report", group="running", type=Path, required=True, metavar="DIR")  # noqa: RUF009
    device: str = option("cpu", "where to measure", choices=("cpu", "cuda"))
    dtype: str = option("float32", "type of all tensors", choices=sorted(DTYPES))
    threads: int = option(cpu_count(), "threads of torch", type=count)
    repeats: int = option(15, "runs that count", type=count)
    warm_up: int = option(2, "runs before them", type=natural)
    seed: int = option(1, "seed of weights and inputs", type=natural)
    machine: str = field(default_factory=describe_machine)

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def tensor_options(self) -> dict[str, Any]:
        """Device and dtype, as torch's functions take them."""
        return {"device": self.torch_device, "dtype": self.torch_dtype}

    @property
    def runs(self) -> int:
        """All runs of a contender, those that do not count included."""
        return self.warm_up + self.repeats

    def prepare(self) -> None:
        """Creates the output folder, and sets torch's threads and seed."""
        self.out.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)

    def facts(self) -> dict[str, Any]:
        """Returns the options as results.json has them."""
        facts = {name: value for name, value in dataclasses.asdict(self).items() if name != "out"}
        return {**facts, "torch": torch.__version__}
