"""What the study found, read from the folders of its finished trainings: the content of results.json."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from sacrebleu.metrics import BLEU

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.modules import KINDS
from linformer_fairseq.modules.level_sizes import EXACT_BELOW
from linformer_fairseq.recipe import logs
from linformer_fairseq.recipe.course import LOG
from linformer_fairseq.recipe.merging import Found
from linformer_fairseq.recipe.scores import bleu_of_counts, difference_of_means

from .arguments import Study
from .arms import ARMS, BASES, SENTENCES, TRANSFORMER
from .costs import read_costs
from .found import is_of, way_of
from .merge import SETTINGS, merged
from .prepare import corpus_facts
from .scores import by_length, glossary_shares, scores, share_of, thirds
from .sets import GLOSSARY, DocumentSet
from .settings import FOLDER, decisive
from .trainings import Training
from .translate import FACTS, Way, read_hypotheses, translation_folder, ways_of

Sets = Mapping[str, DocumentSet]


@dataclass(frozen=True)
class Description:
    """What a report says of a model; results are stored with it, as a name may mean something else later."""

    label: str
    what: str
    flags: str = ""
    """Of fairseq-train; empty for the Transformer."""


def findings(own: Found, others: Sequence[tuple[Path, Found]], sets: Sets) -> Found:
    """Returns all that the report says, as results.json holds it: what `own_findings` tells, with the results of
    `others`, from these files, and how far models are from each other."""
    found = merged(own, others)
    return {**found, "differences": _differences(found["rows"], sets)}


def planned(study: Study, sets: Sets) -> Found:
    """Returns what is known of the results before anything is trained."""
    trainings = [{"arm": own.variant.name, "seed": own.seed} for own in study.trainings]
    return {**_shared(study, sets), "trainings": trainings, "rows": []}


def own_findings(study: Study, sets: Sets) -> Found:
    """Returns what the study's own trainings, translations and costs tell."""
    rows = [
        _row(training, way, study, sets[way.set_name])
        for training in study.trainings
        for way in ways_of(training, study, sets)
    ]
    names = list(dict.fromkeys(row["arm"] for row in rows))
    return {
        **_shared(study, sets),
        "commands": [study.command],
        "machines": [describe_machine()],
        "arms": {name: asdict(_described(name, study.k)) for name in names},
        "trainings": [_training(own, study.out) for own in (*study.starts.values(), *study.trainings)],
        "costs": read_costs(study.out, names),
        "rows": rows,
    }


def _shared(study: Study, sets: Sets) -> Found:
    """Returns what is the same for all models of the study, wherever they are trained."""
    settings = study.settings
    text, training = settings.text, settings.training
    start = next(iter(study.starts.values())).settings.training
    first = {"resolutions": list(study.start_resolutions), "updates": start.updates, "max_tokens": start.max_tokens}
    return {
        "text": f"{text.dataset.name}, {text.source_lang} to {text.target_lang}",
        "corpus": corpus_facts(study.out),
        "documents": {name: len(own.spans) for name, own in sets.items()},
        "resolutions": list(study.resolutions),
        "longest_example": text.max_subwords,
        "lengths": list(study.lengths),
        "k": study.k,
        "exact_below": EXACT_BELOW,
        "start": first,
        "updates": training.updates,
        "max_tokens": training.max_tokens,
        "precision": training.precision,
        "average": settings.translation.average,
        "beam": settings.translation.beam,
        SETTINGS: {name: value for name, value in decisive(study).items() if name != FOLDER},
    }


def _described(name: str, k: int) -> Description:
    arm = ARMS[name]
    if not arm.attention:
        return Description(arm.label, arm.what)
    slots = f"--linformer-k {k} " if KINDS[arm.projection].options.uses_k else ""
    flags = f"{slots}--linformer-attention {arm.attention} --linformer-projection {arm.projection} {arm.flags}"
    return Description(arm.label, arm.what, flags.strip())


def _training(training: Training, out: Path) -> dict[str, Any]:
    """Returns the facts of a training, with its command as typed in the folder `out`; its name alone where none was."""
    own = {"arm": training.variant.name, "seed": training.seed}
    path = training.folder / LOG
    if not path.exists():
        return own
    log = logs.read_training(path.read_text(encoding="utf-8"))
    facts = read_json(training.folder / "train.json")
    return {
        **own,
        "parameters": log.parameters,
        "updates": log.updates,
        "seconds": log.seconds,
        "tokens": log.tokens,
        "validation_curve": log.curve,
        "command": ["python", *(part.removeprefix(f"{out}/") for part in facts["command"][1:])],
        "jobs": facts["jobs"],
    }


def _row(training: Training, way: Way, study: Study, documents: DocumentSet) -> dict[str, Any]:
    hypotheses = read_hypotheses(training, way, documents)
    found = scores(hypotheses, documents)
    facts = read_json(translation_folder(training, way, documents) / FACTS)
    row = {
        "arm": training.variant.name,
        "seed": training.seed,
        "set": way.set_name,
        "longest": way.longest,
        "mode": way.mode,
        **found,
        "by_length": by_length(numpy.array(found["counts"]), documents, study.lengths),
        "seconds": facts["seconds"],
        "halved": facts["halved"],
    }
    if way.set_name == GLOSSARY:
        row["glossary"] = glossary_shares(hypotheses, documents)
    return row


def _differences(rows: Sequence[dict[str, Any]], sets: Sets) -> list[dict[str, Any]]:
    """Returns how far every model is from the Transformer, and some from another one, over the seeds that both have."""
    ways = dict.fromkeys(way_of(row) for row in rows if row["arm"] != SENTENCES.name)
    differences = []
    for way in ways:
        by_arm: dict[str, dict[int, dict[str, Any]]] = {}
        for row in rows:
            if is_of(row, way):
                by_arm.setdefault(row["arm"], {})[row["seed"]] = row
        pairs = [(arm, TRANSFORMER) for arm in by_arm if arm != TRANSFORMER]
        for arm, base in (*pairs, *BASES.items()):
            own, baseline = by_arm.get(arm, {}), by_arm.get(base, {})
            if shared := sorted(own.keys() & baseline.keys()):
                found = _difference(
                    sets[way.set_name], [baseline[seed] for seed in shared], [own[seed] for seed in shared]
                )
                names = {"set": way.set_name, "longest": way.longest, "mode": way.mode}
                differences.append({"arm": arm, "from": base, **names, "seeds": shared, **found})
    return differences


def _difference(
    documents: DocumentSet, baseline: Sequence[dict[str, Any]], system: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the difference in d-BLEU between the rows of two models, that of each third of the documents by length,
    and, where there are glossaries, that of the share of names by distance."""
    score = partial(bleu_of_counts, BLEU(trg_lang=documents.language, force=True))
    before, after = ([numpy.array(row["counts"]) for row in side] for side in (baseline, system))
    found = {
        **difference_of_means(score, before, after),
        "thirds": [
            difference_of_means(score, [own[third] for own in before], [own[third] for own in after])
            for third in thirds(documents)
        ],
    }
    if "glossary" in baseline[0] and "glossary" in system[0]:
        found["glossary"] = [
            difference_of_means(share_of, *([numpy.array(own["counts"]) for own in side] for side in (theirs, ours)))
            for theirs, ours in zip(
                zip(*(row["glossary"] for row in baseline), strict=True),
                zip(*(row["glossary"] for row in system), strict=True),
                strict=True,
            )
        ]
    return found
