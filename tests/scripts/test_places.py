"""The script that measures other attention in one place of a trained model at a time."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from linformer_fairseq.cli.errors import UserError
from tests.fairseq_commands import PLUGIN, run, run_module, validate_arguments

TWO_LEVELS = "two-level --linformer-k 4 --linformer-slot-width 4 --linformer-open-slots 1 --linformer-exact-below 0"
CLUSTERS = "--linformer-encoder-projection key-clusters --linformer-k 4"


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("places")


def test_perplexities_are_those_of_converted_models(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """As fairseq-validate finds them; places that are not named keep full attention."""
    settings, table = ["", f"--linformer-cross-projection {TWO_LEVELS}", CLUSTERS], tmp_path / "places.csv"
    run_module("scripts.places", trained_transformer, data / "bin", *settings, "--csv", table).ok()
    with open(table, newline="") as file:
        rows = {row["setting"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["as trained", *settings]
    for setting, row in rows.items():
        model = trained_transformer
        if setting in settings:
            model = tmp_path / f"{settings.index(setting)}.pt"
            flags = ["--linformer-projection", "full", *setting.split()]
            run_module("linformer_fairseq.convert", trained_transformer, model, "--texts", 0, *flags).ok()
        said = run("validate", *validate_arguments(data, model), *PLUGIN).ok()
        (loss,) = re.findall(r"subset .* nll_loss ([\d.]+)", said)
        assert torch.tensor(float(row["perplexity"])).log2().item() == pytest.approx(float(loss), abs=1e-3)
        change = 100 * (float(row["perplexity"]) / float(rows["as trained"]["perplexity"]) - 1)
        assert float(row["change, %"]) == pytest.approx(change, abs=1e-6)
    assert abs(float(rows[""]["change, %"])) < 1e-3
    assert all(abs(float(rows[setting]["change, %"])) > 1e-2 for setting in settings[1:])
    assert len({rows[setting]["rows, decoder"] for setting in settings}) == 1
    assert float(rows[CLUSTERS]["rows, encoder"]) <= 4 < float(rows[""]["rows, encoder"])
    assert float(rows[settings[1]]["rows, cross"]) < float(rows[""]["rows, cross"])


def test_a_masked_language_model(trained_roberta: Path, text: Path) -> None:
    others = ["--linformer-projection window", "--linformer-projection mean-pool --linformer-k 4"]
    said = run_module("scripts.places", trained_roberta, text, CLUSTERS, *others).ok()
    told = [[x.strip() for x in line.split("|")[1:-1]] for line in said.splitlines()[-4:]]
    assert [x[0] for x in told] == ["as trained", CLUSTERS, *others]
    assert [x[3:6] for x in told[1:2]] == [["4.0", "–", "–"]]
    assert all(x[3] == "–" or float(x[3]) > 0 for x in told)  # what is not counted is no 0
    assert len({x[6] for x in told}) > 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--linformer-k "], "expected one argument"),
        (["--arch full"], "unrecognized arguments: --arch full"),
        (["--linformer-k 8"], "--linformer-k 8 has no effect"),
        (["", "--shortest", "999"], "no text has 999 to"),
        (["", "--csv", "CHECKPOINT"], "is the checkpoint itself: name another file for --csv"),
        (["", "--csv", "missing/places.csv"], "missing/places.csv cannot be written: name a file in a folder that"),
    ],
)
def test_refusals(
    arguments: list[str], sentence: str, script: ModuleType, trained_transformer: Path, data: Path
) -> None:
    given = [str(trained_transformer) if word == "CHECKPOINT" else word for word in arguments]
    with pytest.raises(UserError, match=sentence) as error:
        script.main([str(trained_transformer), str(data / "bin"), *given])
    assert "\n" not in str(error.value)
