"""Fixtures of the recipe's tests."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _log_level():
    """The recipe quietens the root logger; other tests may want to hear it."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)
