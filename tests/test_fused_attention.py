"""Which kernel torch uses for attention: on a GPU its flash attention before cuDNN's, unless the user says otherwise;
on a CPU that rounds factors the fused one for long texts."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from fairseq.modules.multihead_attention import MultiheadAttention
from torch import Tensor

from linformer_fairseq.fused_attention import LONG, fused_where_long, prefer_flash_attention
from linformer_fairseq.recipe.worker import allow_rounded_factors

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


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose CPU rounds the factors of products."""
    attention, precision = F.scaled_dot_product_attention, torch.get_float32_matmul_precision()
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)  # as it was, in the end
    allow_rounded_factors(cpu=True)
    allow_rounded_factors(cpu=True)  # as often as one likes
    assert F.scaled_dot_product_attention.__wrapped__ is attention  # type: ignore[attr-defined]
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cuda.enable_flash_sdp(True)


def kernels(attention: torch.nn.Module, queries: int, keys: int) -> set[str]:
    """The kernels that attention of the length of both sides uses."""
    query, key = torch.randn(queries, 1, 16), torch.randn(keys, 1, 16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attention(query, key, key)
    names = {event.key.removeprefix("aten::") for event in profile.key_averages()}
    return names & {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"}


class Direct(torch.nn.Module):
    """Torch's attention as this package calls it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sides = (side.transpose(0, 1)[:, None] for side in (query, key, value))
        return F.scaled_dot_product_attention(*sides)


class Fairseq(MultiheadAttention):
    """fairseq's attention as its layers call it."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor | None]:  # type: ignore[override]
        return super().forward(query, key, value, need_weights=False)


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize("attention", [Direct(), Fairseq(16, 2)], ids=["direct", "fairseq"])
def test_long_texts_are_fused_where_factors_are_rounded(attention: torch.nn.Module) -> None:
    assert kernels(attention, LONG, LONG) == {"_scaled_dot_product_flash_attention_for_cpu"}
    for lengths in ((LONG - 1, LONG), (LONG, LONG - 1)):
        assert kernels(attention, *lengths) == {"_scaled_dot_product_attention_math"}
    assert kernels(attention, LONG, LONG) == {"_scaled_dot_product_flash_attention_for_cpu"}


def test_the_length_decides_nothing_else() -> None:
    query, key = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 7, 4)
    mask = torch.rand(5, 7)
    attention = fused_where_long(F.scaled_dot_product_attention)
    found = attention(query, key, key, attn_mask=mask)
    torch.backends.cuda.enable_flash_sdp(True)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(query, key, key, attn_mask=mask))
