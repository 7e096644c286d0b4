"""The wheel works in an environment with nothing but what `pip install linformer_fairseq` installs."""

import logging
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import fairseq
import pytest
from packaging.requirements import Requirement

import linformer_fairseq  # noqa: F401
from tests.conftest import Shared
from tests.fairseq_commands import (
    ROOT,
    environment,
    train_arguments,
    valid_losses,
)

PACKAGE = "linformer_fairseq"
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Bare:
    """An environment, and the folder of the wheel and the source distribution that it was made from."""

    python: Path
    packages: Path
    dist: Path

    def run(self, folder: Path, module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs `python -m MODULE` in a folder, without the source in its path."""
        return run_outside(folder, self.python, "-m", module, *arguments)


def run_outside(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, without the source in its path."""
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={name: value for name, value in environment().items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def bare(shared: Shared) -> Bare:
    root = shared("bare", make_environment)
    (packages,) = root.glob("venv/lib/python*/site-packages")
    return Bare(root / "venv" / "bin" / "python", packages, root / "dist")


def make_environment(folder: Path) -> None:
    """Builds the package and installs it, with links to its requirements instead of downloads."""
    source, dist, environment = folder / "source", folder / "dist", folder / "venv"
    shutil.copytree(ROOT / PACKAGE, source / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    python("build", "--no-isolation", "--outdir", dist, source)
    venv.create(environment, symlinks=True)
    (wheel,) = dist.glob("*.whl")
    python("pip", "--python", environment / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    (installed,) = metadata.distributions(name=PACKAGE, path=[str(packages)])
    for distribution in brought_by(installed.requires or []):
        declared = (distribution.read_text("top_level.txt") or "").split()
        files = [*(distribution.files or []), *map(Path, declared)]  # old distributions list those of their source
        for name in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link, place = packages / name, Path(str(distribution.locate_file(name)))
            if name == "fairseq":  # it looks for plugins beside itself, and a link to it would lead elsewhere
                link.mkdir(exist_ok=True)
                for entry in place.iterdir():
                    link_once(link / entry.name, entry)
            else:
                link_once(link, place)


def link_once(link: Path, place: Path) -> None:
    if place.exists() and not link.exists():
        link.symlink_to(place)


def python(*arguments: object) -> None:
    done = subprocess.run([sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def brought_by(requirements: Iterable[str]) -> list[metadata.Distribution]:
    """Returns the installed distributions that pip would install for these requirements."""
    found: dict[tuple[str, str], metadata.Distribution] = {}
    wanted = [(Requirement(requirement), "") for requirement in requirements]
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        distribution = metadata.distribution(requirement.name)
        for name in {"", *requirement.extras}:
            if (requirement.name, name) not in found:
                found[requirement.name, name] = distribution
                wanted += [(requirement_of(further), name) for further in distribution.requires or []]
    return list(found.values())


def requirement_of(text: str) -> Requirement:
    return Requirement(text.replace(".*)", ")"))  # the omegaconf of fairseq 0.12.2 requires "PyYAML (>=5.1.*)"


def test_trains_by_the_bare_name_of_the_plugin(bare: Bare, data: Path, tmp_path: Path) -> None:
    """The plugin is found from any folder, and needs no extra."""
    assert not [name for name in ("matplotlib", "sacremoses", "pytest") if (bare.packages / name).exists()]
    trained = bare.run(tmp_path, "fairseq_cli.train", *train_arguments(data, tmp_path, "--max-update", 1))
    assert len(valid_losses(trained.stdout + trained.stderr)) == 1, trained.stderr[-3000:]


def test_the_bare_name_leads_to_what_setup_has_installed(tmp_path: Path) -> None:
    """`scripts/setup.sh` has put a link beside fairseq, and whoever imports the plugin gets the same module."""
    if not Path(fairseq.__file__).parents[1].joinpath(PACKAGE).exists():
        pytest.skip(f"no {PACKAGE} beside fairseq: scripts/setup.sh has not made this environment")
    program = f"""
from argparse import Namespace
from fairseq import models, utils
utils.import_user_module(Namespace(user_dir="{PACKAGE}"))
import {PACKAGE}
assert models.MODEL_REGISTRY["linformer_transformer"] is {PACKAGE}.LinformerTransformerModel
"""
    imported = run_outside(tmp_path, sys.executable, "-c", program)
    assert imported.returncode == 0, imported.stderr[-3000:]


@pytest.mark.exhaustive
def test_the_documented_line_for_hydra_finds_the_package(bare: Bare, tmp_path: Path) -> None:
    (line,) = re.findall(r"^ {4}(PLUGIN=.*)$", (ROOT / "docs" / "flags.md").read_text(), re.MULTILINE)
    script = f'python() {{ {shlex.quote(str(bare.python))} "$@"; }}; {line}; echo "$PLUGIN"'
    found = run_outside(tmp_path, "bash", "-euo", "pipefail", "-c", script)
    assert found.stdout.strip() == str(bare.packages / PACKAGE)


def test_a_conversion_needs_no_extra(bare: Bare, tmp_path: Path) -> None:
    """Only its refusal is printed, where fairseq would ask for tensorboardX."""
    refused = bare.run(tmp_path, f"{PACKAGE}.convert", "checkpoint.pt", "new.pt")
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith(("error: checkpoint.pt is missing:", "error: Converting needs torch 2.4"))
    assert refused.returncode == 2


def test_other_loggers_are_heard() -> None:
    fairseq = {name for name in logging.root.manager.loggerDict if name.startswith("fairseq")}
    assert len(fairseq) > 10
    by_itself = {"fairseq.optim.lr_scheduler.manual_lr_scheduler"}
    assert {name for name in fairseq if logging.getLogger(name).level} - by_itself == {"fairseq.tasks.text_to_speech"}


def test_distributions_are_complete(bare: Bare) -> None:
    """A package index accepts both distributions, and every file of the package is in the wheel."""
    python("twine", "check", "--strict", *bare.dist.iterdir())
    assert len(list(bare.dist.iterdir())) == 2
    files = {path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*") if "__pycache__" not in path.parts}
    assert [path for path in files if path.suffix and not (bare.packages / path).exists()] == []
