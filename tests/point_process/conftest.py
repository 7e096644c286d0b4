"""The task and the models of event sequences, with every kind of causal attention, Performer's among them."""

from argparse import Namespace
from collections.abc import Iterator

import pytest
from fairseq.utils import import_user_module

from tests.fairseq_commands import ROOT
from tests.peers.conftest import registered

FOLDER = ROOT / "examples" / "point_process"

with registered():
    import_user_module(Namespace(user_dir=str(FOLDER)))


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    with registered():
        yield
