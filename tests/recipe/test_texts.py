"""Reading text, and what cannot be read."""

import gzip
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.texts import count_lines, find_text, read_lines, stream_lines, write_lines

TEXT = "A man waits.\nThe dog sleeps.\n"
ZIPPED = gzip.compress((TEXT * 200).encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.en", b"A man waits.\nThe d\xf6g sleeps.\n", r"x\.en is not UTF-8 text: line 2 cannot be read"),
        ("x.en.gz", ZIPPED[:-12], r"x\.en\.gz is not a whole gzip file"),
        ("x.en.gz", ZIPPED[:12] + b"\xff" * 8 + ZIPPED[20:], r"x\.en\.gz is not a whole gzip file"),
    ],
    ids=["not UTF-8", "cut gzip", "damaged gzip"],
)
def test_bad_text_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_lines(find_text(tmp_path, "x", "en"))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.en").symlink_to("/proc/self/mem")  # not even root can read its first byte
    with pytest.raises(UserError, match=r"x\.en cannot be read: Input/output error"):
        read_lines(tmp_path / "x.en")
    with pytest.raises(UserError, match=r"x\.de is missing \(and so is x\.de\.gz\)"):
        find_text(tmp_path, "x", "de")


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    lines = ["A\u2028man\x85waits.", "", "The\rdog\x0csleeps."]
    path = tmp_path / "x.en"
    write_lines(path, lines)
    assert (read_lines(path), list(stream_lines(path)), count_lines(path)) == (lines, lines, 3)
    path.write_bytes("\ufeffA.\r\nB.".encode())
    assert read_lines(path) == ["A.", "B."]
