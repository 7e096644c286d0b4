"""What was measured: other packages' versions, and this one's code."""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import linformer_fairseq

from .peers import PEERS

MEASURING = (
    *("forward", "memory", "models", "timing", "efficiency/batches", "efficiency/contenders", "efficiency/inference"),
    *("efficiency/machine_peak", "efficiency/model_size", "efficiency/module_grid", "efficiency/peers"),
    *("efficiency/trainer", "efficiency/training"),
)
"""The benchmark's files that decide what is measured, and how."""
NOT_TIMED = "modules/ops/naive.py"


def versions() -> dict[str, str | None]:
    """Returns the versions of the packages that the peers come from, None for one that is not installed."""
    return {peer.package: _version(peer.package) for peer in PEERS}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def code_digest(root: Path = Path(linformer_fairseq.__file__).parent) -> str:
    """Returns the SHA-256 of the code that is timed and of the code that times it, as its times hold for no other."""
    timed = {*root.glob("modules/**/*.py"), *root.glob("models/**/*.py")} - {root / NOT_TIMED}
    digest = hashlib.sha256()
    for path in sorted([*timed, *(root / f"benchmark/{name}.py" for name in MEASURING)]):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
