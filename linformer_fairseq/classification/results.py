"""What a study has found, as results.json holds it, and that of other machines with it."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.masked_lm.arms import ARMS, BASELINE, LINFORMER
from linformer_fairseq.recipe import logs, merging
from linformer_fairseq.recipe.course import DONE, LOG
from linformer_fairseq.recipe.merging import Found, check_new, check_settings, joined
from linformer_fairseq.recipe.study_settings import flat

from .arguments import Study
from .predict import read_predictions
from .prepare import set_facts
from .pretrained import Pretrained
from .scores import Classes, difference, scores
from .sets import DEV, SPLITS, TEST, TextSet
from .trainings import FineTuning

OWN = ("commands", "machines", "arms", "sets", "trainings")
"""What each machine's results have of their own, beside the differences; all else is the same."""


def decisive(study: Study, pretrained: Pretrained) -> Found:
    """Returns what decides the models of a study, whatever their texts, attention and seed."""
    every = {
        "pretraining": {
            **pretrained.stored,
            **pretrained.digests(),
            "length": pretrained.length,
            "k": pretrained.k,
        },
        "fine-tuning": asdict(study.settings),
    }
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flat("", every)}


def planned_findings(trainings: Sequence[FineTuning], sets: Sequence[TextSet], settings: Found) -> Found:
    """Returns what is known of the results before anything is trained.

    Args:
        settings: what `decisive` returned.
    """
    return {
        "settings": settings,
        "sets": {own.name: _labels(own) for own in sets},
        "trainings": [_key(own) for own in trainings],
    }


def findings(
    study: Study, pretrained: Pretrained, trainings: Sequence[FineTuning], settings: Found, others: dict[Path, Found]
) -> Found:
    """Returns all that the report says.

    Args:
        settings: what `decisive` returned.
        others: the results that are merged into these, by their files.

    Raises:
        UserError: results are of another study, or have a training that is there already.
    """
    own_sets = {own.texts.name: own for own in trainings}
    found: Found = {
        "settings": settings,
        "metrics": study.metrics,
        "commands": [study.command],
        "machines": [describe_machine()],
        "arms": {name: _described(name, pretrained) for name in pretrained.models},
        "sets": {name: {**_labels(own.texts), **set_facts(own.set_folder)} for name, own in own_sets.items()},
        "trainings": [_training(own, study) for own in trainings],
    }
    for path, other in others.items():
        check_same(path, found, other)
        for name in ("commands", "machines"):
            found[name] = joined(found[name], other[name])
        found["trainings"] = [*found["trainings"], *other["trainings"]]
        for name in ("arms", "sets"):
            found[name] = {**other[name], **found[name]}
    found["arms"] = {name: found["arms"][name] for name in sorted(found["arms"], key=_place)}
    return {**found, "differences": _differences(found)}


def check_same(path: Path, found: Found, other: Found) -> None:
    """Looks whether the results of a file are of the same study as `found`, which may not have all of its own yet.

    Raises:
        UserError: they are not, or have a training that is there already.
    """
    check_settings(path, found["settings"], other["settings"])
    for name, own in found["sets"].items():
        if name in other["sets"] and any(own[key] != other["sets"][name][key] for key in ("labels", "sha256")):
            raise UserError(f"{path} has another {name}, with other texts or labels: leave it out.")
    check_new(path, found["trainings"], other["trainings"], key_of, _said)


def _said(row: Found) -> str:
    return f"{row['arm']} on {row['set']} with seed {row['seed']}"


def read_results(path: Path) -> Found:
    """Returns the content of a results.json.

    Raises:
        UserError: it is missing, or of something else.
    """
    return merging.read_results(path, (*OWN, "settings", "metrics", "differences"), "a study of classification")


def key_of(row: Found) -> tuple[Any, ...]:
    """Returns what tells a training from all others."""
    return tuple(row[name] for name in ("set", "arm", "seed"))


def _key(own: FineTuning) -> Found:
    return {"set": own.texts.name, "arm": own.model, "seed": own.seed}


def _labels(own: TextSet) -> Found:
    return {
        "labels": own.labels,
        "sha256": {split: own.digest(split) for split in SPLITS},
        "classes": {split: _packed(own.classes(split)) for split in (DEV, TEST)},
    }


def _packed(classes: Classes) -> str:
    """Returns the classes of a split as results.json holds them, in one line."""
    return " ".join(map(str, classes))


def unpacked(line: str) -> list[int]:
    """Returns the classes in a line of results.json."""
    return list(map(int, line.split()))


def _place(model: str) -> tuple[int, bool]:
    """Returns where a model is in tables: Linformer with another k or sharing comes right after Linformer."""
    return list(ARMS).index(model if model in ARMS else LINFORMER), model not in ARMS


def _described(model: str, pretrained: Pretrained) -> Found:
    start = pretrained.models[model][0]
    flags = " ".join(start.flags(pretrained.settings))
    return {"label": pretrained.label(model), "what": start.arm.what, "flags": flags}


def _training(own: FineTuning, study: Study) -> Found:
    log = logs.read_training((own.folder / LOG).read_text(encoding="utf-8"))
    facts = read_json(own.folder / DONE)
    predicted = {split: read_predictions(own, split) for split in (DEV, TEST)}
    return {
        **_key(own),
        "pretraining_seed": own.start.seed,
        "parameters": log.parameters,
        "updates": log.updates,
        "seconds": log.seconds,
        "curve": [[update, values["valid_accuracy"]] for update, values in sorted(log.validations.items())],
        **{name: facts[name] for name in ("jobs", "threads", "machine")},
        "command": ["python", *(_in_folder(part, study) for part in facts["command"][1:])],
        **{
            split: {
                **scores(own.texts.classes(split), classes, len(own.texts.labels)),
                "predicted": _packed(classes),
            }
            for split, classes in predicted.items()
        },
    }


def _in_folder(argument: str, study: Study) -> str:
    """Returns an argument of a command as it is given in the study's folder."""
    if argument.startswith(f"{study.pretrained}/"):
        return os.path.relpath(argument, study.out)
    return argument.removeprefix(f"{study.out}/")


def _differences(found: Found) -> list[Found]:
    """Returns how far the accuracy of every model on a test set is from that of the Transformer, over the seeds that
    both have."""
    predicted: dict[tuple[str, str], dict[int, list[int]]] = {}
    for row in found["trainings"]:
        predicted.setdefault((row["set"], row["arm"]), {})[row["seed"]] = unpacked(row[TEST]["predicted"])
    differences = []
    for (name, arm), own in predicted.items():
        base = predicted.get((name, BASELINE), {})
        if arm != BASELINE and (shared := sorted(own.keys() & base.keys())):
            truth = unpacked(found["sets"][name]["classes"][TEST])
            sides = ([side[seed] for seed in shared] for side in (base, own))
            differences.append({"set": name, "arm": arm, "seeds": shared, **difference(truth, *sides)})
    return differences
