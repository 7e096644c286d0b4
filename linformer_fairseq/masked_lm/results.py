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
from linformer_fairseq.recipe import logs
from linformer_fairseq.recipe.course import LOG
from linformer_fairseq.recipe.settings import DONE
from linformer_fairseq.recipe.study_settings import flat

from .arguments import Settings, Study
from .arms import ARMS, BASELINE, Arm
from .costs import FILE_NAME as COSTS
from .swap import Swap, swapped_perplexity, swaps, updates_of
from .text import BIN, corpus_facts
from .trainings import Training, planned
from .validate import perplexity

RESULTS = "results.json"
SPECTRUM = "spectrum"
Found = dict[str, Any]
"""What results.json holds, or an entry of it."""


def decisive(study: Study, digests: dict[str, dict[str, str]]) -> Found:
    """Returns what decides the models of a study, whatever their attention, length and seed."""
    settings = {name: value for name, value in asdict(study.settings).items() if name != "valid"}
    texts = json.dumps(digests, sort_keys=True).encode()
    every = {**settings, "k": study.k, "text sha256": hashlib.sha256(texts).hexdigest()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flat("", every)}


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
            found[name] += [value for value in other[name] if value not in found[name]]
        for name in ("trainings", "swapped", "spectra"):
            known = {key_of(row) for row in found[name]}
            found[name] += [row for row in other[name] if key_of(row) not in known]
        found["arms"] |= other["arms"]
        found["costs"] = _merged_costs(found["costs"], other["costs"])
    found["arms"] = {name: found["arms"][name] for name in ARMS if name in found["arms"]}
    return found


def check_same(path: Path, found: Found, other: Found) -> None:
    """Looks whether the results of a file are of the same study as `found`, which may not have all of its own yet.

    Raises:
        UserError: they are not, have a training that is there already, other than a Transformer, or costs that were
            measured in another way.
    """
    for name in dict.fromkeys([*found["settings"], *other["settings"]]):
        ours, theirs = found["settings"].get(name), other["settings"].get(name)
        if ours != theirs:
            raise UserError(f"{path} is of another study, its {name} {theirs!r} and not {ours!r}: leave it out.")
    if other["corpus"] != found["corpus"]:
        raise UserError(f"{path} is of another text, or of other subwords: leave it out.")
    known = {key_of(row) for row in found["trainings"] if row["arm"] != BASELINE}  # which replacing attention needs
    for row in other["trainings"]:
        if key_of(row) in known:
            raise UserError(
                f"{path} has {row['arm']} at {row['length']} tokens with seed {row['seed']}, which is there already: "
                "leave one out."
            )
    if found["costs"] and other["costs"] and found["costs"]["asked"] != other["costs"]["asked"]:
        raise UserError(f"{path} has costs that were measured in another way, or elsewhere: use --no-costs in one.")


def _costs(study: Study) -> Found | None:
    """Returns what has been measured of the models of a study."""
    path = study.out / COSTS
    if not (study.costs and path.exists()):
        return None
    found: Found = read_json(path)
    names = [arm.name for arm in study.arms]
    return {**found, "rows": [row for row in found["rows"] if row["arm"] in names]}


def _merged_costs(own: Found | None, other: Found | None) -> Found | None:
    """Returns the costs of both, which were measured in the same way; of what both measured, those of the first."""
    if not own or not other:
        return own or other
    known = {key_of(row) for row in own["rows"]}
    return {**own, "rows": [*own["rows"], *(row for row in other["rows"] if key_of(row) not in known)]}


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
    for path in sorted(study.out.glob(f"{SPECTRUM}/n*/{RESULTS}"), key=lambda path: int(path.parent.name[1:])):
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
    found = read_json(path) if path.is_file() else {}
    if not {"swapped", "spectra", "trainings"} <= found.keys():
        raise UserError(f"{path} is missing, or not of this study: run the study first, which keeps what is finished.")
    return dict(found)
