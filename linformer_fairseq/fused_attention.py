"""Which of its kernels torch uses for attention."""

import os

_VARIABLE = "TORCH_CUDNN_SDPA_DEPRIORITIZED"


def prefer_flash_attention() -> None:
    """Has torch choose its flash attention before that of cuDNN, unless the environment variable
    TORCH_CUDNN_SDPA_DEPRIORITIZED is set; torch reads it when it first computes attention on a GPU.

    Where its cuDNN is newer than 9.15, as that of torch 2.11 is, torch prefers cuDNN's on Hopper and Blackwell, which
    builds a plan for every new shape of a batch. In machine translation hardly two batches have the same one.
    """
    os.environ.setdefault(_VARIABLE, "1")
