"""From subwords to fairseq's binary data."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq.data.data_utils import load_indexed_dataset

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import growing

from . import texts
from .fairseq_command import command_line

BYTES_PER_SUBWORD = 2  # of fairseq's binary data, with fewer than 65,500 words


def binarise(
    prefixes: Mapping[str, Sequence[Path]],
    langs: tuple[str, ...],
    to: Path,
    log: Path,
    total: int,
    threads: int,
    lock: int,
    dictionary: Path | None = None,
) -> None:
    """Makes fairseq's binary data in `to` of subwords.

    Args:
        prefixes: of each split, the paths of its texts without the language; fairseq calls those after the first
            "test1", "test2" and so on.
        langs: source and target; none for text in one language, whose files have no language in their names.
        log: the file that fairseq-preprocess writes to.
        total: subwords of all texts, for the progress bar.
        lock: a file descriptor that the command keeps open.
        dictionary: that of other binary data, for words of the same numbers; None to make one of the training text.

    Raises:
        UserError: the command failed, or lost lines.
    """
    languages = ["--only-source"]
    if langs:
        languages = ["--source-lang", langs[0], "--target-lang", langs[1], "--joined-dictionary"]
    arguments = [
        *languages,
        *(part for split, own in prefixes.items() for part in (f"--{split}pref", ",".join(map(str, own)))),
        *("--destdir", str(to), "--workers", str(threads)),
        *(("--srcdict", str(dictionary)) if dictionary else ()),
    ]
    with growing(to, "*.bin", BYTES_PER_SUBWORD * total, "binarising"):
        run_command(command_line("preprocess", arguments), "fairseq-preprocess", log, threads, lock)
    (to / "preprocess.log").unlink(missing_ok=True)  # fairseq's own copy
    for split, own in prefixes.items():
        for number, prefix in enumerate(own):
            _check_binarised(prefix, langs, to, f"{split}{number or ''}")


def _check_binarised(prefix: Path, langs: tuple[str, ...], to: Path, name: str) -> None:
    """Refuses binary data that has lost lines, as fairseq's workers guess at which byte of a file their part begins."""
    files = {f"{prefix.name}.{lang}": f"{name}.{langs[0]}-{langs[1]}.{lang}" for lang in langs} or {prefix.name: name}
    for text, binary in files.items():
        found = len(load_indexed_dataset(str(to / binary), None))
        wanted = texts.count_lines(prefix.with_name(text))
        if found != wanted:
            raise UserError(
                f"fairseq-preprocess has made {found:,} of the {wanted:,} lines of {text}: run the same command again "
                "with --threads 1."
            )
