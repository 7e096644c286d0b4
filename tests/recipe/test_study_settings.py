"""The folder of a study is never taken for that of another one."""

from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents import settings as documents
from linformer_fairseq.documents.arguments import parse as parse_documents
from linformer_fairseq.masked_lm.arguments import parse as parse_masked_lm
from linformer_fairseq.masked_lm.results import decisive
from linformer_fairseq.recipe.study_settings import FILE_NAME, store


def store_documents(out: Path) -> None:
    documents.store_settings(parse_documents(["--out", str(out)]))


def store_masked_lm(out: Path) -> None:
    study = parse_masked_lm(["--data", str(out), "--out", str(out)])
    store(out, decisive(study, {}), ["bin"], models="runs/*/*")


@pytest.mark.parametrize(("first", "second"), [(store_documents, store_masked_lm), (store_masked_lm, store_documents)])
def test_a_folder_of_another_study_is_left_alone(tmp_path: Path, first, second) -> None:
    first(tmp_path)
    model = tmp_path / "runs" / "transformer" / "seed-1" / "models" / "transformer"
    model.mkdir(parents=True)
    before = (tmp_path / FILE_NAME).read_text()
    with pytest.raises(UserError, match="holds other files than this study's: name a new or an empty folder"):
        second(tmp_path)
    assert model.is_dir()
    assert (tmp_path / FILE_NAME).read_text() == before
    first(tmp_path)
