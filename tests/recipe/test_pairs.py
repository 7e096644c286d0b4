"""Work in several processes: in order, with little in memory, and not for ever."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import pairs
from linformer_fairseq.recipe.pairs import transform
from linformer_fairseq.recipe.texts import SPLITS, Pair

LANGS = ("en", "de")


def upper(chunk: list[Pair]) -> list[Pair]:
    return [(source.upper(), target.upper()) for source, target in chunk]


def write(folder: Path, count: int) -> Path:
    for split in SPLITS:
        for lang in LANGS:
            (folder / f"{split}.{lang}").write_text("".join(f"{lang} {n}\n" for n in range(count)))
    return folder


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 3))
def test_every_pair_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, count: int, chunk: int, window: int
) -> None:
    folder = write(tmp_path_factory.mktemp("pairs"), count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "CHUNK", chunk)
        patch.setattr(pairs, "WINDOW", window)
        done = list(transform(upper, folder, LANGS, threads=1))
    assert done == [(split, (f"EN {n}", f"DE {n}")) for split in SPLITS for n in range(count)]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_no_more_than_a_window_is_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the reader of the results is."""
    monkeypatch.setattr(pairs, "CHUNK", 1)
    read = []
    monkeypatch.setattr(pairs, "stream_lines", lambda path: (read.append(n) or str(n) for n in range(1000)))
    results = transform(upper, write(tmp_path, 1000), LANGS, threads=2)
    assert next(results) == ("train", ("0", "0"))
    assert len(read) == len(LANGS) * 2 * pairs.WINDOW
    results.close()


@pytest.mark.slow
def test_a_killed_process_is_no_traceback(tmp_path: Path) -> None:
    def die(chunk: list[Pair]) -> list[Pair]:  # here, so that its process need not import this file
        os.kill(os.getpid(), signal.SIGKILL)
        return chunk

    with pytest.raises(UserError, match="set --threads lower"):
        list(transform(die, write(tmp_path, 10), LANGS, threads=2))
