"""From raw text to fairseq's binary data: Moses tokens, joint BPE, one dictionary for both languages."""

import hashlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

from joblib import Parallel, delayed
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.progress import say

from . import corpus, texts
from .fairseq_command import run_fairseq
from .settings import Settings
from .steps import build_folder

CHUNK = 5000  # lines that one process takes at a time


def prepare(settings: Settings, out: Path, lock: int) -> None:
    """Make `out/bin`, in folders that can be looked into: raw, tok, bpe, bin."""
    source, target = settings.source_lang, settings.target_lang
    build_folder(out / "raw", "Collecting the text", lambda to: _collect(settings, to))
    build_folder(
        out / "tok",
        "Tokenising",
        lambda to: _tokenise(out / "raw", to, (source, target), settings.threads),
    )
    build_folder(
        out / "bpe",
        f"Learning and applying {settings.bpe_merges:,} BPE merges",
        lambda to: _segment(out / "tok", to, settings),
    )
    build_folder(
        out / "bin",
        "Binarising",
        lambda to: run_fairseq(
            "preprocess",
            [
                *("--source-lang", source, "--target-lang", target, "--joined-dictionary"),
                *(flag for split in texts.SPLITS for flag in (f"--{split}pref", str(out / "bpe" / split))),
                *("--destdir", str(to), "--workers", str(settings.threads)),
            ],
            log=out / "preprocess.log",
            threads=settings.threads,
            lock=lock,
        ),
    )


def check_data(folder: Path, source: str, target: str) -> dict[str, str]:
    """The digest of each file of the user's own text; refuses a folder that lacks one."""
    if not folder.is_dir():
        raise UserError(f"--data {folder} is not a folder.")
    paths = [texts.find_text(folder, split, lang) for split in texts.SPLITS for lang in (source, target)]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _collect(settings: Settings, to: Path) -> None:
    """Write the raw text, without the training pairs of which a side is empty."""
    source, target = settings.source_lang, settings.target_lang
    sizes: dict[str, int] = {}
    folder = settings.data.get("folder")
    made = None if folder else corpus.make_corpus(settings.data["made"], settings.seed)
    for split in texts.SPLITS:
        if made is None:
            left, right = texts.read_parallel(Path(folder), split, source, target)
        else:
            sides = dict(zip(("en", "de"), zip(*made[split], strict=True), strict=True))
            left, right = list(sides[source]), list(sides[target])
        if split == "train":
            whole = [(a, b) for a, b in zip(left, right, strict=True) if a.strip() and b.strip()]
            if not whole:
                raise UserError(f"No training line of {folder} has text in both languages.")
            if len(whole) < len(left):
                say(f"  left out {len(left) - len(whole):,} training pairs with an empty side")
            sizes["dropped"] = len(left) - len(whole)
            left, right = [a for a, _ in whole], [b for _, b in whole]
        texts.write_lines(to / f"{split}.{source}", left)
        texts.write_lines(to / f"{split}.{target}", right)
        sizes[split] = len(left)
        say(f"  {split}: {len(left):,} sentence pairs")
    write_json(to / "sizes.json", sizes)


def _in_chunks(work: Callable[[list[str]], list[str]], lines: list[str], parallel: Parallel) -> list[str]:
    """Apply `work` to all lines, in several processes."""
    chunks = (lines[start : start + CHUNK] for start in range(0, len(lines), CHUNK))
    return [line for done in parallel(delayed(work)(chunk) for chunk in chunks) for line in done]


def _tokenise(raw: Path, to: Path, langs: tuple[str, str], threads: int) -> None:
    with Parallel(n_jobs=threads) as parallel:
        for lang in langs:
            for split in texts.SPLITS:
                lines = texts.read_lines(raw / f"{split}.{lang}")
                texts.write_lines(to / f"{split}.{lang}", _in_chunks(partial(_moses, lang), lines, parallel))


def _moses(lang: str, lines: list[str]) -> list[str]:
    tokenizer = MosesTokenizer(lang)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def _segment(tok: Path, to: Path, settings: Settings) -> None:
    """Learn the merges on both sides of the training text together and cut every split into subwords."""
    langs = (settings.source_lang, settings.target_lang)
    training = [line for lang in langs for line in texts.read_lines(tok / f"train.{lang}")]
    with open(to / "codes", "w", encoding="utf-8") as codes:
        learn_bpe(training, codes, settings.bpe_merges)
    codes_text = (to / "codes").read_text(encoding="utf-8")
    source_lengths: list[int] = []
    with Parallel(n_jobs=settings.threads) as parallel:
        for lang in langs:
            for split in texts.SPLITS:
                lines = texts.read_lines(tok / f"{split}.{lang}")
                lines = _in_chunks(partial(_subwords, codes_text), lines, parallel)
                lengths = [len(line.split()) + 1 for line in lines]  # with the end-of-sentence symbol
                if split != "train":
                    side = "source" if lang == langs[0] else "target"
                    _check_lengths(lengths, f"{split}.{lang}", settings, f"--max-{side}-positions")
                elif lang == langs[0]:
                    source_lengths = lengths
                texts.write_lines(to / f"{split}.{lang}", lines)
    mean = sum(source_lengths) / len(source_lengths)
    write_json(to / "lengths.json", {"source_mean": round(mean, 1), "source_max": max(source_lengths)})


def _subwords(codes: str, lines: list[str]) -> list[str]:
    bpe = BPE(io.StringIO(codes))
    return [bpe.process_line(line) for line in lines]


def _check_lengths(lengths: list[int], name: str, settings: Settings, flag: str) -> None:
    """A sentence that fairseq could not validate or translate is refused now, not after the training."""
    limit = min(settings.max_tokens, settings.longest[flag])
    longest = max(lengths)
    if longest > limit:
        raise UserError(
            f"Line {lengths.index(longest) + 1} of {name} has {longest} subwords, more than the {limit} that fit "
            f"into a batch or the model: shorten it, or raise --max-tokens and (behind --) {flag}."
        )


def corpus_facts(out: Path) -> dict[str, int | float]:
    """Sizes and source lengths of the prepared corpus, for the report."""
    return {**read_json(out / "raw" / "sizes.json"), **read_json(out / "bpe" / "lengths.json")}
