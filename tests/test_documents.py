"""What the documents name exists, and their commands and examples run."""

import importlib
import re
import runpy
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import indent
from typing import NoReturn

import pytest
import setuptools
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import PREFIXES
from tests.fairseq_commands import environment

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FLAGS = ROOT / "docs" / "flags.md"
DOCUMENTS = [
    README,
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/results/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
PACKAGE_COMMANDS = ("average", "convert")
SCRIPTS = ("benchmark", "gpu_check", "spectrum")
ELSEWHERE = {"--config-dir"}  # a flag of hydra itself
PARSERS = {
    "fairseq-train": "get_training_parser",
    "fairseq-generate": "get_generation_parser",
    "fairseq-interactive": "get_interactive_generation_parser",
    "fairseq-validate": "get_validation_parser",
    "fairseq-eval-lm": "get_eval_lm_parser",
}
COMMAND = re.compile(r"(?:export +)?(?:[A-Z_0-9]+=\S+ +)*(?:fairseq-|python |doit |examples/|scripts/)")
HISTORY = re.compile(r"^    git checkout (?:.*\\\n)*.*\n", re.MULTILINE)
"""Commands of an earlier commit, with which results were made."""

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def read(document: Path) -> str:
    """Returns the text of a document, without the commands of earlier commits; all blocks are indented."""
    text = HISTORY.sub("", document.read_text(encoding="utf-8"))
    return re.sub(r"^```\w*\n(.*?)^```$", lambda block: indent(block[1], "    "), text, flags=re.MULTILINE | re.DOTALL)


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


def cells(document: Path) -> Iterable[list[str]]:
    """Yields the cells of every row of the tables of a document, of heads too."""
    for line in re.findall(r"^\|(.*)\|$", read(document), re.MULTILINE):
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]


def package_parser(name: str) -> ArgumentParser:
    """Returns the parser of `python -m linformer_fairseq.NAME`."""
    module = f"linformer_fairseq.{name}"
    return importlib.import_module(module if name == "average" else f"{module}.__main__").build_parser()


class Parsed(BaseException):
    """Ends a script once it has parsed its arguments; carries its parser."""


def script_parser(path: Path, arguments: Sequence[str] | None = None) -> ArgumentParser:
    """Returns the parser of a Python script, after it has parsed these arguments."""
    parse_args = ArgumentParser.parse_args

    def stop(parser: ArgumentParser, *given: Sequence[str]) -> NoReturn:
        if arguments is not None:
            parse_args(parser, *given)
        raise Parsed(parser)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArgumentParser, "parse_args", stop)
        patch.setattr(sys, "argv", [str(path), *(arguments or [])])
        with pytest.raises(Parsed) as parsed:
            runpy.run_path(str(path), run_name="__main__")
    return parsed.value.args[0]


def parse(words: list[str]) -> None:
    """Parses a command as its program would, without what follows `--`."""
    program, *arguments = words[: words.index("--")] if "--" in words else words
    if program == "python" and arguments[0] == "-m":
        package_parser(arguments[1].removeprefix("linformer_fairseq.")).parse_args(arguments[2:])
    elif program == "python":
        script_parser(ROOT / arguments[0], arguments[1:])
    elif program.endswith(".py"):
        script_parser(ROOT / program, arguments)
    elif program == "doit":
        studies = [word.partition("=")[2] for word in arguments if word.startswith("study=")]
        assert all((ROOT / name).is_file() for name in [arguments[arguments.index("-f") + 1], *studies])
    elif "examples/peers" in arguments:  # whose kinds would stay registered here
        code = f"from fairseq import options as o; o.parse_args_and_arch(o.{PARSERS[program]}(), {arguments})"
        done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
        assert not done.returncode, done.stderr
    elif program in PARSERS:
        options.parse_args_and_arch(getattr(options, PARSERS[program])(), arguments)
    elif program == "fairseq-preprocess":
        options.get_preprocessing_parser().parse_args(arguments)
    elif program == "fairseq-hydra-train":
        assert (ROOT / "linformer_fairseq" / "config" / "model" / f"{dict_of(arguments)['model']}.yaml").is_file()
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
        *(script_parser(ROOT / "scripts" / f"{name}.py") for name in SCRIPTS),
    ]
    return set().union(*map(flags_of, parsers)) | ELSEWHERE


def scripts_of(document: Path) -> str:
    """Returns the text of the scripts of a recipe, and of those that it may use; of other pages that of all scripts."""
    folders = [document.parent, ROOT / "examples" / "wmt14_en_de"]
    if document.parent.parent != ROOT / "examples":
        folders = [ROOT / "scripts", *ROOT.glob("examples/*")]
    paths = [path for folder in folders for end in ("sh", "py", "yaml") for path in folder.glob(f"*.{end}")]
    return "".join(map(read, [*paths, ROOT / "examples" / "common.sh"]))


@documents
def test_flags_exist(document: Path, known_flags: set[str]) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])", read(document)))
    scripts = scripts_of(document)
    # an option of a kind of examples/peers is an attribute there
    unknown = {flag for flag in named - known_flags if flag not in scripts}
    assert not {flag for flag in unknown if flag[2:].replace("-", "_") not in scripts}


@documents
def test_variables_exist(document: Path) -> None:
    """Those that are set before a recipe's script, and those in the first column of a table, are the recipes'."""
    before = r"^    (?:export +)?((?:[A-Z_0-9]+=(?:'[^']*'|\S+)\s+(?:\\\s+)?)+)(?:examples/|\n)"
    set_before = re.findall(before, read(document), re.MULTILINE)
    named = set(re.findall(r"(\w+)=", " ".join(set_before)))
    named |= {name for row in cells(document) for name in re.findall(r"`([A-Z][A-Z_]+)`", row[0])}
    scripts = scripts_of(document)
    assert not {name for name in named if not re.search(rf"\b{name}\b", scripts)}


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


def test_commands_leave_no_sentence_out() -> None:
    """Newer fairseq leaves the last batch out that is no multiple of 8 unless told."""
    scripts = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("examples/**/*.sh")).replace("\\\n", " ")
    every = [line for line in scripts.splitlines() if re.search(r'fairseq-(generate|validate|eval-lm) "\$', line)]
    named = {"fairseq-train", "fairseq-generate", "fairseq-validate", "fairseq-eval-lm"}
    every += [" ".join(words) for document in DOCUMENTS for words in commands(document) if words[0] in named]
    assert len(every) > 10
    told = ("--required-batch-size-multiple 1", "--task document_translation")
    assert not [line for line in every if not any(words in line for words in told)]


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
    text = re.sub(r"git show \w+:\S+", "", read(document))
    for path in re.findall(r"(?<![\w/.:-])(?:linformer_fairseq|examples|scripts|tests|docs)/[\w/.-]*[\w/]", text):
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`([\w-]+\.(?:sh|py|yaml))`", text):
        assert [*ROOT.glob(f"examples/**/{name}"), *ROOT.glob(f"scripts/{name}")], name


@documents
def test_tables_are_narrow(document: Path) -> None:
    assert all(len(row) <= 6 for row in cells(document))


def test_architectures() -> None:
    """All that are named in a document are there."""
    prefixes = "|".join(PREFIXES)
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(rf"`((?:{prefixes})(?:transformer|roberta|bart|s2t|wav2vec)\w*)`", read(document))
    }
    assert named
    assert named <= ARCH_MODEL_REGISTRY.keys()
    (told,) = re.findall(r"that has attention, such as ((?:.|\n)*?), there are three", read(FLAGS))
    for name in re.findall(r"`(\w+)`", told):
        assert {prefix + name for prefix in PREFIXES} <= ARCH_MODEL_REGISTRY.keys()


def test_python_examples_run() -> None:
    imports = re.compile(r"^(?:import torch|from linformer_fairseq)", re.MULTILINE)
    code = [block for document in DOCUMENTS for block in blocks(document) if imports.search(block)]
    code = [block for block in code if "from_pretrained" not in block]  # these need a trained model
    assert code
    for block in code:
        exec(block, {})


def test_the_readme_is_one_page_and_complete() -> None:
    text = read(README)
    assert len(text.splitlines()) <= 110
    assert not re.findall(r"^[A-Z]+$|TODO", text, re.MULTILINE)


@pytest.mark.parametrize("address", ["", "https://example.invalid/owner/name"])
def test_the_long_description_has_no_relative_links(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: None)
    long_description = runpy.run_path(str(ROOT / "setup.py"))["long_description"]
    monkeypatch.setitem(long_description.__globals__, "REPOSITORY", address)
    text = long_description()
    assert not re.findall(r"\]\((?!https:)[^)]*\)", text)
    assert "What to expect" in text
    assert "```" not in text
