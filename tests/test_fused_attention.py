"""torch computes attention on a GPU with its flash attention before cuDNN's, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from linformer_fairseq.fused_attention import prefer_flash_attention

VARIABLE = "TORCH_CUDNN_SDPA_DEPRIORITIZED"


def test_importing_the_plugin_sets_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    program = f"import linformer_fairseq, os; print(os.environ['{VARIABLE}'])"
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split()[-1] == "1"


def test_what_is_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    prefer_flash_attention()
    assert os.environ[VARIABLE] == "0"


@pytest.mark.gpu
def test_cudnn_is_not_used() -> None:
    q = torch.randn(2, 4, 96, 64, device="cuda", dtype=torch.float16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        F.scaled_dot_product_attention(q, q, q)
    assert not any("cudnn_attention" in event.key for event in profile.key_averages())
