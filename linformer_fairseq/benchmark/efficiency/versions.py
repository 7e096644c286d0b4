"""What was measured: other packages' versions, and this one's code."""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import linformer_fairseq

from .peers import PEERS

MEASURED = ("modules", "models")
"""The folders whose code is timed."""


def versions() -> dict[str, str | None]:
    """Of the packages that the peers come from; None for one that is not installed."""
    return {peer.package: _version(peer.package) for peer in PEERS}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def code_digest() -> str:
    """SHA-256 of the code that is timed: times of other code are not these times."""
    digest = hashlib.sha256()
    root = Path(linformer_fairseq.__file__).parent
    for folder in MEASURED:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(f"{folder}/{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()
