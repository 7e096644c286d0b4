"""The kinds of attention that other packages compute, where these are installed."""

import pytest

from linformer_fairseq.modules import KINDS, ProjectedAttention
from linformer_fairseq.modules.peers.packages import NotInstalledError
from tests.reference import make_attention

PEERS = [name for name, kind in KINDS.items() if kind.encoder_only]


def make_peer(kind: str, **options: object) -> ProjectedAttention:
    """Returns such an attention as `make_attention` does, or skips the test where its package is missing."""
    try:
        return make_attention(kind, **options)
    except NotInstalledError as error:
        pytest.skip(str(error))


def need_peer(kind: str) -> None:
    """Skips the test where the package of a kind is missing; other kinds need none."""
    if kind in PEERS:
        make_peer(kind)
