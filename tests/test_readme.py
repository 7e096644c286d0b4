"""Everything that the README names exists."""

import re
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path

import pytest
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq import average
from linformer_fairseq.benchmark import arguments as benchmark
from linformer_fairseq.convert import arguments as convert
from linformer_fairseq.models.linformer_transformer import ARCHITECTURES
from linformer_fairseq.models.linformer_transformer_lm import LM_ARCHITECTURES
from linformer_fairseq.quality import arguments as quality
from linformer_fairseq.recipe import arguments
from linformer_fairseq.spectrum import arguments as spectrum

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ELSEWHERE = {"--config-dir"}  # a flag of hydra itself


def flags(parser: ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


def subparsers(parser: ArgumentParser) -> Iterable[ArgumentParser]:
    (action,) = parser._subparsers._group_actions
    return action.choices.values()


@pytest.fixture(scope="module")
def known_flags() -> set[str]:
    """Flags of fairseq-train with our model and the README's choices, of the other commands, and of ours."""
    train = options.get_training_parser()
    chosen = ["DATA", "--arch", "linformer_transformer_wmt_en_de", "--task", "translation"]
    chosen += ["--optimizer", "adam", "--lr-scheduler", "inverse_sqrt", "--criterion", "label_smoothed_cross_entropy"]
    options.parse_args_and_arch(train, chosen)
    language = options.get_training_parser()
    chosen = ["DATA", "--arch", "linformer_transformer_lm_gpt", "--task", "language_modeling"]
    options.parse_args_and_arch(language, chosen)
    generate = options.get_generation_parser()
    options.parse_args_and_arch(generate, ["DATA", "--path", "checkpoint.pt", "--remove-bpe"])
    commands = (arguments, average, convert, quality, spectrum)
    ours = (*(command.build_parser() for command in commands), *subparsers(benchmark.build_parser()))
    parsers = (train, language, generate, options.get_preprocessing_parser(), *ours)
    return set().union(*map(flags, parsers)) | ELSEWHERE


def test_flags(known_flags: set[str]) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", README))
    assert "--linformer-k" in named
    assert named <= known_flags
    ours = {flag for flag in known_flags if flag.startswith("--linformer-")} - {"--linformer-args"}
    assert ours <= named, "the README leaves out a flag"


def test_commands_and_files() -> None:
    for script in re.findall(r"(?:scripts|examples)/[\w/]+\.sh", README):
        assert (ROOT / script).stat().st_mode & 0o100, f"{script} cannot be run"
    for folder in re.findall(r"`((?:linformer_fairseq|examples|scripts|tests)/[\w/]*)`", README):
        assert (ROOT / folder).is_dir(), folder
    for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / path).is_file(), path
    for command in re.findall(r"^    fairseq-([\w-]+)", README, re.MULTILINE):
        __import__(f"fairseq_cli.{command.replace('-', '_')}")


def test_architectures() -> None:
    named = set(re.findall(r"^\| `(linformer_transformer\w*)` \|", README, re.MULTILINE))
    assert named == {*ARCHITECTURES, "linformer_transformer_lm", *LM_ARCHITECTURES}
    assert set(re.findall(r"(?<!linformer_)\btransformer_\w+", README)) <= set(ARCH_MODEL_REGISTRY)


def test_nothing_is_left_to_be_filled_in() -> None:
    assert not re.findall(r"^[A-Z]+$|TODO", README, re.MULTILINE)


def test_python_examples_run() -> None:
    code = README[README.index("    from linformer_fairseq import LinformerMultiheadAttention") :]
    code = code[: code.index("\n\n## ")]
    namespace: dict[str, object] = {}
    exec(re.sub(r"^    ", "", code, flags=re.MULTILINE), namespace)
    assert namespace["attention"].key_projection.weight.shape == (64, 1024)


def test_variables_of_the_wmt14_recipe() -> None:
    """The table of its README gives every variable, with the default that the configuration has."""
    folder = ROOT / "examples" / "wmt14_en_de"
    defaults = dict(re.findall(r"\$\{([A-Z_]+):-([^}$]*)", (folder / "configuration.sh").read_text(encoding="utf-8")))
    table = (folder / "README.md").read_text(encoding="utf-8")
    told: dict[str, str] = {}
    for names, values in re.findall(r"^\| (`[A-Z_`, ]+`) \| ([^|]*) \|", table, re.MULTILINE):
        variables, values = names.replace("`", "").split(", "), values.replace("`", "")
        told |= zip(variables, values.split(", ") if len(variables) > 1 else [values], strict=True)
    assert len(defaults) > 20
    for name, default in defaults.items():
        assert told[name] == default or not default, name
