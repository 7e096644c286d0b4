"""Sets and pretrained models that are made on the spot."""

import json
from pathlib import Path

from linformer_fairseq.masked_lm.arguments import Study, parse
from linformer_fairseq.masked_lm.results import decisive
from linformer_fairseq.masked_lm.trainings import planned
from linformer_fairseq.recipe.course import DONE
from tests.masked_lm.made_text import WORDS

PRETRAINING = (
    "--vocabulary 60 --layers 1 --dim 16 --heads 2 --ffn-dim 16 --max-tokens 256 --updates 3 --lr 0.01 -k 8 --ks 8 "
    "--warmup-updates 0 --sharings headwise --lengths 32 --seeds 1 --no-swap --no-costs --threads 1"
)
SIZES = {"train": 24, "dev": 7, "test": 9}
LABELS = ("calm", "rain")


def pretraining(data: Path, out: Path, *more: str) -> Study:
    return parse(["--data", str(data), "--out", str(out), *PRETRAINING.split(), *more])


def pretend(study: Study) -> Path:
    """Makes the folder of a study with empty files for its models, and returns it."""
    study.out.mkdir(parents=True, exist_ok=True)
    (study.out / "study.json").write_text(json.dumps(decisive(study, {})))
    for path in ("pieces/sentencepiece.model", "bin/dict.txt"):
        (study.out / path).parent.mkdir(exist_ok=True)
        (study.out / path).write_text(path)
    for training in planned(study):
        training.checkpoint.parent.mkdir(parents=True)
        training.checkpoint.write_text(training.name)
        (training.folder / DONE).write_text("{}")
    return study.out


def examples(split: str) -> list[tuple[str, str]]:
    """Labels and texts, which have half of the words for each label."""
    half = len(WORDS) // 2
    found = []
    for number in range(SIZES[split]):
        rains = (number + number // 3) % 2
        own = [WORDS[rains * half + (number * place + len(split)) % half] for place in range(3 + number % 5)]
        found.append((LABELS[rains], " ".join(own)))
    return found


def write_set(folder: Path) -> Path:
    """Writes a set, and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SIZES:
        lines = [f"{number}\t{label}\t{text}" for number, (label, text) in enumerate(examples(split))]
        (folder / f"{split}.tsv").write_text("\n".join(["id\tlabel\ttext", *lines]) + "\n", encoding="utf-8")
    return folder
