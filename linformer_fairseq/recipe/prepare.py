"""From raw text to fairseq's binary data, each step in a folder of its own: raw, tok, bpe, bin."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq.data.data_utils import load_indexed_dataset

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import growing, say

from . import subwords, texts
from .fairseq_command import command_line
from .settings import SENTENCEPIECE, Settings, Text
from .sources import FACTS, collect
from .steps import build_folder
from .tokens import tokenise

BYTES_PER_SUBWORD = 2  # of fairseq's binary data, with fewer than 65,500 words


def prepare(text: Text, out: Path, threads: int, lock: int) -> None:
    """Makes `out/bin`, and the folders that it is made from."""
    if prepared(out):  # what it was made of may have been removed
        say("Preparing the text: already done")
        return
    prepare_subwords(text, out, threads)
    build_folder(out / "bin", "Binarising", lambda to: _binarise(text, out, to, threads, lock))


def prepare_subwords(text: Text, out: Path, threads: int) -> None:
    """Makes the folders `raw`, `tok` and `bpe` of `out`: the text as it came, as tokens and as subwords."""
    langs = (text.source_lang, text.target_lang)
    learnt = "sentencepiece's subwords" if text.bpe == SENTENCEPIECE else "BPE merges"
    archives = out / "orig"
    build_folder(out / "raw", "Collecting the text", lambda to: collect(text.dataset, langs, archives, to))
    build_folder(out / "tok", "Tokenising", lambda to: tokenise(out / "raw", to, text, threads))
    build_folder(
        out / "bpe",
        f"Learning and applying {text.bpe_merges:,} {learnt}",
        lambda to: subwords.segment(out / "tok", to, text, threads),
    )


def _binarise(text: Text, out: Path, to: Path, threads: int, lock: int) -> None:
    prefixes = {split: [out / "bpe" / split] for split in texts.SPLITS}
    langs = (text.source_lang, text.target_lang)
    binarise(prefixes, langs, to, out / "preprocess.log", subwords.total(out / "bpe"), threads, lock)


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


def prepared(out: Path) -> bool:
    """Returns whether the binarised text is there."""
    return (out / "bin").is_dir()


def check_lengths(settings: Settings, out: Path) -> None:
    """Refuses a sentence that fairseq could not validate on, or could not translate, before any model is trained."""
    facts = read_json(out / "bpe" / subwords.FACTS)
    text, training = settings.text, settings.training
    for split in ("valid", "test"):
        for side, lang in (("source", text.source_lang), ("target", text.target_lang)):
            flag = f"--max-{side}-positions"
            limit = min(training.max_tokens, training.longest[flag])
            longest, line = facts[split][f"{side}_max"], facts[split][f"{side}_max_line"]
            if longest > limit:
                raise UserError(
                    f"Line {line} of {split}.{lang} has {longest} subwords, more than the {limit} that fit into a "
                    f"batch or the model: shorten it, or raise --max-tokens and (behind --) {flag}."
                )


def corpus_facts(out: Path) -> dict[str, Any]:
    """Returns sizes, source lengths and what was left out of the prepared corpus, for the report."""
    raw, cut = read_json(out / "raw" / FACTS), read_json(out / "bpe" / subwords.FACTS)
    sizes = {split: cut[split]["pairs"] for split in texts.SPLITS}
    train = cut["train"]
    return {
        **raw,
        **sizes,
        "dropped": {**raw["dropped"], **cut["dropped"]},
        "source_mean": round(train["source_subwords"] / train["pairs"], 1),
        "source_max": train["source_max"],
    }
