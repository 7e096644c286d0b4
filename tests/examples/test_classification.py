"""examples/classification: labelled texts to binary data, a study to accuracies, and what is refused."""

import csv
import gzip
import json
import random
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils
from fairseq.utils import import_user_module
from sentencepiece import SentencePieceProcessor

from tests.conftest import Shared
from tests.examples.conftest import SMALL_ENCODER, WORDS
from tests.examples.recipes import EXAMPLES, doit, refused, run, write_study

pytestmark = pytest.mark.slow

PREPARE, TRAIN = (str(EXAMPLES / "classification" / name) for name in ("prepare.sh", "train.sh"))
LONGEST = 256
STUDY, TRAINING = "classification/classification.yaml", f"{SMALL_ENCODER} --max-positions {LONGEST}"


def write_table(path: Path, rows: list[tuple[str, str]]) -> None:
    lines = [f"{number}\t{text}\tlabel {number}\t{label}" for number, (label, text) in enumerate(rows)]
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(["id\tsentence\tother\tlabel", *lines]))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Returns a folder of few texts."""
    folder = tmp_path / "some texts"
    folder.mkdir()
    for name, size in (("train.tsv", 3), ("dev.tsv", 2), ("test.tsv.gz", 2)):
        write_table(folder / name, [("good", 'tare "kolo'), ("bad", "misu\\n tare"), ("good", "kona")][:size])
    return folder


def test_texts_become_binary_data(pretrained: Path, texts: Path, tmp_path: Path) -> None:
    """Quotation marks and backslashes are letters; labels are numbered alphabetically, words as in the pretraining."""
    with open(texts / "dev.tsv", "rb+") as file:
        before = file.read()
        file.seek(0)
        file.write(b"\xef\xbb\xbf" + before.replace(b"\n", b"\r\n"))
    run(PREPARE, "out", texts, cwd=tmp_path, PRETRAINED=str(pretrained / "out")).ok()
    binary = tmp_path / "out/bin"
    assert (binary / "input0/dict.txt").read_bytes() == (pretrained / "out/bin/dict.txt").read_bytes()
    assert (binary / "label/dict.txt").read_text() == "bad 1\ngood 1\n"
    pieces = SentencePieceProcessor(model_file=str(pretrained / "out/bin/sentencepiece.model"))
    dictionaries = [Dictionary.load(str(binary / part / "dict.txt")) for part in ("input0", "label")]
    for name, size in (("train", 3), ("valid", 2), ("test", 2)):
        expected = [
            [" ".join(pieces.encode(text, out_type=str)) for text in ('tare "kolo', "misu\\n tare", "kona")[:size]],
            ["good", "bad", "good"][:size],
        ]
        for part, words, lines in zip(("input0", "label"), dictionaries, expected, strict=True):
            found = data_utils.load_indexed_dataset(str(binary / part / name), words)
            assert [found[i].tolist() for i in range(len(found))] == [
                words.encode_line(line, add_if_not_exist=False).tolist() for line in lines
            ]
    said = run(PREPARE, "out", texts, cwd=tmp_path, PRETRAINED=str(pretrained / "out")).ok()
    assert said == f"{binary}: already prepared\n"


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("train", "sentence", "words", "The first line of *train.tsv names no column label, or not one column text or"),
        ("train", "id\t", "text\t", "The first line of *train.tsv names no column label, or not one column text or"),
        ("dev", "\tlabel\n", "\tclass\n", "The first line of *dev.tsv names no column label"),
        ("dev", "misu", "mi\tsu", "Line 3 of *dev.tsv has 5 columns, but its header has 4"),
        ("dev", "\tbad", "\tugly", "Line 3 of *dev.tsv has the label ugly, which no training text has"),
        ("dev", "\tbad", "\tvery bad", 'Line 3 of *dev.tsv has the label "very bad": a label is one word'),
        ("train", "kona", "  ", "Line 4 of *train.tsv has an empty text"),
        ("train", "\tbad", "\tgood", "All texts of *train.tsv have one label"),
        ("train", "misu", "mis\xfc", "train.tsv is not UTF-8 text: line 3 cannot be read"),
    ],
)
def test_what_cannot_be_prepared(
    pretrained: Path, texts: Path, tmp_path: Path, name: str, before: str, after: str, said: str
) -> None:
    change(texts / f"{name}.tsv", before, after)
    if "UTF-8" in said:
        (texts / "train.tsv").write_bytes((texts / "train.tsv").read_text().encode("latin-1"))
    sentence = refused(PREPARE, "out", texts, cwd=tmp_path, PRETRAINED=str(pretrained / "out"))
    assert all(part in sentence for part in said.split("*"))
    assert not (tmp_path / "out/bin").exists()


def test_what_is_missing(pretrained: Path, texts: Path, tmp_path: Path) -> None:
    given = {"cwd": tmp_path, "PRETRAINED": str(pretrained / "out")}
    (texts / "dev.tsv").write_text("id\tsentence\tlabel\n")
    assert "dev.tsv has no texts below its header" in refused(PREPARE, "out", texts, **given)
    (texts / "dev.tsv").unlink()
    assert "has no dev.tsv or dev.tsv.gz: give it train, dev and test" in refused(PREPARE, "out", texts, **given)
    assert "no is missing: name a folder with train" in refused(PREPARE, "out", tmp_path / "no", **given)
    sentence = refused(PREPARE, "out", texts, cwd=tmp_path, PRETRAINED=str(tmp_path))
    assert sentence.endswith("has no bin/sentencepiece.model: name the OUT of masked_lm/prepare.sh.")
    assert "has no input0/dict.txt" in refused(TRAIN, pretrained / "out/bin", "run", "roberta_tiny", cwd=tmp_path)


@pytest.fixture(scope="session")
def classified(shared: Shared, pretrained: Path) -> Path:
    """Returns a folder with texts, of which one is longer than the model takes, and in `out` the study of them."""

    def make(folder: Path) -> None:
        draw = random.Random(2)
        (folder / "texts").mkdir()
        for name, size in (("train.tsv", 90), ("dev.tsv", 21), ("test.tsv.gz", 27)):
            rows = [(str(draw.randint(0, 2)), " ".join(draw.choices(WORDS, k=draw.randint(2, 9)))) for _ in range(size)]
            write_table(folder / "texts" / name, [*rows, ("1", "tare " * LONGEST)])
        changed = {"text": "texts", "pretrained": str(pretrained / "out"), "seeds": [1, 2], "env": {"EPOCHS": 2}}
        doit(write_study(folder, STUDY, ["full"], training=TRAINING, **changed), cwd=folder).ok()

    return shared("classified", make)


def test_the_accuracy_is_that_of_all_texts(classified: Path, pretrained: Path) -> None:
    """Each text is classified alone, of the long one its beginning."""
    import_user_module(Namespace(user_dir=str(EXAMPLES.parent / "linformer_fairseq")))
    pieces = SentencePieceProcessor(model_file=str(pretrained / "out/bin/sentencepiece.model"))
    for seed in (1, 2):
        folder = classified / f"out/runs/full/seed-{seed}"
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(folder / "checkpoint_best.pt")])
        model.eval()
        scores = json.loads((folder / "scores.json").read_text())
        for name, file, count in (("accuracy", "test.tsv.gz", 28), ("dev accuracy", "dev.tsv", 22)):
            opened = gzip.open if file.endswith(".gz") else open
            with opened(classified / "texts" / file, "rt", encoding="utf-8") as lines:
                rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
            right = 0
            for row in rows:
                words = " ".join(pieces.encode(row["sentence"], out_type=str))
                line = task.source_dictionary.encode_line(f"<s> {words}", add_if_not_exist=False)[:LONGEST]
                with torch.no_grad():
                    head = {"features_only": True, "classification_head_name": "sentence_classification_head"}
                    logits, _ = model(line[None].long(), **head)
                right += int(logits.argmax()) == int(row["label"])
            assert len(rows) == count
            assert scores[name] == round(100 * right / count, 1)


def test_a_study_starts_from_another(classified: Path, pretrained: Path) -> None:
    """From the model of the same seed, or of the first where that is all there is."""
    start = pretrained / "out/runs/full/seed-1/checkpoint_best.pt"
    for seed in (1, 2):
        command = (classified / f"out/runs/full/seed-{seed}/command").read_text()
        assert f"--finetune-from-model {start} " in command
        assert "--num-classes 3 " in command
        assert "--total-num-update 6 " in command  # two epochs of 91 texts, 32 at a time
        assert "loaded checkpoint" in (classified / f"out/runs/full/seed-{seed}/train.log").read_text().lower()
    report = (classified / "out/report.md").read_text()
    assert "| full    |    1, 2 |" in report
    assert "accuracy |" in report
    changed = {"text": "texts", "pretrained": str(pretrained / "out"), "env": {}}
    path = write_study(classified, STUDY, ["full", "linformer"], training=TRAINING, **changed)
    result = doit(path, cwd=classified)
    assert result.status == 2
    assert "runs/linformer has no evaluated model: run the study that pretrains it first" in result.output
