"""A process ends with the one that started it."""

import os
import signal
import sys
import time

import pytest

from linformer_fairseq.cli.processes import die_with_parent


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end it")
def test_a_child_ends_with_its_parent() -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        own = os.getpid()
        if os.fork() == 0:
            die_with_parent(own)
            os.write(writing, b"ready")
            time.sleep(20)
            os.write(writing, b"survived")
            os._exit(0)
        os.read(reading, 5)
        os._exit(0)
    os.close(writing)
    os.waitpid(parent, 0)
    assert os.read(reading, 8) == b""  # nobody is left who could write
    os.close(reading)


@pytest.mark.parametrize("orphan", [True, False])
def test_a_process_that_starts_as_an_orphan_ends(orphan: bool) -> None:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(os.getpid() if orphan else parent)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if orphan else 0)
