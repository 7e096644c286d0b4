"""Other packages' versions, and the digest of the code that is timed."""

from importlib.metadata import version
from pathlib import Path

import pytest

from linformer_fairseq.benchmark.efficiency import versions
from linformer_fairseq.benchmark.efficiency.peers import PEERS


def test_every_package_has_a_version_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = versions.versions()
    assert set(found) == {peer.package for peer in PEERS}
    for package, number in found.items():
        assert number is None or number == version(package)
    monkeypatch.setattr(versions, "PEERS", [peer._replace(package="no-such-package") for peer in PEERS[:1]])
    assert versions.versions() == {"no-such-package": None}


def test_digest_is_that_of_the_measured_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__init__.py", "modules/one.py", "modules/two.py", "models/one.py", "recipe/run.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(versions.linformer_fairseq, "__file__", str(tmp_path / "__init__.py"))
    digest = versions.code_digest()
    (tmp_path / "recipe/run.py").write_text("x = 2\n", encoding="utf-8")
    assert versions.code_digest() == digest
    for name in ("modules/two.py", "models/one.py"):
        (tmp_path / name).write_text("x = 2\n", encoding="utf-8")
        assert versions.code_digest() != digest
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    assert versions.code_digest() == digest
    (tmp_path / "models/one.py").rename(tmp_path / "models/two.py")
    assert versions.code_digest() != digest
