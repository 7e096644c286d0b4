"""The scripts as modules, and small models that were trained for the tests of commands."""

import importlib.util
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.commands.conftest import text, trained_roberta, trained_transformer
from tests.fairseq_commands import ROOT

__all__ = ["text", "trained_roberta", "trained_transformer"]


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """Returns a function that imports a script by its name."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
