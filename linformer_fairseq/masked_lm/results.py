"""What a study has found, as results.json holds it, and that of other machines with it."""

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.modules.level_sizes import EXACT_BELOW
from linformer_fairseq.recipe import logs, merging
from linformer_fairseq.recipe.course import DONE, LOG
from linformer_fairseq.recipe.merging import RESULTS, Found, check_new, check_settings, joined, joined_costs
from linformer_fairseq.recipe.study_settings import change, flat

from .arguments import Settings, Study
from .arms import ARMS, BASELINE, Arm
from .costs import FILE_NAME as COSTS
from .swap import Swap, swapped_perplexity, swaps, updates_of
from .text import BIN, corpus_facts
from .trainings import Training, planned
from .validate import perplexity

SPECTRUM = "spectrum"
_TEXT = "text sha256"


def decisive(study: Study, digests: dict[str, dict[str, str]]) -> Found:
    """Returns what decides the models of a study, whatever their attention, length and seed."""
    settings = {name: value for name, value in asdict(study.settings).items() if name != "valid"}
    texts = json.dumps(digests, sort_keys=True).encode()
    every = {**settings, "k": study.k, _TEXT: hashlib.sha256(texts).hexdigest()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flat("", every)}


def changed_setting(name: str, before: Found, now: Found) -> str:
    """Returns how what `decisive` returned has changed, and what to do about it."""
    if name == _TEXT:
        return "other texts, or another split of them: all models need the same, so put the former files back"
    return change(name, before, now)


def planned_findings(trainings: Sequence[Training], study: Study, settings: Found) -> Found:
    """Returns what is known of the results before anything is trained.

    Args:
        settings: what `decisive` returned.
    """
    return {
        "settings": settings,
        "corpus": corpus_facts(study.out),
        "trainings": [_row(own) for own in trainings],
        "costs": None,
    }


def findings(study: Study, settings: Found, others: dict[Path, Found]) -> Found:
    """Returns all that the report says, with the results of `others`, by their files, in it.

    Args:
        settings: what `decisive` returned.

    Raises:
        UserError: results are of another study, or have a training that is there already.
    """
    trainings = [_training(own, study) for own in planned(study)]
    transformers = {row["length"]: row["perplexity"] for row in reversed(trainings) if row["arm"] == BASELINE}
    found: Found = {
        "settings": settings,
        "k": study.k,
        "exact_below": EXACT_BELOW,
        "corpus": corpus_facts(study.out),
        "commands": [study.command],
        "machines": [describe_machine()],
        "arms": {arm.name: _described(arm, study.settings) for arm in study.arms},
        "trainings": trainings,
        "swapped": [{**_swap(own, study), "before": transformers[own.training.length]} for own in swaps(study)],
        "spectra": _spectra(study),
        "costs": _costs(study),
    }
    for path, other in others.items():
        check_same(path, found, other)
        for name in ("commands", "machines"):
            found[name] = joined(found[name], other[name])
        for name in ("trainings", "swapped", "spectra"):
            found[name] = joined(found[name], other[name], key_of)
        found["arms"] = {**found["arms"], **other["arms"]}
        found["costs"] = joined_costs(path, found["costs"], other["costs"], key_of)
    found["arms"] = {name: found["arms"][name] for name in ARMS if name in found["arms"]}
    return found


def check_same(path: Path, found: Found, other: Found) -> None:
    """Looks whether the results of a file are of the same study as `found`, which may not have all of its own yet.

    Raises:
        UserError: they are not, or have a training that is there already, other than a Transformer.
    """
    check_settings(path, found["settings"], other["settings"])
    if other["corpus"] != found["corpus"]:
        raise UserError(f"{path} is of another text, or of other subwords: leave it out.")
    known = [row for row in found["trainings"] if row["arm"] != BASELINE]  # which replacing attention needs
    check_new(path, known, other["trainings"], key_of, _said)


def _said(row: Found) -> str:
    return f"{row['arm']} at {row['length']} tokens with seed {row['seed']}"


def _costs(study: Study) -> Found | None:
    """Returns what has been measured of the models of a study."""
    path = study.out / COSTS
    if not (study.costs and path.exists()):
        return None
    found: Found = read_json(path)
    names = [arm.name for arm in study.arms]
    machine = found["asked"].pop("machine")
    rows = [row for row in found["rows"] if row["arm"] in names]
    return {"asked": found["asked"], "machines": [machine], "rows": rows}


def key_of(row: Found) -> tuple[Any, ...]:
    """Returns what tells a training from all others, or one that goes on after its attention was replaced."""
    return tuple(row.get(name) for name in ("arm", "length", "k", "sharing", "seed", "share"))


def _described(arm: Arm, settings: Settings) -> dict[str, str]:
    flags = shlex.join(arm.attention_flags(0, convolution=settings.convolution)).replace("-k 0", "-k K")
    return {"label": arm.label, "what": arm.what, "flags": flags}


def _row(own: Training) -> Found:
    return {"arm": own.arm.name, "length": own.length, "k": own.k, "sharing": own.sharing, "seed": own.seed}


def _training(own: Training, study: Study) -> Found:
    log = logs.read_training((own.folder / LOG).read_text(encoding="utf-8"))
    facts = read_json(own.folder / DONE)
    return {
        **_row(own),
        "perplexity": perplexity(
            own.checkpoint,
            study.out / BIN,
            study.settings,
            study.threads,
            own.name,
            own.folder / "validation.json",
        ),
        "parameters": log.parameters,
        "updates": log.updates,
        "seconds": log.seconds,
        "curve": log.curve,
        "jobs": facts["jobs"],
        "threads": facts["threads"],
        "machine": facts["machine"],
        "command": ["python", *(part.removeprefix(f"{study.out}/") for part in facts["command"][1:])],
    }


def _swap(own: Swap, study: Study) -> Found:
    updates = updates_of(own, study)
    return {**_row(own.training), "share": own.share, "updates": updates, "perplexity": swapped_perplexity(own, study)}


def _spectra(study: Study) -> list[Found]:
    """Returns, for every Transformer whose maps were analysed, the mean share that the largest k singular values have,
    and the mean rank that holds an energy, over layers and heads."""
    found = []
    for path in sorted(study.out.glob(f"{SPECTRUM}/n*[0-9]/{RESULTS}"), key=lambda path: int(path.parent.name[1:])):
        own = read_json(path)
        (spectrum,) = own["spectra"]
        heads = [head for layer in spectrum["cumulative"] for head in layer]
        ranks = [rank for layer in spectrum["mean_rank"] for rank in layer]
        shares = [head[min(study.k, len(head)) - 1] for head in heads]
        found.append(
            {
                "length": int(path.parent.name[1:]),
                "rank": study.k,
                "cumulative": sum(shares) / len(shares),
                "lowest": min(shares),
                "energy": own["energy"],
                "mean_rank": sum(ranks) / len(ranks),
                "highest_rank": max(ranks),
            }
        )
    return found


def read_results(path: Path) -> Found:
    """Returns the content of a results.json.

    Raises:
        UserError: it is missing, or of something else.
    """
    return merging.read_results(path, ("swapped", "spectra", "trainings"), "a study of masked language models")
