"""Work on all sentence pairs of a text, in several processes and with bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from joblib import Parallel, delayed

from linformer_fairseq.cli.progress import bar

from .texts import count_lines, stream_lines

CHUNK = 2000  # pairs that one process takes at a time

Pair = tuple[str, str]
Work = Callable[[list[Pair]], list[Pair]]


def transform(work: Work, folder: Path, split: str, langs: tuple[str, str], parallel: Parallel) -> Iterator[Pair]:
    """`work` applied to the pairs of a split, in their order."""
    paths = [folder / f"{split}.{lang}" for lang in langs]
    pairs = zip(*map(stream_lines, paths), strict=True)
    with bar(count_lines(paths[0]), split, " pairs") as progress:
        for done in parallel(delayed(work)(chunk) for chunk in _chunks(pairs)):
            progress.update(len(done))
            yield from done


def workers(threads: int) -> Parallel:
    """So many processes, to be used in a `with` statement, as they stay for all splits."""
    return Parallel(n_jobs=threads, return_as="generator")


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    pairs = iter(pairs)
    while chunk := list(islice(pairs, CHUNK)):
        yield chunk
