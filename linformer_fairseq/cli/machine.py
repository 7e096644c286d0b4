"""Describes the machine and the versions on which something was measured."""

import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def cpu_count() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine() -> str:
    """Returns one line with processor, cores, GPUs and versions."""
    parts = [f"{_processor()}, {cpu_count()} cores"]
    if torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} × {_gpu()}")
    parts.append(f"Python {platform.python_version()}, torch {torch.__version__}, {_fairseq_version()}")
    return "; ".join(parts)


@cache
def _gpu() -> str:
    # another process asks, as CUDA occupies some hundred MB of the GPU for as long as one lives that has called it
    command = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name(0))"]
    asked = subprocess.run(command, capture_output=True, text=True)
    return "GPU of unknown name" if asked.returncode else asked.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _fairseq_version() -> str:
    for package in ("fairseq-fixed", "fairseq"):
        with suppress(PackageNotFoundError):
            return f"{package} {version(package)}"
    return "fairseq of unknown version"
