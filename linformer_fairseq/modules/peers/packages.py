"""Importing packages that may be missing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class NotInstalledError(ImportError, ValueError):
    """A package that attention comes from cannot be imported, so that a module with it cannot be built."""


@contextmanager
def package(name: str) -> Iterator[None]:
    """Imports within are of the package that pip installs by this name.

    Raises:
        NotInstalledError: it cannot be imported.
    """
    try:
        yield
    except NotInstalledError:
        raise
    except ImportError as error:
        raise NotInstalledError(
            f"{name} cannot be imported ({error}): pip install 'linformer_fairseq[peers]'"
        ) from error


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Imports within find no module `name`: one that is not needed, and fails to load if built for another torch."""
    imported = name in sys.modules
    if not imported:
        sys.modules[name] = None  # type: ignore[assignment]  # as Python documents
    try:
        yield
    finally:
        if not imported:
            del sys.modules[name]
