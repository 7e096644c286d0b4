"""Commands end with a status and one sentence."""

import errno
import runpy
from collections.abc import Callable

import pytest
import setuptools
from packaging.requirements import Requirement

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.main import RECIPE_MODULES, exit_status
from tests.fairseq_commands import ROOT


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UserError("Name a folder."), 2, "error: Name a folder.\n"),
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), 1, "error: out/x: No space left on device.\n"),
        (OSError(errno.EPIPE, "Broken pipe"), 1, "error: the output folder: Broken pipe.\n"),
        (
            ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib.pyplot"),
            2,
            "error: matplotlib is not installed: run pip install 'linformer_fairseq[recipes]'.\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted: run it again\n"),
    ],
)
def test_a_failure_is_one_sentence(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(raising(error), interrupted="run it again") == status
    assert capsys.readouterr() == ("", said)


def test_success_and_mistakes_of_the_program() -> None:
    assert exit_status(lambda: None, interrupted="") == 0
    for mistake in (ZeroDivisionError(), ModuleNotFoundError("No module named 'mine'", name="mine")):
        with pytest.raises(type(mistake)):  # with its traceback
            exit_status(raising(mistake), interrupted="")


def test_the_extra_brings_these_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    declared: dict = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: declared.update(keywords))
    runpy.run_path(str(ROOT / "setup.py"))
    names = {Requirement(requirement).name for requirement in declared["extras_require"]["recipes"]}
    modules = {"pyyaml": "yaml", "scikit-learn": "sklearn"}
    assert {modules.get(name, name) for name in names} == RECIPE_MODULES
