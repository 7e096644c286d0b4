"""A step's result is whole or not there."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import CommandError, UserError
from linformer_fairseq.recipe.steps import build_folder, locked, made_of, make_writable, remove_folder


def failing(error: UserError) -> Callable[[Path], None]:
    """A step that fails once it has filled the disk."""

    def build(to: Path) -> None:
        with suppress(OSError):
            (to / "much").write_bytes(bytes(1 << 20))
        raise error

    return build


def test_a_command_that_fails_on_a_full_disk_has_failed_for_that(small_disk: Path) -> None:
    """Its log says so, but who reads it; and what it has written makes room."""
    with pytest.raises(UserError, match=r"^The disk is full, so .*/bin could not be written"):
        build_folder(small_disk / "bin", "Binarising", failing(CommandError("fairseq-preprocess failed.")))
    assert not list(small_disk.iterdir())


def test_what_is_wrong_with_the_text_is_said_on_a_full_disk_too(small_disk: Path) -> None:
    with pytest.raises(UserError, match=r"^No pair is left\.$"):
        build_folder(small_disk / "bpe", "Learning", failing(UserError("No pair is left.")))
    assert not (small_disk / "bpe").exists()


def test_of_a_link_the_link_is_removed(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    (folder / "text").touch()
    link.symlink_to(folder)
    remove_folder(link)
    assert not link.is_symlink()
    assert (folder / "text").exists()
    remove_folder(folder)
    assert not list(tmp_path.iterdir())


def test_what_was_made_of_another_file_is_removed(tmp_path):
    source, folder = tmp_path / "model.pt", tmp_path / "made"
    source.write_text("one")
    made_of(folder, source)
    (folder / "result").touch()
    made_of(folder, source)
    assert (folder / "result").exists()
    source.write_text("another")
    made_of(folder, source)
    assert not (folder / "result").exists()


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UserError, match="Another run"), locked(tmp_path, patience=0):
        pass


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    make_writable(tmp_path / "new" / "out")
    assert list((tmp_path / "new" / "out").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="out cannot be written"):
        make_writable(tmp_path / "file" / "out")
