"""Files are written whole or not at all."""

import hashlib
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, sha256_of, write_json, write_text


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"ä": [1, None]})
    write_json(path, {"ä": [2, 0.5]})
    assert read_json(path) == {"ä": [2, 0.5]}
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(TypeError):
        write_json(path, object())
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert read_json(path) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"half": ')
    with pytest.raises(UserError, match=r"x\.json is damaged: remove it"):
        read_json(path)


def test_digest_is_of_every_piece(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000  # more than one piece, and no whole number of them
    (tmp_path / "x").write_bytes(data)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(data).hexdigest()
    with pytest.raises(UserError, match=r"y cannot be read: No such file or directory\.$"):
        sha256_of(tmp_path / "y")
