"""Runs a study: the arms x seeds of a YAML, trained and evaluated by the scripts it names, and one report.

usage: doit -f examples/studies/dodo.py -n JOBS -P thread study=STUDY.yaml [text=TEXT] [out=OUT] [pretrained=OUT]

What is done stays done: the same command resumes where it was stopped, and a failing arm does not stop the others. Each
run lies in OUT/runs/ARM/seed-N. The keys of a YAML are those of `Study` and `Arm`; its paths are relative to its own
folder, those of the command line to where it is given.
"""

import contextlib
import dataclasses
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml
from doit import get_initial_workdir, get_var
from doit.exceptions import BaseFail, TaskFailed, UnmetDependency
from doit.reporter import ConsoleReporter

Task = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What the runs of an arm have in common."""

    arch: str = ""
    """The architecture that is trained."""
    flags: str = ""
    """Flags of fairseq-train beyond those of all arms, or with `convert` of `python -m linformer_fairseq.convert`."""
    start: str = ""
    """`from` in the YAML: an arm whose weights, of the same seed, the training starts from, in the pretrained study if
    one is named."""
    convert: str = ""
    """An arm whose models, of the same seed, are converted; nothing is trained."""
    translation: str = ""
    """Flags of its evaluation beyond those of all arms."""
    seeds: tuple[int, ...] = ()
    """The arm's own seeds, if it does not have those of the study."""

    def source(self, pretrained: object) -> str:
        """The arm of its own study that it is made from, if any.

        Args:
            pretrained: what the study has for this key.
        """
        return self.convert or ("" if pretrained else self.start)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A comparison of arms."""

    out: Path
    text: Path
    """What the prepare script gets for its text."""
    prepare: Path
    """The script that is called with OUT and TEXT, and makes OUT/bin and, of translations, OUT/reference.*."""
    train: Path
    """The script that is called with BIN, RUN, ARCH and flags; with DRY_RUN set it prints its fairseq-train command."""
    evaluate: Path
    """The script that is called with BIN, RUN, REFERENCE if there is one and flags, and writes RUN/scores.json."""
    arms: dict[str, Arm]
    pretrained: Path | None = None
    """The OUT of another study, whose arms those of this one start from; scripts know it as PRETRAINED."""
    seeds: tuple[int, ...] = (1,)
    baseline: str = ""
    """The arm that others are compared with."""
    metrics: tuple[str, ...] = ()
    """Columns of the report; all scores if there are none."""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables of the scripts."""
    training: str = ""
    """Flags of every fairseq-train."""
    translation: str = ""
    """Flags of every evaluation."""


def refuse(sentence: str) -> NoReturn:
    """Ends with one sentence and status 2."""
    sys.stderr.write(f"error: {sentence}\n")
    os._exit(2)  # doit takes an exception for a fault of this file


def fields_of(kind: type, found: Any, where: str) -> dict[str, Any]:
    """Returns the keys of a YAML's mapping, all of which a class knows and none of which it lacks."""
    if not isinstance(found, dict):
        refuse(f"{where} is {found!r}: give it keys and values.")
    known = {{"start": "from"}.get(field.name, field.name): field for field in dataclasses.fields(kind)}
    for key in found:
        if key not in known:
            refuse(f"{where} has a key {key!r} that is not known: use {', '.join(known)}.")
    forms = {"seeds": list, "metrics": list, "env": dict, "arms": dict}
    for name, field in known.items():
        if field.default is field.default_factory is dataclasses.MISSING and not found.get(name):
            refuse(f"{where} lacks {name}: add it.")
        form = forms.get(name, str)
        if not isinstance(found.get(name, form()), (form, Path)):
            refuse(f"{name} of {where} is {found[name]!r}, which is not what examples/studies/README.md has.")
    return {known[key].name: tuple(value) if isinstance(value, list) else value for key, value in found.items()}


def read_study(path: Path, given: dict[str, Path]) -> Study:
    """Returns the study in a YAML, with the folders of the command line where it names them."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        refuse(f"{path} cannot be read ({' '.join(str(error).split())}): name a YAML file by study=.")
    if isinstance(found, dict):
        found |= given
    keys = fields_of(Study, found, str(path))
    arms = {name: Arm(**fields_of(Arm, arm, f"arm {name} of {path}")) for name, arm in keys.pop("arms").items()}
    for name, arm in arms.items():
        if bool(arm.arch) == bool(arm.convert):
            refuse(f"arm {name} of {path} needs either arch, to be trained, or convert.")
        source = arm.source(keys.get("pretrained"))
        if source and source not in arms:
            refuse(f"arm {name} of {path} is made from {source}, which is no arm of it.")
        seeds, others = (set(own.seeds or keys.get("seeds", (1,))) for own in (arm, arms.get(source, arm)))
        if not seeds <= others:
            refuse(f"arm {name} of {path} has seeds that its source {source} lacks: give both the same.")
        if re.search(r"--linformer-k[ =]+0+\b", f"{keys.get('training', '')} {arm.flags}"):
            refuse(f"arm {name} of {path} has k = 0: project onto 1 or more, or leave the flag out for full attention.")
    if keys.get("baseline") and keys["baseline"] not in arms:
        refuse(f"the baseline {keys['baseline']} is no arm of {path}.")
    names = ("out", "text", "prepare", "train", "evaluate", "pretrained")
    paths = {name: path.parent / keys[name] for name in names if name in keys}
    for name in ("prepare", "train", "evaluate"):
        if not paths[name].is_file():
            refuse(f"{name} of {path} is {paths[name]}, which is no file: name a script.")
    keys["env"] = {name: str(value) for name, value in keys.get("env", {}).items()}
    sources = [arm.source(keys.get("pretrained")) for arm in arms.values()]
    if any(sources) and "AVERAGE" not in {**os.environ, **keys["env"]}:
        refuse(f"{path} has arms that are made from others: give its env AVERAGE, the checkpoints to average, or 0.")
    return Study(**{**keys, **{name: Path(os.path.abspath(place)) for name, place in paths.items()}, "arms": arms})


def given(name: str) -> Path | None:
    """Returns a path of the command line, such as study=FILE."""
    value = get_var(name)
    return Path(get_initial_workdir(), value) if value else None


FOLDERS = {name: place for name in ("text", "out", "pretrained") if (place := given(name))}
STUDY = read_study(given("study") or Path("study="), FOLDERS)
BIN = STUDY.out / "bin"
ENV = {**os.environ, **STUDY.env, **({"PRETRAINED": str(STUDY.pretrained)} if STUDY.pretrained else {})}
RUNS = {f"{arm}/seed-{seed}": (arm, own, seed) for arm, own in STUDY.arms.items() for seed in own.seeds or STUDY.seeds}
STUDY.out.mkdir(parents=True, exist_ok=True)


class Reporter(ConsoleReporter):
    """Reports each failure in one sentence, and says nothing of tasks that were skipped because of it."""

    def add_failure(self, task: Any, fail: BaseFail) -> None:
        if not isinstance(fail, UnmetDependency):
            self.write(f"error: {task.name}: {' '.join(fail.get_msg().split())}\n")
            self.failures.append(task)

    def complete_run(self) -> None:
        self.write("".join(f"{error}\n" for error in self.runtime_errors))
        if self.failures:
            self.write(f"python {Path(__file__).with_name('report.py')} {STUDY.out} reports what is there.\n")


DOIT_CONFIG = {
    "default_tasks": ["report"],
    "continue": True,
    "reporter": Reporter,
    "backend": "sqlite3",  # survives a kill
    "dep_file": str(STUDY.out / ".doit.sqlite3"),
}


def folder(name: str) -> Path:
    return STUDY.out / "runs" / name


def run(log: Path, *command: object, **env: str) -> bool | TaskFailed:
    """Runs a command with its output in a log, whose last line says what went wrong."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as file:
        words = list(map(str, command))
        status = subprocess.run(words, stdout=file, stderr=file, env={**ENV, **env}).returncode
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return status == 0 or TaskFailed(f"{said[-1] if said else 'nothing was said'} [{log}]")


def training_command(name: str) -> list[object]:
    """Returns the call of the train script for a run."""
    _, arm, seed = RUNS[name]
    start = ["--finetune-from-model", start_of(arm, seed)] if arm.start else []
    flags = [*shlex.split(f"{STUDY.training} {arm.flags}"), *start, "--seed", seed]
    return [STUDY.train, BIN, folder(name), arm.arch, *flags]


def model_of(name: str) -> Path:
    """Returns the checkpoint that a run is evaluated with."""
    averaged = ENV.get("AVERAGE") != "0" and not RUNS[name][1].convert
    return folder(name) / ("average.pt" if averaged else "checkpoint_best.pt")


def start_of(arm: Arm, seed: int) -> Path:
    """Returns the checkpoint that a training starts from: of the same seed, or of the first that was pretrained."""
    if not STUDY.pretrained:
        return model_of(f"{arm.start}/seed-{seed}")
    runs = STUDY.pretrained / "runs" / arm.start
    for path in (runs / f"seed-{seed}", *sorted(runs.glob("seed-*")), runs):
        if (path / "scores.json").is_file():
            return path / "checkpoint_best.pt"
    refuse(f"{runs} has no evaluated model: run the study that pretrains it first, or name its OUT by pretrained=.")


def task_prepare() -> Task:
    """Prepares the text."""
    return {"actions": [(run, (STUDY.out / "prepare.log", STUDY.prepare, STUDY.out, STUDY.text))]}


def check() -> bool | TaskFailed:
    """Has the flags of every arm parsed, and the models that are trained built, before the first training."""
    from fairseq import options, tasks

    for name in (name for name, (_, arm, seed) in RUNS.items() if arm.arch and seed == (arm.seeds or STUDY.seeds)[0]):
        said, env = io.StringIO(), {**ENV, "DRY_RUN": "1"}
        dry = subprocess.run(list(map(str, training_command(name))), env=env, capture_output=True, text=True)
        if dry.returncode:
            return TaskFailed(f"{name}: {dry.stderr.strip()}")
        try:
            with contextlib.redirect_stderr(said):
                words = shlex.split(dry.stdout.replace("\\\n", ""))[1:]
                args = options.parse_args_and_arch(options.get_training_parser(), words)
                tasks.setup_task(args).build_model(args)
        except (SystemExit, Exception) as error:  # whatever fairseq refuses flags with
            reason = said.getvalue().strip().rpartition("error: ")[2] or str(error)
            return TaskFailed(f"{name} cannot be trained: {reason}")

    from linformer_fairseq.convert.__main__ import parse  # now, as fairseq has imported the plugin from its folder

    for name, arm in STUDY.arms.items():
        try:
            if arm.convert:
                parse(["trained.pt", str(STUDY.out / "converted.pt"), *shlex.split(arm.flags)])
        except Exception as error:
            return TaskFailed(f"{name} cannot be converted: {error}")
    return True


def task_check() -> Task:
    """Refuses flags before the first training."""
    finished = all((folder(name) / "scores.json").exists() for name in RUNS)
    return {"actions": [check], "task_dep": ["prepare"], "uptodate": [finished]}


def convert(name: str) -> bool | TaskFailed:
    """Converts the model of another arm."""
    arm, seed = RUNS[name][1:]
    converted, record = folder(name) / "checkpoint_best.pt", folder(name) / "command"
    words = [sys.executable, "-m", "linformer_fairseq.convert", model_of(f"{arm.convert}/seed-{seed}"), converted]
    command = shlex.join([*map(str, words), *shlex.split(arm.flags), "--texts", "0"]) + "\n"
    if converted.exists():
        same = record.read_text(encoding="utf-8") == command
        return same or TaskFailed(f"{converted} was made with other flags, see {record}: name another arm.")
    folder(name).mkdir(parents=True, exist_ok=True)
    record.write_text(command, encoding="utf-8")
    _, *machine = (folder(f"{arm.convert}/seed-{seed}") / "about").read_text(encoding="utf-8").splitlines()
    asked = ["bash", "-c", '. "$0" >&2; commit', str(Path(__file__).parents[1] / "common.sh")]
    commit = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    (folder(name) / "about").write_text("\n".join([commit, *machine]) + "\n", encoding="utf-8")
    return run(folder(name) / "study.log", *shlex.split(command))


def task_train() -> Iterator[Task]:
    """Trains, or converts, each arm with each seed."""
    for name, (_, arm, seed) in RUNS.items():
        source = arm.source(STUDY.pretrained)
        needs = [f"evaluate:{source}/seed-{seed}"] if source else []
        action = (convert, (name,)) if arm.convert else (run, (folder(name) / "study.log", *training_command(name)))
        yield {"name": name, "actions": [action], "task_dep": ["check", *needs]}


def task_evaluate() -> Iterator[Task]:
    """Evaluates each run."""
    for name in RUNS:
        yield {"name": name, "actions": [(evaluate, (name,))], "task_dep": [f"train:{name}"]}


def evaluate(name: str) -> bool | TaskFailed:
    """Calls the evaluate script for a run; a converted model has one checkpoint."""
    reference = sorted(STUDY.out.glob("reference.*"))[:1]
    flags = shlex.split(f"{STUDY.translation} {RUNS[name][1].translation}")
    env = {"AVERAGE": "0"} if RUNS[name][1].convert else {}
    return run(folder(name) / "study.log", STUDY.evaluate, BIN, folder(name), *reference, *flags, **env)


def task_report() -> Task:
    """Writes the report of what has been evaluated."""
    names = ["--arms", *(f"{name}:{','.join(map(str, arm.seeds or STUDY.seeds))}" for name, arm in STUDY.arms.items())]
    names += ["--baseline", STUDY.baseline] if STUDY.baseline else []
    names += ["--metrics", *STUDY.metrics] if STUDY.metrics else []
    command = (sys.executable, Path(__file__).with_name("report.py"), STUDY.out, *names)
    actions = [(run, (STUDY.out / "report.log", *command)), f"echo {shlex.quote(str(STUDY.out / 'report.md'))}"]
    return {"actions": actions, "task_dep": ["evaluate"], "verbosity": 2}
