"""What the documents name exists, their commands and examples run, and their figures are the stored ones."""

import csv
import importlib.util
import re
import runpy
import shlex
import statistics
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

import pytest
import setuptools
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LinformerConfig, flag_defaults
from linformer_fairseq.models.encoder_config import EncoderAttentionConfig
from linformer_fairseq.modules.registry import flag_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FLAGS = ROOT / "docs" / "flags.md"
DOCUMENTS = [
    README,
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/results/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
PACKAGE_COMMANDS = ("average", "benchmark", "classification", "convert", "documents", "masked_lm", "spectrum")
STUDIES = {
    f"examples/{name}/{script}.sh": name
    for name, script in (("documents", "run"), ("documents", "study"), ("masked_lm", "run"), ("classification", "run"))
}
"""The commands of the package that these scripts give their arguments to."""
ELSEWHERE = {"--config-dir"}  # a flag of hydra itself
COMMAND = re.compile(r"(?:[A-Z_0-9]+=\S+ +)*(?:fairseq-|python -m |examples/|scripts/)")

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def read(document: Path) -> str:
    """Returns the text of a document."""
    return document.read_text(encoding="utf-8")


def blocks(document: Path) -> Iterable[str]:
    """Yields the indented blocks of a document, without their indentation."""
    for block in re.findall(r"(?:^(?:    .*)?\n)+", read(document), re.MULTILINE):
        yield re.sub(r"^    ", "", block, flags=re.MULTILINE).strip("\n")


def commands(document: Path) -> Iterable[list[str]]:
    """Yields the words of every command of a document, without the variables before it."""
    for block in blocks(document):
        for line in block.replace("\\\n", " ").splitlines():
            if COMMAND.match(line):
                words = shlex.split(line, comments=True)
                yield words[next(i for i, word in enumerate(words) if not re.match(r"[A-Z_0-9]+=", word)) :]


def package_parser(name: str) -> ArgumentParser:
    """Returns the parser of `python -m linformer_fairseq.NAME`."""
    module = f"linformer_fairseq.{name}"
    return importlib.import_module(module if name == "average" else f"{module}.arguments").build_parser()


def parse(words: list[str]) -> None:
    """Parses a command as its program would, without what follows `--`."""
    program, *arguments = words[: words.index("--")] if "--" in words else words
    if program == "python" and arguments[1].count(".") > 1:
        assert importlib.util.find_spec(arguments[1])
    elif program == "python":
        package_parser(arguments[1].removeprefix("linformer_fairseq.")).parse_args(arguments[2:])
    elif program == "fairseq-train":
        options.parse_args_and_arch(options.get_training_parser(), arguments)
    elif program == "fairseq-preprocess":
        options.get_preprocessing_parser().parse_args(arguments)
    elif program == "fairseq-generate":
        options.parse_args_and_arch(options.get_generation_parser(), arguments)
    elif program == "fairseq-interactive":
        options.parse_args_and_arch(options.get_interactive_generation_parser(), arguments)
    elif program == "fairseq-validate":
        options.parse_args_and_arch(options.get_validation_parser(), arguments)
    elif program == "fairseq-eval-lm":
        options.parse_args_and_arch(options.get_eval_lm_parser(), arguments)
    elif program == "fairseq-hydra-train":
        assert (ROOT / "linformer_fairseq" / "config" / "model" / f"{dict_of(arguments)['model']}.yaml").is_file()
    elif program in STUDIES:
        package_parser(STUDIES[program]).parse_args(["--out", "OUT", *arguments])
    else:
        assert (ROOT / program).stat().st_mode & 0o100, f"{program} cannot be run"


def dict_of(arguments: list[str]) -> dict[str, str]:
    """Returns hydra's overrides by name."""
    return dict(argument.split("=", 1) for argument in arguments if "=" in argument)


def flags_of(parser: ArgumentParser) -> set[str]:
    """Returns all flags of a parser and of its subcommands."""
    found = {flag for action in parser._actions for flag in action.option_strings}
    for action in parser._subparsers._group_actions if parser._subparsers else ():
        found = found.union(*map(flags_of, action.choices.values()))
    return found


@pytest.fixture(scope="module")
def known_flags() -> set[str]:
    """Returns the flags of fairseq's commands, with our models and the documents' choices, and of ours."""
    optimiser = ["--optimizer", "adam", "--lr-scheduler", "inverse_sqrt"]
    train, language = options.get_training_parser(), options.get_training_parser()
    criterion = ["--criterion", "label_smoothed_cross_entropy"]
    options.parse_args_and_arch(train, ["DATA", "--arch", "linformer_transformer", *optimiser, *criterion])
    arch = ["--arch", "linformer_transformer_lm", "--task", "language_modeling"]
    options.parse_args_and_arch(language, ["DATA", *arch, *optimiser])
    masked, classes = options.get_training_parser(), options.get_training_parser()
    encoder = ["--arch", "linformer_roberta", "--optimizer", "adam", "--lr-scheduler", "polynomial_decay"]
    for parser, task in ((masked, "masked_lm"), (classes, "sentence_prediction")):
        options.parse_args_and_arch(parser, ["DATA", *encoder, "--task", task, "--criterion", task])
    generate, interactive = options.get_generation_parser(), options.get_interactive_generation_parser()
    documents = ["--task", "document_translation", "--bpe", "subword_nmt", "--tokenizer", "moses"]
    options.parse_args_and_arch(generate, ["DATA", "--path", "checkpoint.pt", "--remove-bpe"])
    options.parse_args_and_arch(interactive, ["DATA", "--path", "checkpoint.pt", *documents, "--bpe-codes", "codes"])
    parsers = [
        train,
        language,
        masked,
        classes,
        generate,
        interactive,
        options.get_preprocessing_parser(),
        *map(package_parser, PACKAGE_COMMANDS),
    ]
    return set().union(*map(flags_of, parsers)) | ELSEWHERE


@documents
def test_flags_exist(document: Path, known_flags: set[str]) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])", read(document)))
    assert named <= known_flags


def test_all_our_flags_are_documented(known_flags: set[str]) -> None:
    ours = {flag for flag in known_flags if flag.startswith("--linformer-")}
    assert len(ours) > 10
    assert ours <= set(re.findall(r"^\| `(--[\w-]+)` \|", read(FLAGS), re.MULTILINE))


@documents
def test_commands_parse(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # --user-dir is a relative path
    for words in commands(document):
        try:
            parse(words)
        except (SystemExit, UserError) as error:
            pytest.fail(f"{shlex.join(words)} is refused: {error}")


def test_the_commands_are_found() -> None:
    programs = {words[0] for document in DOCUMENTS for words in commands(document)}
    assert programs >= {"scripts/test.sh", "python"}
    assert programs >= {f"fairseq-{name}" for name in ("train", "generate", "eval-lm", "hydra-train")}


@documents
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", read(document)):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.is_file(), link
        headings = re.findall(r"^#+ (.*)$", read(target), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, link


@documents
def test_paths_exist(document: Path) -> None:
    text = read(document)
    for path in re.findall(r"`((?:linformer_fairseq|examples|scripts|tests|docs)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path


@documents
def test_rows_of_tables_name_the_kinds(document: Path) -> None:
    firsts = re.findall(r"^\| ([^|]*) \|", read(document), re.MULTILINE)
    assert not [first for first in firsts if re.search(r"\bdefault\b|\bpaper\b", first)]


def test_architectures() -> None:
    text = read(FLAGS)
    ours = {name for name in ARCH_MODEL_REGISTRY if re.match("(linformer|two_level)_(transformer|roberta)", name)}
    assert set(re.findall(r"`((?:linformer|two_level)_(?:transformer|roberta)\w*)`", text)) == ours
    assert set(re.findall(r"`((?:transformer|roberta)\w*)`", text)) <= set(ARCH_MODEL_REGISTRY)


def test_flags_of_masked_language_models() -> None:
    """The document names the flags that they do not have."""
    (told,) = re.findall(r"^## Encoders\n\n((?:.+\n)+)", read(FLAGS), re.MULTILINE)
    others = flag_defaults(LinformerConfig).keys() - flag_defaults(EncoderAttentionConfig).keys()
    assert set(re.findall(r"`(--linformer-[\w-]+)`", told)) == set(map(flag_of, others))


def test_python_examples_run() -> None:
    code = [block for document in DOCUMENTS for block in blocks(document) if "MultiheadAttention(" in block]
    code += [block for block in blocks(ROOT / "docs" / "causal.md") if "CausalLinformerAttention(" in block]
    assert len(code) == 2
    for block in code:
        exec(block, {})


def test_the_readme_is_one_page_and_complete() -> None:
    text = read(README)
    assert len(text.splitlines()) <= 110
    assert not re.findall(r"^[A-Z]+$|TODO", text, re.MULTILINE)


def test_the_table_of_translation_is_that_of_its_runs() -> None:
    """Means and deviations over the first three seeds; the other two seeds are told of in the text."""
    results = ROOT / "docs" / "results"
    scores: dict[str, dict[str, list[float]]] = {}
    with (results / "translation.csv").open(encoding="utf-8", newline="") as file:
        for run in csv.DictReader(file):
            if int(run["seed"]) <= 3:
                model = run["model"].replace("two-level, decoder", "decoder") + (
                    f", k = {run['k']}" if run["k"] else ""
                )
                columns = scores.setdefault(model, {"perplexity": [], "test": [], "valid": []})
                columns[run["set"]].append(float(run["bleu"]))
                if run["set"] == "valid":
                    columns["perplexity"].append(float(run["validation_perplexity"]))
    told = re.findall(
        r"^\| ([^|]+) \| (\S+±\S+) \| (\S+±\S+) \|[^|]*\| (\S+±\S+) ", read(results / "translation.md"), re.M
    )
    assert {model: tuple(cells) for model, *cells in told} == {
        model: tuple(
            f"{statistics.mean(values):.{digits}f}±{statistics.stdev(values):.{digits}f}"
            for values, digits in zip(columns.values(), (2, 1, 1), strict=True)
        )
        for model, columns in scores.items()
    }


@pytest.mark.parametrize("name", ["documents", "encoders"])
def test_the_tables_of_studies_are_those_of_their_reports(name: str) -> None:
    reports = "".join(map(read, ROOT.glob(f"docs/{name}/*/report.md")))
    lines = re.findall(r"^\|.*$", read(ROOT / "docs" / f"{name}.md"), re.MULTILINE)
    assert len(lines) > 4
    assert set(lines) <= set(reports.splitlines())


@pytest.mark.parametrize("address", ["", "https://example.invalid/owner/name"])
def test_the_long_description_has_no_relative_links(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: None)
    long_description = runpy.run_path(str(ROOT / "setup.py"))["long_description"]
    monkeypatch.setitem(long_description.__globals__, "REPOSITORY", address)
    text = long_description()
    assert not re.findall(r"\]\((?!https:)[^)]*\)", text)
    assert "What to expect" in text
    assert "```" not in text
