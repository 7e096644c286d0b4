"""Every contender passes the check, and one that computes something else is noticed."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linformer_fairseq.benchmark.efficiency.checks import check
from linformer_fairseq.benchmark.efficiency.contenders import BY_PART, CONTENDERS, FULL, FUSED, OWN
from linformer_fairseq.benchmark.efficiency.peers import NotInstalledError, Peer, Sizes
from linformer_fairseq.benchmark.efficiency.settings import CAUSAL, CROSS, MODULES
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.modules import causal_two_level_attention, linformer_attention, source_attention
from linformer_fairseq.modules.level_sizes import CROSS as CROSS_SHARES
from linformer_fairseq.modules.level_sizes import ENCODER, SizeRule
from linformer_fairseq.modules.ops.two_level import LevelSizes

SIZES = Sizes(dim=16, heads=2, length=8, k=4)
ADOPTING = [contender.name for contender in CONTENDERS if contender.adopt]
CHECKED = [*(contender.name for contender in (*FULL, *OWN)), *ADOPTING]


def changed(part: str, name: str, change: Callable[[nn.Module], object]) -> dict[str, tuple[Peer, ...]]:
    """The contenders of a part, of which the modules of one are changed."""

    def make(right: Peer, sizes: Sizes) -> nn.Module:
        module = right.make(sizes)
        change(module)
        return module

    return {
        part: tuple(
            one._replace(make=lambda sizes, right=one: make(right, sizes)) if one.name == name else one
            for one in BY_PART[part]
        )
    }


def skip_unless_installed(name: str) -> None:
    try:
        next(contender for contender in CONTENDERS if contender.name == name).build(SIZES)
    except NotInstalledError as error:
        pytest.skip(str(error))


def wrong_output(module: nn.Module, inputs: tuple, out: Tensor) -> Tensor:
    return 1.001 * out


def wrong_gradient(module: nn.Module, inputs: tuple, out: Tensor) -> None:
    if out.requires_grad:
        out.register_hook(lambda gradient: 1.001 * gradient)


def test_all_contenders_compute_what_they_should() -> None:
    check()


def wrong_output_alone(module: nn.Module, inputs: tuple, out: Tensor) -> Tensor:
    return out if torch.is_grad_enabled() else 1.001 * out


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *((MODULES, name) for name in CHECKED),
        *((part, name) for part in (CROSS, CAUSAL) for name in (FUSED, *(own.name for own in OWN))),
    ],
)
def test_wrong_contender_is_named(part: str, name: str) -> None:
    skip_unless_installed(name)
    told = name if part == MODULES else f"{part}, {name}"
    for wrong, what in (
        (wrong_output, "output"),
        (wrong_gradient, "gradient"),
        (wrong_output_alone, "output without a gradient"),
    ):
        with pytest.raises(UserError) as caught:
            check(changed(part, name, lambda module, wrong=wrong: module.register_forward_hook(wrong)))
        assert str(caught.value).startswith(f"{told}: its {what} is wrong by ")


def test_ours_is_checked_in_every_order_of_products_and_in_full_and_in_two_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = {}

    def record(module: ModuleType, name: str) -> None:
        right, taken[name] = getattr(module, name), set()

        def recording(*arguments: object) -> bool:
            taken[name].add(right(*arguments))
            return right(*arguments)

        monkeypatch.setattr(module, name, recording)

    record(source_attention, "folding_pays")
    record(linformer_attention, "projecting_scores_pays")
    sizes, blocks = SizeRule.sizes, causal_two_level_attention.causal_two_level_attention
    forms, causal = set(), set()

    def recording_sizes(rule: SizeRule, n: int) -> LevelSizes | None:
        forms.add((rule.shares, sizes(rule, n) is None))
        return sizes(rule, n)

    def recording_blocks(query: Tensor, *rest: Any) -> Tensor:
        causal.add(len(query) > rest[3])
        return blocks(query, *rest)

    monkeypatch.setattr(SizeRule, "sizes", recording_sizes)
    monkeypatch.setattr(causal_two_level_attention, "causal_two_level_attention", recording_blocks)
    check()
    both = {True, False}
    assert taken == {"folding_pays": both, "projecting_scores_pays": both}
    assert forms == {(shares, full) for shares in (ENCODER, CROSS_SHARES) for full in both}
    assert causal == both


@pytest.mark.parametrize("name", ADOPTING)
def test_weights_that_were_not_adopted_are_noticed(name: str) -> None:
    skip_unless_installed(name)
    contenders = [one._replace(adopt=lambda module, ours: None) if one.name == name else one for one in CONTENDERS]
    with pytest.raises(UserError) as caught:
        check({MODULES: contenders})
    assert str(caught.value).startswith(f"{name}: its output is wrong by ")


def test_package_that_is_not_there_is_told_and_passed_over(capsys: pytest.CaptureFixture) -> None:
    def absent(sizes: Sizes) -> nn.Module:
        raise ImportError("No module named 'absent'")

    check({MODULES: [one._replace(make=absent) if one.adopt else one for one in CONTENDERS]})
    said = capsys.readouterr().out.split("\n")[:-1]
    assert len(said) == len(ADOPTING)
    assert all("cannot be imported (No module named 'absent')" in line for line in said)
