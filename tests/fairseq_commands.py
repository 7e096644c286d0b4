"""Runs fairseq's own commands on the toy corpus of the fixture `data`."""

import functools
import logging
import multiprocessing
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = ["--user-dir", "linformer_fairseq"]
ALL_PLACES = ["--linformer-attention", "encoder,cross,decoder"]
LINFORMER = ["--linformer-projection", "linear"]
SHORT = {"exact_below": 0, "slot_width": 2, "block_size": 2, "open_slots": 1}
"""Settings of two levels with which sentences of a few tokens have closed slots."""
TWO_LEVELS = [
    *("--linformer-projection", "two-level"),
    *(word for name, size in SHORT.items() for word in (f"--linformer-{name.replace('_', '-')}", str(size))),
]


@dataclass
class Result:
    """The output and the exit status of a command."""

    status: int
    output: str

    def ok(self) -> str:
        assert self.status == 0, self.output[-3000:]
        return self.output

    def sentence(self) -> str:
        """Returns the one sentence that a failed command ended with."""
        assert self.status != 0, self.output[-3000:]
        assert "Traceback" not in self.output, self.output[-3000:]
        return self.output.strip().splitlines()[-1]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


def run(command: str, *arguments: object, text: str | None = None) -> Result:
    """Runs `fairseq-COMMAND` from the root of the project."""
    return run_module(f"fairseq_cli.{command}", *arguments, text=text)


def run_module(module: str, *arguments: object, text: str | None = None) -> Result:
    """Runs `python -m MODULE` from the root of the project.

    The process is forked from one that has imported fairseq, other libraries and nothing of this project: to import
    them anew for every command would take several times as long as the command itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, printed = Path(folder, "input"), Path(folder, "output")
        given.write_text(text or "")
        process = libraries_imported().Process(
            target=_as_main, args=(module, list(map(str, arguments)), given, printed)
        )
        process.start()
        process.join(timeout=300)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(module, 300)
        return Result(process.exitcode, printed.read_text())


def run_documented(page: str, named: str, put: Mapping[str, object], *more: object, text: str | None = None) -> Result:
    """Runs a command of a page in docs/ as it stands there, but for the names of files.

    Args:
        named: words of the command; of several that have them all, the first is meant.
        put: what takes the place of names of files.
        more: flags that come after its own, and override them.
    """
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if re.match(" {4}(fairseq-|python -m )", line)]
    program, *words = next(words for words in commands if set(named.split()) <= set(words))
    for name, value in {"$PLUGIN": PLUGIN[1], **put}.items():
        words = [re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", str(value), word) for word in words]
    if program == "python":
        return run_module(words[1], *words[2:], *more, text=text)
    return run(program.removeprefix("fairseq-").replace("-", "_"), *words, *more, text=text)


@functools.cache
def libraries_imported() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fairseq", "torch._dynamo", "matplotlib.pyplot"])
    with mock.patch.dict(os.environ, environment(), clear=True):
        forkserver.ensure_running()
    return context


def _as_main(module: str, arguments: list[str], given: Path, printed: Path) -> None:
    """Runs the module in this process, which is like a fresh one but for what is imported already."""
    with printed.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdin = given.open()
    os.chdir(ROOT)
    as_fresh(environment())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def as_fresh(variables: Mapping[str, str]) -> None:
    """Gives this process an environment, and has it forget what its imports have set up."""
    os.environ.clear()
    os.environ.update(variables)
    multiprocessing.set_start_method(None, force=True)
    logging.getLogger().handlers.clear()


def train_arguments(
    data: Path, save_dir: Path, *more: object, arch: str = "linformer_transformer_tiny"
) -> list[object]:
    """Returns the arguments of a small training on the CPU; `more` overrides them."""
    return [
        data / "bin",
        *PLUGIN,
        *("--arch", arch, "--share-all-embeddings", "--save-dir", save_dir, "--cpu"),
        *("--max-source-positions", 64, "--max-target-positions", 64),
        *("--optimizer", "adam", "--lr", "0.003", "--criterion", "label_smoothed_cross_entropy"),
        *("--label-smoothing", 0.1, "--max-tokens", 400, "--max-epoch", 2, "--no-epoch-checkpoints"),
        *("--required-batch-size-multiple", 1, "--no-progress-bar", "--log-interval", 5, "--num-workers", 0),
        *([] if arch.startswith(("transformer", "full_")) or "--linformer-k" in more else ["--linformer-k", 8]),
        *more,
    ]


def train(data: Path, save_dir: Path, *more: object, **arch: str) -> Result:
    return run("train", *train_arguments(data, save_dir, *more, **arch))


def kill_once_saved(arguments: list[object], log: Path, console_script: Path | None = None) -> None:
    """Runs fairseq-train until it has saved a checkpoint, and kills it; `log` is what it printed."""
    command = [console_script or Path(sys.executable).with_name("fairseq-train"), *map(str, arguments)]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=file, stderr=file)
        while "Saved checkpoint" not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "done training" not in log.read_text()


def hydra_arguments(data: Path, save_dir: Path, *more: str, arch: str = "linformer_transformer_tiny") -> list[object]:
    """Returns the arguments of fairseq-hydra-train for an epoch of the same training; `more` overrides them."""
    folder = ROOT / "linformer_fairseq"
    return [
        *("--config-dir", folder / "config", f"model={arch}", f"common.user_dir={folder}"),
        *("task=translation", f"task.data={data / 'bin'}", "task.source_lang=en", "task.target_lang=de"),
        *("task.max_source_positions=64", "+model.max_source_positions=64", "+model.share_all_embeddings=true"),
        *("criterion=label_smoothed_cross_entropy", "optimizer=adam", "optimizer.adam_betas='(0.9,0.98)'"),
        *("lr_scheduler=fixed", "optimization.lr=[0.001]", "optimization.max_epoch=1", "dataset.max_tokens=400"),
        *(f"checkpoint.save_dir={save_dir}", f"hydra.run.dir={save_dir}"),
        *more,
    ]


def generate_arguments(data: Path, checkpoint: Path | str, *more: object) -> list[object]:
    return [
        data / "bin",
        *PLUGIN,
        *("--path", checkpoint, "--beam", 4, "--max-len-b", 30, "--cpu", "--required-batch-size-multiple", 1),
        *more,
    ]


def validate_arguments(data: Path, checkpoint: Path) -> list[object]:
    return [
        data / "bin",
        *PLUGIN,
        *("--path", checkpoint, "--task", "translation", "--max-tokens", 400, "--cpu"),
        *("--required-batch-size-multiple", 1, "--valid-subset", "valid"),
    ]


def encoder_arguments(data: Path, save_dir: Path, task: str, *more: object, arch: str) -> list[object]:
    """Returns the arguments of a small training of an encoder, for `masked_lm` or `sentence_prediction`; `more`
    overrides them."""
    return [
        data,
        *PLUGIN,
        *("--task", task, "--criterion", task, "--arch", arch),
        *("--encoder-layers", 2, "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 32),
        *("--encoder-attention-heads", 4, "--dropout", 0, "--attention-dropout", 0),
        *("--optimizer", "adam", "--lr", 0.003, "--max-tokens", 64, "--max-epoch", 10, "--save-dir", save_dir, "--cpu"),
        *("--no-progress-bar", "--no-epoch-checkpoints", "--required-batch-size-multiple", 1, "--num-workers", 0),
        *more,
    ]


def masked_arguments(text: Path, save_dir: Path, *more: object, arch: str) -> list[object]:
    """Returns those of a masked language model on the lines of a text."""
    lines = ["--sample-break-mode", "eos", "--tokens-per-sample", 64, "--mask-prob", 0.3]
    return encoder_arguments(text, save_dir, "masked_lm", *lines, *more, arch=arch)


def train_masked(text: Path, save_dir: Path, *more: object, arch: str) -> Result:
    return run("train", *masked_arguments(text, save_dir, *more, arch=arch))


def masked_loss(text: Path, checkpoint: Path, *more: object) -> float:
    """Returns the loss of a masked language model that fairseq-validate finds, in bits; the masks are always the same,
    as a checkpoint keeps the seed."""
    options = ["--path", checkpoint, "--max-tokens", 400, "--cpu", "--required-batch-size-multiple", 1]
    task = ["--task", "masked_lm", "--criterion", "masked_lm"]
    (loss,) = valid_losses(run("validate", text, *PLUGIN, *options, *task, *more).ok())
    return loss


def with_args(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint as fairseq before 0.10 saved it, with its command line instead of a configuration."""
    flags: dict[str, Any] = {}
    for part, settings in state["cfg"].items():
        if settings:
            flags |= settings if isinstance(settings, dict) else vars(settings)
            flags["arch" if part == "model" else part] = flags.pop("_name", None)
    return {**{key: value for key, value in state.items() if key != "cfg"}, "args": Namespace(**flags)}


def valid_losses(output: str) -> list[float]:
    """Returns the losses on the validation set that fairseq-train or fairseq-validate printed."""
    return [float(loss) for loss in re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", output)]


def validation_loss(data: Path, checkpoint: Path) -> float:
    """Returns the loss that fairseq-validate finds."""
    (loss,) = valid_losses(run("validate", *validate_arguments(data, checkpoint)).ok())
    return loss


def hypotheses(output: str) -> dict[int, tuple[float, str]]:
    """Returns the score and the text of each sentence's hypothesis, by the number of the sentence."""
    found = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, re.MULTILINE)
    return {int(number): (float(score), text) for number, score, text in found}


def translate(data: Path, checkpoint: Path | str, *more: object) -> dict[int, tuple[float, str]]:
    """Returns the hypotheses that fairseq-generate finds for the 30 sentences of the test set."""
    found = hypotheses(run("generate", *generate_arguments(data, checkpoint, *more)).ok())
    assert found.keys() == set(range(30))
    return found


def same_hypotheses(one: dict[int, tuple[float, str]], other: dict[int, tuple[float, str]]) -> None:
    """Asserts that the texts are equal, and the scores up to rounding."""
    assert one.keys() == other.keys()
    for number, (score, text) in one.items():
        assert other[number] == (pytest.approx(score, abs=1e-4), text)
