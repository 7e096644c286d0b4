"""Where models are trained, and in which precision."""

from collections.abc import Sequence

import torch

from linformer_fairseq.cli.errors import UserError

PRECISIONS = ("fp32", "fp16", "amp", "bf16")
SIXTEEN_BITS = {"fp16": torch.float16, "amp": torch.float16, "bf16": torch.bfloat16}
"""What a GPU computes in, where that is not float32."""


def on_cpu(train_args: Sequence[str]) -> bool:
    """Returns whether fairseq-train runs without a GPU: told so by these arguments, or as there is none."""
    return "--cpu" in train_args or not torch.cuda.is_available()


def precision_arguments(precision: str, cpu: bool) -> list[str]:
    """Returns the flag of `fairseq-train` for a precision, if there is one; half precision on the CPU is refused."""
    if precision not in ("fp16", "amp"):
        return []
    if cpu:
        raise UserError(f"--precision {precision} needs a GPU: train with fp32 or bf16 on the CPU.")
    return [f"--{precision}"]


def precision_of_steps(precision: str, cpu: bool) -> str:
    """Returns the precision in which single training steps are measured, on a CPU never in 16 bits."""
    return "fp32" if cpu else precision


def type_of_steps(precision: str, cpu: bool) -> torch.dtype:
    """Returns the type in which they are computed."""
    return SIXTEEN_BITS.get(precision_of_steps(precision, cpu), torch.float32)
