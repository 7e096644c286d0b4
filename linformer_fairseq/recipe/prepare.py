"""From raw text to fairseq's binary data, each step in a folder of its own: raw, tok, bpe, bin."""

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
    arguments = [
        *("--source-lang", text.source_lang, "--target-lang", text.target_lang, "--joined-dictionary"),
        *(flag for split in texts.SPLITS for flag in (f"--{split}pref", str(out / "bpe" / split))),
        *("--destdir", str(to), "--workers", str(threads)),
    ]
    log = out / "preprocess.log"
    with growing(to, "*.bin", BYTES_PER_SUBWORD * subwords.total(out / "bpe"), "binarising"):
        run_command(command_line("preprocess", arguments), "fairseq-preprocess", log, threads, lock)
    (to / log.name).unlink(missing_ok=True)  # fairseq's own copy
    _check_binarised(text, out, to)


def _check_binarised(text: Text, out: Path, to: Path) -> None:
    """Refuses binary data that has lost lines, as fairseq's workers guess at which byte of a file their part begins."""
    facts = read_json(out / "bpe" / subwords.FACTS)
    for split in texts.SPLITS:
        for lang in (text.source_lang, text.target_lang):
            prefix = to / f"{split}.{text.source_lang}-{text.target_lang}.{lang}"
            found, wanted = len(load_indexed_dataset(str(prefix), None)), facts[split]["pairs"]
            if found != wanted:
                raise UserError(
                    f"fairseq-preprocess has made {found:,} of the {wanted:,} lines of {split}.{lang}: run the same "
                    "command again with --threads 1."
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
