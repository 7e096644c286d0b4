"""How commands end."""

import errno
from collections.abc import Callable

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.main import exit_status


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
    with pytest.raises(ZeroDivisionError):  # with its traceback
        exit_status(raising(ZeroDivisionError()), interrupted="")
