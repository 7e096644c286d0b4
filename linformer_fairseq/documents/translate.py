"""Translating whole documents with a trained model."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe import logs, texts
from linformer_fairseq.recipe.fairseq_command import command_line
from linformer_fairseq.recipe.steps import build_folder, locked
from linformer_fairseq.tasks.document_translation import HALVED
from linformer_fairseq.tasks.sentences import join_sentences, split_sentences
from linformer_fairseq.trained import override_flags

from .arguments import Study, checkpoint_of
from .arms import SENTENCES, for_length
from .prepare import SHORT
from .reading import SEPARATOR
from .sets import GLOSSARY, LONG, TEST, TESTED, VALID, DocumentSet
from .trainings import TASK, Training

HYPOTHESES = "hypotheses.txt"
FACTS = "translation.json"
FORCED, FREE = "forced", "free"
LENGTH_LIMITS = ("--max-len-a", "1.5", "--max-len-b", "20")
"""The longest translation of a sentence, in subwords."""


class Way(NamedTuple):
    """How a set is translated."""

    set_name: str
    longest: int
    """Tokens at which documents are cut."""
    mode: str = FORCED
    """Whether the number of sentences is that of the source, or whatever the model makes of it."""


def ways(study: Study) -> list[Way]:
    """Returns all ways in which the study translates with a model that was trained on documents."""
    trained = study.settings.text.max_subwords
    found = [Way(VALID, trained)]
    if study.test:
        shorter = [length for length in study.lengths if length < trained]
        longer = [length for length in study.lengths if length > trained]
        found += [Way(TEST, length) for length in (*shorter, trained)]
        found += [Way(LONG, length) for length in (trained, *longer)] if longer else []
        found.append(Way(GLOSSARY, trained))
        if study.free:
            found.append(Way(TEST, trained, FREE))
    return found


def ways_of(training: Training, study: Study, sets: dict[str, DocumentSet]) -> list[Way]:
    """Returns the ways in which a model of the study translates; sentence by sentence all lengths are one."""
    found = [way for way in ways(study) if way.set_name in sets and (way.mode == FORCED or not by_sentence(training))]
    if not by_sentence(training):
        return found
    return list({way.set_name: way for way in found}.values())


def by_sentence(training: Training) -> bool:
    """Returns whether a model translates sentence by sentence, which is the same at every length."""
    return training.variant is SENTENCES


def translation_folder(training: Training, way: Way, documents: DocumentSet) -> Path:
    """Returns where a translation is; sentence by sentence there is one for each split, of which sets are parts."""
    name = f"{documents.split}-by-sentence" if by_sentence(training) else f"{way.set_name}-{way.longest}-{way.mode}"
    return training.folder / "translations" / name


def translate(training: Training, study: Study, sets: dict[str, DocumentSet]) -> None:
    """Translates with a model in all its ways, one after another, and writes the translations, a document a line, with
    what is known of the run."""
    with locked(training.folder) as lock:
        for way in ways_of(training, study, sets):
            documents = sets[way.set_name]
            how = "" if by_sentence(training) else f", {way.mode}, in parts of up to {way.longest:,} tokens"
            build_folder(
                translation_folder(training, way, documents),
                f"Translating {documents.name} with {training.name}{how}",
                partial(_translate, training, way, study, documents, lock),
            )


def _translate(training: Training, way: Way, study: Study, documents: DocumentSet, lock: int, to: Path) -> None:
    expected = len(documents.sources) if by_sentence(training) else len(documents.spans)
    name, log = training.name, to / "generate.log"
    command = command_line("generate", generation(training, way, study, documents))
    on_line = _progress(name, expected)
    run_command(command, "fairseq-generate", log, study.threads, lock, on_line, name)
    printed = log.read_text(encoding="utf-8")
    found = logs.read_translation(printed)
    lines = in_order(found.hypotheses, expected, name)
    divided = (split_sentences(line, SEPARATOR) for line in lines)
    texts.write_lines(to / HYPOTHESES, (join_sentences(own, SEPARATOR) for own in divided))
    facts = {
        "seconds": found.seconds,
        "halved": printed.count(HALVED),
        "tokens_per_second": found.tokens_per_second,
        "beam": study.settings.translation.beam,
        "threads": study.threads,
        "jobs": study.jobs,
        "machine": describe_machine(),
        "command": command,
    }
    write_json(to / FACTS, facts)


def generation(training: Training, way: Way, study: Study, documents: DocumentSet) -> list[str]:
    """Returns the arguments of fairseq-generate."""
    text, translation, settings = study.settings.text, study.settings.translation, training.settings.training
    folder, subset = (SHORT, documents.split) if by_sentence(training) else (TESTED, documents.subset)
    return [
        *(str(study.out / "bin" / folder), "--task", TASK, "--gen-subset", subset),
        *("--source-lang", text.source_lang, "--target-lang", text.target_lang),
        *("--path", str(checkpoint_of(training)), "--sentence-count", way.mode),
        *("--part-tokens", str(way.longest)),
        *("--beam", str(translation.beam), "--lenpen", str(translation.lenpen), *LENGTH_LIMITS),
        *("--max-tokens", str(max(study.batch_tokens, way.longest)), "--required-batch-size-multiple", "1"),
        *("--num-workers", "0", "--log-format", "json"),
        *("--remove-bpe", "sentencepiece"),
        *(["--cpu"] if settings.on_cpu else []),
        *(["--fp16"] if settings.inference_precision == "fp16" else []),
        *override_flags(for_length(training.variant, way.longest, text.max_subwords, study.k)),
    ]


def _progress(name: str, number: int) -> Callable[[str], None]:
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
    """Returns the hypotheses in the order of the set, and refuses to go on where one is missing."""
    if sorted(hypotheses) != list(range(expected)):
        raise UserError(
            f"{name} gave {len(hypotheses)} translations for {expected} lines, so there is no score: "
            "run the same command again."
        )
    return [hypotheses[i] for i in range(expected)]


def read_hypotheses(training: Training, way: Way, documents: DocumentSet) -> list[list[str]]:
    """Returns the sentences of every translated document."""
    lines = texts.read_lines(translation_folder(training, way, documents) / HYPOTHESES)
    return documents.sentences(lines) if by_sentence(training) else [split_sentences(x, SEPARATOR) for x in lines]
