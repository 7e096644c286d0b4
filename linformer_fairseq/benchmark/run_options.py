"""How and where to measure: the options that every benchmark has."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from linformer_fairseq.cli.machine import describe_machine

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class RunOptions:
    """The options of a run, under their names on the command line."""

    command: str
    out: Path
    device: str
    dtype: str
    threads: int
    repeats: int
    warm_up: int
    seed: int
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
        """The options as results.json has them."""
        facts = {name: value for name, value in dataclasses.asdict(self).items() if name != "out"}
        return {**facts, "torch": torch.__version__}
