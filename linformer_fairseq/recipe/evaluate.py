"""Translating the test set with a trained model, and scoring the translation."""

from collections.abc import Callable
from pathlib import Path

from sacremoses import MosesDetokenizer

from linformer_fairseq.average import average, newest
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import say
from linformer_fairseq.trained import override_flags

from . import logs, texts
from .fairseq_command import command_line
from .scores import score
from .settings import SCORES, SENTENCEPIECE, Model, Settings, Text
from .steps import build_folder, locked

TEST = "test"
HYPOTHESES = "hypotheses.txt"
LENGTH_LIMIT_FLAGS = ("--max-len-a", "1", "--max-len-b", "50")
"""Translations have up to 50 subwords more than the longest source of the batch; in Vaswani et al. (2017, section 6.1)
up to 50 more than their own source."""


def evaluate(model: Model, settings: Settings, out: Path, threads: int, subset: str = TEST) -> None:
    """Translates `subset` with a model's best or averaged checkpoint, and writes the translation, its scores and the
    validation perplexity to the folder of that name in the model's."""
    folder = out / "models" / model.slug
    with locked(folder) as lock:
        build_folder(
            folder / subset,
            f"Translating the {subset} set with {model.name}",
            lambda to: _evaluate(model, settings, out, to, threads, lock, subset),
        )


def chosen_checkpoint(folder: Path, translated: Path, settings: Settings) -> Path:
    """Returns the checkpoint that a model in `folder` translates with: its best one, or a mean kept in `translated`."""
    return translated / "averaged.pt" if settings.translation.average else folder / "checkpoints" / "checkpoint_best.pt"


def _evaluate(model: Model, settings: Settings, out: Path, to: Path, threads: int, lock: int, subset: str) -> None:
    folder = out / "models" / model.slug
    checkpoint = chosen_checkpoint(folder, to, settings)
    count = settings.translation.average
    chosen = newest(folder / "checkpoints", count) if count else [checkpoint]
    if count:
        average(chosen, checkpoint)
    common = [str(out / "bin"), "--task", "translation", "--path", str(checkpoint), *_shared_flags(settings)]
    references = texts.read_lines(out / "raw" / f"{subset}.{settings.text.target_lang}")
    # The error for a failed command names this log, so it lies where a failed attempt leaves it.
    validate_log, generate_log = to / "validate.log", to / "generate.log"
    validation = [*common, "--valid-subset", "valid", "--log-format", "json"]
    run_command(command_line("validate", validation), "fairseq-validate", validate_log, threads, lock, what=model.name)
    translation = [*common, *_generation(settings, subset)]
    on_line = translated_progress(model.name, len(references))
    run_command(
        command_line("generate", translation), "fairseq-generate", generate_log, threads, lock, on_line, model.name
    )
    found = logs.read_translation(generate_log.read_text(encoding="utf-8"))
    hypotheses = detokenise(in_order(found.hypotheses, len(references), model.name), settings.text)
    texts.write_lines(to / HYPOTHESES, hypotheses)
    write_json(
        to / SCORES,
        {
            **score(hypotheses, references, settings.text.target_lang),
            "perplexity": logs.read_perplexity(validate_log.read_text(encoding="utf-8")),
            "seconds": found.seconds,
            "sentences_per_second": found.sentences_per_second,
            "tokens_per_second": found.tokens_per_second,
            "checkpoints": [path.name for path in chosen],
            "precision": settings.training.inference_precision,
            "threads": threads,
            "machine": describe_machine(),
        },
    )


def _shared_flags(settings: Settings) -> list[str]:
    """Returns the flags that validation and translation share."""
    training = settings.training
    return [
        *("--max-tokens", str(training.max_tokens), "--required-batch-size-multiple", "1", "--num-workers", "0"),
        *(part for flag, longest in training.longest.items() for part in (flag, str(longest))),
        *(["--cpu"] if training.on_cpu else []),
        *(["--fp16"] if training.inference_precision == "fp16" else []),
        *override_flags(),
    ]


def _generation(settings: Settings, subset: str) -> list[str]:
    text, translation = settings.text, settings.translation
    return [
        *("--gen-subset", subset, "--source-lang", text.source_lang, "--target-lang", text.target_lang),
        *("--beam", str(translation.beam), "--lenpen", str(translation.lenpen)),
        *LENGTH_LIMIT_FLAGS,
        *("--log-format", "json"),
        *("--remove-bpe", *([SENTENCEPIECE] if text.bpe == SENTENCEPIECE else [])),
    ]


def translated_progress(name: str, number: int) -> Callable[[str], None]:
    """Returns a function of the lines of fairseq-generate that says after every tenth of a set how far it is.

    Args:
        name: of the model.
        number: of lines to translate.
    """
    done = 0

    def on_line(line: str) -> None:
        nonlocal done
        if line.startswith("H-"):
            done += 1
            if 10 * done // number > 10 * (done - 1) // number:
                say(f"  {name}: {done:,} of {number:,} translated")

    return on_line


def in_order(hypotheses: dict[int, str], expected: int, name: str) -> list[str]:
    """Returns the hypotheses in the order of the test set, and refuses to go on where one is missing."""
    if sorted(hypotheses) != list(range(expected)):
        raise UserError(
            f"{name} gave {len(hypotheses)} translations for {expected} lines, so there is no score: "
            "run the same command again."
        )
    return [hypotheses[i] for i in range(expected)]


def detokenise(lines: list[str], text: Text) -> list[str]:
    """Returns the lines as plain text, which the output of sentencepiece is already."""
    if text.bpe == SENTENCEPIECE:
        return lines
    detokenizer = MosesDetokenizer(text.target_lang)
    return [detokenizer.detokenize(line.split()) for line in lines]
