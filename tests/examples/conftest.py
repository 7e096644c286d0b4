"""Text and runs that the tests of the recipes share."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Shared, mounted
from tests.examples.recipes import EXAMPLES, SMALL, VARIABLES, doit, run, write_study, write_text

STUDY = f"""
out: study
text: made text
prepare: {EXAMPLES}/wmt14_en_de/prepare.sh
train: {EXAMPLES}/wmt14_en_de/train.sh
evaluate: {EXAMPLES}/wmt14_en_de/evaluate.sh
env: {{{", ".join(f"{name}: '{value}'" for name, value in VARIABLES.items())}}}
training: {" ".join(SMALL)} --max-update 12 --validate-interval-updates 4 --save-interval-updates 4
translation: --max-len-a 0 --max-len-b 10
seeds: [1, 2]
baseline: transformer
arms:
  transformer: {{arch: transformer}}
  linformer-k4: {{arch: linformer_transformer, flags: --linformer-k 4}}
  tuned: {{arch: transformer, from: transformer, flags: --lr 1e-9, seeds: [1]}}
  converted: {{convert: transformer, flags: --linformer-k 8 --linformer-exact-below 0, seeds: [1]}}
"""


@pytest.fixture(scope="session")
def study(shared: Shared) -> Path:
    """Returns a folder with a text, the YAML of a study, and what it left in `study`."""

    def make(folder: Path) -> None:
        write_text(folder / "made text")
        (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
        run("doit", "-f", EXAMPLES / "studies/dodo.py", "-n", 2, "-P", "thread", "study=study.yaml", cwd=folder).ok()

    return shared("a study", make)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KiB."""
    with mounted(tmp_path / "disk", 512) as disk:
        yield disk


SMALL_ENCODER = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 --num-workers 0 "
    "--log-interval 2"
)
WORDS = [a + b for a in ("ta", "ko", "mi", "su") for b in ("re", "lo", "na", "wö")]


@pytest.fixture(scope="session")
def pretrained(shared: Shared) -> Path:
    """Returns a folder with texts, and in `out` what the study of masked language models makes of them: a Transformer,
    trained for eight updates, and what it is converted to."""

    def make(folder: Path) -> None:
        draw = random.Random(1)
        (folder / "books").mkdir()
        for name, size in (("a", 200), ("b", 300), ("c", 60)):
            lines = [" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(size)]
            (folder / f"books/{name}.txt").write_text("\n".join(lines), encoding="utf-8")
        training = f"{SMALL_ENCODER} --tokens-per-sample 256 --max-tokens 512"
        env = {"VOCABULARY": 60, "UPDATES": 8}
        path = write_study(folder, "masked_lm/masked_lm.yaml", text="books", training=training, env=env)
        wanted = [f"evaluate:{arm}/seed-1" for arm in ("full", "converted-key-clusters")]
        doit(path, *wanted, cwd=folder).ok()

    return shared("pretrained", make)
