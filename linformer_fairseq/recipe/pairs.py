"""Work on all sentence pairs of a text, in several processes and with bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from joblib import Parallel, delayed

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import bar

from .texts import SPLITS, Pair, count_lines, stream_lines

CHUNK = 2000  # pairs that one process takes at a time
WINDOW = 8  # chunks for each process that are in memory

Item = TypeVar("Item")
Work = Callable[[list[Pair]], list[Pair]]


def transform(work: Work, folder: Path, langs: tuple[str, str], threads: int) -> Iterator[tuple[str, Pair]]:
    """Yields every pair in `folder` as `work` has changed it, with its split, in order.

    Raises:
        UserError: a process was killed.
    """
    with Parallel(n_jobs=threads, return_as="generator") as parallel:
        for split in SPLITS:
            paths = [folder / f"{split}.{lang}" for lang in langs]
            chunks = _chunks(zip(*map(stream_lines, paths), strict=True), CHUNK)
            with bar(count_lines(paths[0]), split, " pairs") as progress:
                # joblib reads ahead as far as it can, so it is given a little at a time
                for window in _chunks(chunks, WINDOW * threads):
                    try:
                        for done in parallel(delayed(work)(chunk) for chunk in window):
                            progress.update(len(done))
                            yield from ((split, pair) for pair in done)
                    except BrokenExecutor:
                        raise UserError(
                            f"A process that worked on {folder / split} was killed, probably because memory ran out: "
                            "set --threads lower and run the same command again."
                        ) from None


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk
