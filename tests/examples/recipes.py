"""Runs the scripts of examples/ as a user does: from another folder, in paths with a space, on a processor."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.fairseq_commands import Result
from tests.warm import commands

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = [
    word
    for side in ("encoder", "decoder")
    for flag, size in (("layers", "1"), ("embed-dim", "16"), ("ffn-embed-dim", "16"), ("attention-heads", "2"))
    for word in (f"--{side}-{flag}", size)
] + ["--max-tokens", "512", "--lr", "3e-3", "--warmup-updates", "10", "--num-workers", "0", "--log-interval", "2"]
"""Flags of a training that takes a second beside what fairseq needs to start."""
VARIABLES = {
    "DEVICE": "--cpu",
    "UPDATE_FREQ": "1",
    "AVERAGE": "2",
    "BPE_MERGES": "60",
    "WORKERS": "1",
    "OMP_NUM_THREADS": "1",
}


def start(script: str, *arguments: object, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    """Starts a script of examples/wmt14_en_de, or another command, in a process group of its own."""
    path = EXAMPLES / "wmt14_en_de" / script
    return subprocess.Popen(
        [path if path.exists() else script, *map(str, arguments)],
        cwd=cwd,
        env={
            **os.environ,
            "PATH": f"{commands()}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            **VARIABLES,
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(script: str, *arguments: object, cwd: Path, **variables: str) -> Result:
    """Runs a script to its end, with what it has started."""
    process = start(script, *arguments, cwd=cwd, **variables)
    try:
        output, _ = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Result(process.returncode, output)


def refused(script: str, *arguments: object, cwd: Path, **variables: str) -> str:
    """Returns the only line that a script which refuses its input writes."""
    result = run(script, *arguments, cwd=cwd, **variables)
    assert result.status == 2, result.output
    *before, sentence = result.output.splitlines()
    assert not [line for line in before if not line.startswith("prepare: ")], result.output
    assert sentence.startswith("error: ")
    return sentence


def doit(study: Path, *arguments: str, cwd: Path, **variables: str) -> Result:
    """Runs a study."""
    return run("doit", "-f", EXAMPLES / "studies/dodo.py", *arguments, f"study={study}", cwd=cwd, **variables)


def write_study(folder: Path, name: str, arms: Sequence[str] | None = None, **changed: Any) -> Path:
    """Writes a study of examples/, small and with some of its arms or all, and returns its file.

    Args:
        changed: keys of the study, whose text is added to that of the study.
    """
    study = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    scripts = {key: str((EXAMPLES / name).parent / study[key]) for key in ("prepare", "train", "evaluate")}
    study |= {**scripts, "out": "out", "training": f"{study.get('training', '')} {changed.pop('training')}"}
    study |= {**changed, "env": {**study["env"], **changed["env"]}}
    study["arms"] = {arm: study["arms"][arm] for arm in arms or study["arms"]}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return path


def write_text(folder: Path, train: int = 240, held_out: int = 20) -> Path:
    """Writes a text whose German is its English word by word, and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    words = [(f"{a}{b}", f"{b}{a}ö") for a in ("ta", "ko", "mi", "su") for b in ("re", "lo", "na", "well-")]
    for split, size in (("train", train), ("valid", held_out), ("test", held_out)):
        chosen = [draw.choices(words, k=draw.randint(3, 12)) for _ in range(size)]
        for side, lang in enumerate(("en", "de")):
            lines = [" ".join(pair[side] for pair in line).replace("- ", "-x ") + "." for line in chosen]
            (folder / f"{split}.{lang}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder
