"""fairseq's commands with the plugin."""

import sys
from pathlib import Path

import linformer_fairseq

PLUGIN = str(Path(linformer_fairseq.__file__).parent)


def command_line(command: str, arguments: list[str]) -> list[str]:
    """Returns the full command; it names the plugin, which also lets torch load fairseq's checkpoints."""
    user_dir = [] if command == "preprocess" else ["--user-dir", PLUGIN]
    return [sys.executable, "-m", f"fairseq_cli.{command}", *arguments, *user_dir]
