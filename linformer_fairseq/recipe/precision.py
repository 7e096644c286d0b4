"""The precisions that models can be trained in."""

import inspect

import torch
import torch.nn.functional as F

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.fused_attention import rounding_where_long

FAST_FP32 = "fast-fp32"
PRECISIONS = ("fp32", FAST_FP32, "fp16", "amp", "bf16")
SIXTEEN_BITS = {"fp16": torch.float16, "amp": torch.float16, "bf16": torch.bfloat16}
"""What a GPU computes in, where that is not float32."""


def precision_arguments(precision: str, cpu: bool) -> list[str]:
    """Returns the flag of `fairseq-train` for a precision, if there is one; half precision on the CPU is refused."""
    if precision not in ("fp16", "amp"):
        return []
    if cpu:
        raise UserError(f"--precision {precision} needs a GPU: train with fp32 or bf16 on the CPU.")
    return [f"--{precision}"]


def precision_of_steps(precision: str, cpu: bool) -> str:
    """Returns the precision in which single training steps are measured, on a CPU never in 16 bits."""
    return "fp32" if cpu and precision in SIXTEEN_BITS else precision


def prepare_steps(precision: str, cpu: bool) -> torch.dtype:
    """Makes this process ready to measure training steps in a precision, and returns the type to compute them in."""
    if precision == FAST_FP32:
        allow_rounded_factors(cpu)
    return SIXTEEN_BITS.get(precision_of_steps(precision, cpu), torch.float32)


def allow_rounded_factors(cpu: bool) -> None:
    """Lets torch round the factors of float32 products, to TensorFloat-32 on a GPU and to bfloat16 on a CPU that has
    units for it; sums stay in float32."""
    torch.set_float32_matmul_precision("medium" if cpu else "high")
    if cpu:
        F.scaled_dot_product_attention = rounding_where_long(inspect.unwrap(F.scaled_dot_product_attention))
