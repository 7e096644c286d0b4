"""How torch computes attention: on a GPU with its flash attention before cuDNN's, unless the user says otherwise; on a
CPU that rounds factors, with rounded ones where texts are long."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from fairseq.modules.multihead_attention import MultiheadAttention
from torch import Tensor
from torch.autograd.function import FunctionCtx

from linformer_fairseq.fused_attention import LONG, prefer_flash_attention, rounding_where_long
from linformer_fairseq.recipe.precision import allow_rounded_factors

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


class Watched(torch.autograd.Function):
    """Attention to the first key alone, which notes the precision of products in both passes."""

    seen: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx: FunctionCtx, query: Tensor, key: Tensor, value: Tensor, *_: object) -> Tensor:
        Watched.seen.append(torch.get_float32_matmul_precision())
        return query * value[..., :1, :]

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        Watched.seen.append(torch.get_float32_matmul_precision())
        return gradients[0], *[None] * (len(ctx.needs_input_grad) - 1)


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose CPU rounds the factors of products."""
    precision = torch.get_float32_matmul_precision()
    monkeypatch.setattr(F, "scaled_dot_product_attention", Watched.apply)
    monkeypatch.setattr(Watched, "seen", [])
    allow_rounded_factors(cpu=True)
    allow_rounded_factors(cpu=True)  # as often as one likes
    assert inspect.unwrap(F.scaled_dot_product_attention) is F.scaled_dot_product_attention.__wrapped__  # type: ignore[attr-defined]
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize(
    ("queries", "keys", "wanted"),
    [(LONG, LONG, "medium"), (LONG - 1, LONG, "highest"), (LONG, LONG - 1, "highest"), (1, 1, "highest")],
)
def test_only_long_attention_rounds_its_factors(queries: int, keys: int, wanted: str) -> None:
    query, key = torch.randn(1, 1, queries, 4, requires_grad=True), torch.randn(1, 1, keys, 4)
    out = F.scaled_dot_product_attention(query, key, key)
    assert torch.get_float32_matmul_precision() == "medium"
    out.sum().backward()
    assert torch.get_float32_matmul_precision() == "medium"
    assert Watched.seen == [wanted] * 2
    with torch.no_grad():
        F.scaled_dot_product_attention(query, key, key)
    assert (Watched.seen[2:], torch.get_float32_matmul_precision()) == ([wanted], "medium")
    F.scaled_dot_product_attention(query, key, key, None, 0.1).sum().backward()
    assert Watched.seen[3:] == ["medium"] * 2, "what is not fused has no reason to keep whole factors"


@pytest.mark.usefixtures("rounding")
def test_fairseqs_attention_is_one_of_them() -> None:
    side = torch.randn(5, 2, 16)
    MultiheadAttention(16, 2)(side, side, side, need_weights=False)
    assert Watched.seen == ["highest"]


@pytest.mark.usefixtures("rounding")
def test_an_error_leaves_the_precision_as_it_was() -> None:
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4))
    assert torch.get_float32_matmul_precision() == "medium"


def test_values_and_gradients_stay_the_same() -> None:
    query, key = torch.randn(1, 2, 5, 4, requires_grad=True), torch.randn(1, 2, 7, 4, requires_grad=True)
    mask = torch.rand(5, 7)
    found = rounding_where_long(F.scaled_dot_product_attention)(query, key, key, attn_mask=mask)
    wanted = F.scaled_dot_product_attention(query, key, key, attn_mask=mask)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), (query, key)) for out in (found, wanted)))
