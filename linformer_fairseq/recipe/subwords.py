"""From text to subwords."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import sentencepiece

from linformer_fairseq.cli.errors import CommandError
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import bar

_TRAIN_SENTENCEPIECE = (
    "import json, sys, sentencepiece; sentencepiece.SentencePieceTrainer.train(**json.loads(sys.argv[1]))"
)
_PIECES = re.compile(r"Added: .* size=(\d+)")


def learn_sentencepiece(training: list[Path], to: Path, size: int, threads: int, flag: str) -> Path:
    """Learns a sentencepiece model of `size` subwords in a process of its own, whose messages tell how far it is, and
    returns its file in the folder `to`.

    Args:
        flag: that said the size, for a refusal.
    """
    model = to / "sentencepiece.model"
    options = {
        "input": [str(path) for path in training],
        "model_prefix": str(model.with_suffix("")),
        "model_type": "bpe",
        "vocab_size": size,
        "character_coverage": 1.0,
        "num_threads": threads,
        "train_extremely_large_corpus": True,
    }
    log = to.with_name("sentencepiece.log")
    with bar(size, "learning", " pieces") as progress:

        def on_line(line: str) -> None:
            if found := _PIECES.search(line):
                progress.update(int(found[1]) - progress.n)

        try:
            run_command(
                [sys.executable, "-c", _TRAIN_SENTENCEPIECE, json.dumps(options)],
                "sentencepiece",
                log,
                threads,
                on_line=on_line,
            )
        except CommandError as error:
            raise CommandError(f"{error} Another {flag} than {size:,} may be what it needs.") from None
    return model


def encoder(model: Path) -> Callable[[str], str]:
    """Returns a function that cuts a line into subwords."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return lambda line: " ".join(pieces.encode(line, out_type=str))
