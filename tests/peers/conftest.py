"""Kinds of attention that other packages compute: there for these tests alone, and skipped where a package is missing.

Tests of other folders may run in the same process, and see the kinds of the plugin alone.
"""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest
import torch
from fairseq.utils import import_user_module

from linformer_fairseq.modules import CAUSAL_KINDS, KINDS, BaseAttention
from tests.commands.conftest import text, trained_transformer  # noqa: F401  # fixtures
from tests.fairseq_commands import ROOT
from tests.reference import assert_same_gradients, make_attention, padding_mask, tell_models

PACKAGES = {
    "longformer": "transformers",
    "nystromformer": "nystrom_attention",
    "performer": "performer_pytorch",
    "reformer": "reformer_pytorch",
}
PEERS = list(PACKAGES)

import_user_module(Namespace(user_dir=str(ROOT / "examples" / "peers")))
REGISTERED = [(kinds, name, kinds.pop(name)) for kinds in (KINDS, CAUSAL_KINDS) for name in PEERS if name in kinds]
tell_models()


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    with registered():
        yield


@contextmanager
def registered() -> Iterator[None]:
    """Has these kinds known within."""
    with pytest.MonkeyPatch.context() as patch:
        for kinds, name, kind in REGISTERED:
            patch.setitem(kinds, name, kind)
        tell_models()
        yield
    tell_models()


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if "kind" in request.fixturenames:
        need_peer(request.getfixturevalue("kind"))


def need_peer(kind: str) -> None:
    """Skips the test where the package of a kind is missing."""
    if find_spec(PACKAGES[kind]) is None:
        pytest.skip(f"{PACKAGES[kind]} is not installed")


def make_peer(kind: str, **options: object) -> BaseAttention:
    """Returns such an attention for up to 200 tokens, or skips the test where its package is missing."""
    need_peer(kind)
    return make_attention(kind, **{"n": 200, **options})


def check_alone(
    attention: BaseAttention, lengths: list[int], outputs: tuple[float, float], gradients: tuple[float, float]
) -> None:
    """Checks that sentences of these lengths, the longest first, are computed in a batch as each by itself.

    Args:
        outputs, gradients: the relative and absolute tolerances.
    """
    x = torch.randn(lengths[0], len(lengths), 8, dtype=torch.float64, requires_grad=True)
    out, _ = attention(x, x, x, padding_mask(lengths), need_weights=False)
    for sentence, n in enumerate(lengths):
        own, one = (y[:n, sentence : sentence + 1] for y in (out, x))
        alone, _ = attention(one, one, one, need_weights=False)
        torch.testing.assert_close(own, alone, rtol=outputs[0], atol=outputs[1])
        assert_same_gradients(own, alone, [x, *attention.parameters()], rtol=gradients[0], atol=gradients[1])
