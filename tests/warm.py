"""Runs the commands that a script starts in processes that have imported fairseq, which takes longer than a small
training. They are found by PATH, and start, end and are killed as the real ones."""

import atexit
import functools
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from threading import Thread

from tests.fairseq_commands import as_fresh, libraries_imported

NAMES = ["python", *(f"fairseq-{name}" for name in ("eval-lm", "generate", "preprocess", "train", "validate"))]
STAND_IN = """#!{python} -SE
# gives all that it has to a process that runs the command, and ends with it; that process ends with this one, too
import json, os, socket, sys, tempfile

name = os.path.basename(sys.argv[0])
if name == "python" and not (sys.argv[1:2] == ["-m"] and sys.argv[2].startswith("linformer_fairseq.")):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
module, argv = (sys.argv[2], sys.argv[2:]) if name == "python" else (name.replace("fairseq-", "fairseq_cli."), sys.argv)
files = [0, 1, 2, *(int(n) for n in os.listdir("/dev/fd") if int(n) > 2 and os.path.exists("/dev/fd/" + n))]
folder = tempfile.mkdtemp()
with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as asked:
    server.bind(folder + "/socket")
    server.listen()
    asked.connect({address!r})
    asked.sendall(folder.encode() + b"/socket")
    asked.close()
    runner, _ = server.accept()
os.unlink(folder + "/socket")
os.rmdir(folder)
socket.send_fds(runner, [b"."], files)
given = [module.replace("-", "_"), argv, os.getcwd(), dict(os.environ)]
runner.sendall(json.dumps(given).encode() + b"\\n")
status = runner.recv(1)
sys.exit(status[0] if status else 137)
"""


@functools.cache
def commands() -> Path:
    """Returns the folder of the commands, which work as long as this process lives."""
    folder = tempfile.TemporaryDirectory(prefix="warm")
    atexit.register(folder.cleanup)
    address = f"{folder.name}/socket"
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    for name in NAMES:
        path = Path(folder.name, name)
        path.write_text(STAND_IN.format(python=sys.executable, address=address), encoding="utf-8")
        path.chmod(0o755)
    libraries_imported()
    Thread(target=_start_runners, args=(server,), daemon=True).start()
    return Path(folder.name)


def _start_runners(server: socket.socket) -> None:
    while True:
        asked, _ = server.accept()
        with asked, asked.makefile() as lines:
            libraries_imported().Process(target=_run, args=(lines.read(),)).start()


def _run(address: str) -> None:
    """Runs the command of the stand-in at this address."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(address)
    _, files, _, _ = socket.recv_fds(client, 1, 64)  # those beyond the first three, such as locks, just stay open
    module, argv, folder, environment = json.loads(client.makefile().readline())
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    Thread(target=_end_with, args=(client,), daemon=True).start()
    os.chdir(folder)
    as_fresh(environment)
    sys.argv = argv
    status: object = 0
    try:
        if module.startswith("fairseq_cli."):
            status = import_module(module).cli_main()
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    client.sendall(bytes([status if isinstance(status, int) else int(status is not None)]))
    os._exit(0)


def _end_with(client: socket.socket) -> None:
    client.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)
