"""What was measured: other packages' versions, and this one's code."""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import linformer_fairseq

from .peers import PEERS

MEASURED = ("modules", "models", "benchmark")
"""The folders whose code decides on the times."""
NOT_MEASURED = ("causal/*.py", "arguments.py", "options.py", "settings.py", "*report.py", "plots.py")
"""The benchmark's files that do not: another benchmark, the command line, and what only shows results."""


def versions() -> dict[str, str | None]:
    """Returns the versions of the packages that the peers come from, None for one that is not installed."""
    return {peer.package: _version(peer.package) for peer in PEERS}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def code_digest(root: Path = Path(linformer_fairseq.__file__).parent) -> str:
    """Returns the SHA-256 of the code that is timed, in all its folders: times of other code are not these times."""
    digest = hashlib.sha256()
    for folder in MEASURED:
        for path in sorted((root / folder).rglob("*.py")):
            if folder != "benchmark" or not any(path.match(pattern) for pattern in NOT_MEASURED):
                digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
