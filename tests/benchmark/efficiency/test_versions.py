"""Other packages' versions, and the digest of the code that is timed."""

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

import linformer_fairseq
from linformer_fairseq.benchmark.efficiency import versions
from linformer_fairseq.benchmark.efficiency.peers import PEERS
from linformer_fairseq.benchmark.efficiency.versions import code_digest

ROOT = Path(linformer_fairseq.__file__).parent


def test_every_package_has_a_version_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = versions.versions()
    assert set(found) == {peer.package for peer in PEERS}
    for package, number in found.items():
        assert number is None or number == version(package)
    monkeypatch.setattr(versions, "PEERS", [peer._replace(package="no-such-package") for peer in PEERS[:1]])
    assert versions.versions() == {"no-such-package": None}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "linformer_fairseq"
    return shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize(
    ("name", "is_timed"),
    [
        ("modules/ops/causal.py", True),
        ("modules/ops/naive.py", False),
        ("models/decoder.py", True),
        ("benchmark/timing.py", True),
        ("benchmark/run_options.py", False),
        ("benchmark/efficiency/module_grid.py", True),
        ("benchmark/efficiency/module_report.py", False),
        ("benchmark/efficiency/store.py", False),
        ("benchmark/causal/product.py", False),
        ("convert/report.py", False),
    ],
)
def test_digest_is_that_of_the_timed_code(name: str, is_timed: bool, copied: Path) -> None:
    assert code_digest(copied) == code_digest()
    path = copied / name
    before = path.read_bytes()
    path.write_bytes(before + b"\n")
    assert (code_digest(copied) != code_digest()) == is_timed
    path.write_bytes(before)
    assert code_digest(copied) == code_digest()
