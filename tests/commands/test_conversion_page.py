"""The documented conversions give models that fairseq's commands take."""

from pathlib import Path

import pytest

from tests.fairseq_commands import masked_loss, run_documented, translate, valid_losses
from tests.variants import reads_checkpoints

pytestmark = [pytest.mark.slow, reads_checkpoints]

PAGE = "conversion.md"


def test_a_transformer(data: Path, trained_transformer: Path, tmp_path: Path) -> None:
    put = {"DATA": data / "bin", "checkpoint_best.pt": trained_transformer, "converted.pt": tmp_path / "converted.pt"}
    said = run_documented(PAGE, "linformer_fairseq.convert --data", put).ok()
    assert "get the same outputs as before" in said
    assert said.splitlines()[-1].startswith("fairseq-train ")
    assert len(translate(data, tmp_path / "converted.pt")) == 30


def test_a_masked_language_model(text: Path, trained_roberta: Path, tmp_path: Path) -> None:
    put = {"DATA": text, "roberta.pt": trained_roberta, "converted.pt": tmp_path / "converted.pt"}
    run_documented(PAGE, "linformer_fairseq.convert roberta.pt", put, "--texts", 1).ok()
    (loss,) = valid_losses(run_documented(PAGE, "fairseq-validate", put, "--max-tokens", 400, "--cpu").ok())
    assert loss == pytest.approx(masked_loss(text, trained_roberta), abs=0.002)
