"""Steps that are done once: the result of a step appears under its name only when it is whole."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from linformer_fairseq.cli.errors import CommandError, UserError
from linformer_fairseq.cli.files import is_full, read_json, replacing, sha256_of, write_json
from linformer_fairseq.cli.progress import say

LOCK_PATIENCE_SECONDS = 30.0
MADE_OF = "made-of.json"
"""In a folder, which file its content was made of."""
LITTLE_SPACE = 1_000_000  # bytes; a command that failed with less left has failed for that


def build_folder(target: Path, what: str, build: Callable[[Path], None]) -> None:
    """Makes the folder `target` of what `build` puts into one beside it; a `target` that exists is kept as it is.

    On a full disk, what was written by then is removed, so that there is room to work with.

    Raises:
        UserError: from `build`, or the disk is full.
    """
    if target.is_dir():
        say(f"{what}: already done")
        return
    say(f"{what} ...")
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        build(part)
    except (OSError, UserError) as error:
        out_of_space = isinstance(error, CommandError) and shutil.disk_usage(part).free < LITTLE_SPACE
        if is_full(error) or out_of_space:
            shutil.rmtree(part, ignore_errors=True)
            raise UserError(
                f"The disk is full, so {target} could not be written: free some space and run the same command again."
            ) from None
        raise
    part.rename(target)


def make_writable(out: Path) -> None:
    """Makes the output folder, or refuses one that cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)  # another command may have been faster
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): name another folder with --out.") from None


def make_link(link: Path, target: Path) -> None:
    """Makes `link` a relative link to the file or folder `target`; one that is there is kept."""
    relative = Path(os.path.relpath(target, link.parent))
    if not (link.is_symlink() and link.readlink() == relative):  # else a training may be using it
        with replacing(link) as part:
            part.unlink(missing_ok=True)  # of a killed run
            part.symlink_to(relative)


def made_of(folder: Path, source: Path) -> None:
    """Makes a folder for what is made of the file `source`, without what was made of an earlier state of it."""
    note = folder / MADE_OF
    now = {"sha256": sha256_of(source)}
    if note.exists() and read_json(note) != now:
        remove_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(note, now)


def remove_folder(target: Path) -> None:
    """Removes what a step has made, or the link to it; killed on the way, it leaves nothing under the step's name."""
    if target.is_symlink():
        target.unlink()
    elif target.is_dir():
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        target.rename(part)
        shutil.rmtree(part)


@contextmanager
def locked(folder: Path, patience: float = LOCK_PATIENCE_SECONDS) -> Iterator[int]:
    """Keeps other runs out of `folder`; yields a file descriptor, which child processes are to hold as well.

    A killed run's last child may need a moment to end, hence the patience.
    """
    with open(folder / ".lock", "w") as lock:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UserError(f"Another run is working in {folder}: wait for it, or use another --out.") from None
                time.sleep(0.2)
        yield lock.fileno()
