"""fairseq's commands with the plugin."""

import sys
from pathlib import Path

import linformer_fairseq

PLUGIN = str(Path(linformer_fairseq.__file__).parent)


def command_line(command: str, arguments: list[str]) -> list[str]:
    """Returns the full command; it names the plugin, which also lets torch load fairseq's checkpoints."""
    user_dir = [] if command == "preprocess" else ["--user-dir", PLUGIN]
    # fairseq would start a process on every visible GPU, and validate in the first alone what all have found
    processes = ["--distributed-world-size", "1"] if command == "validate" else []
    return [sys.executable, "-m", f"fairseq_cli.{command}", *arguments, *user_dir, *processes]
