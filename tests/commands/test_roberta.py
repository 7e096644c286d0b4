"""The masked language model works in fairseq's commands and hub interface, and is fine-tuned for sentences."""

import random
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq.models.roberta import RobertaHubInterface

from linformer_fairseq import LinformerRobertaModel
from tests.conftest import Shared
from tests.fairseq_commands import (
    encoder_arguments,
    masked_arguments,
    masked_loss,
    run,
    run_documented,
    train_masked,
    valid_losses,
)
from tests.models.example_checkpoints import EXAMPLE

pytestmark = pytest.mark.slow

ARCH = "linformer_roberta"
LINFORMER = ["--linformer-k", 8, "--linformer-sharing", "layerwise", "--max-tokens", 400, "--update-freq", 2]
LINFORMER += ["--lr", 0.01]
"""The flags of `trained`. One parameter stands in all layers."""
HALVES = ["low", "high"]
"""The classes of texts: in which half of the words the first of their two is."""


@pytest.fixture(scope="session")
def texts(shared: Shared) -> Path:
    """Returns a folder of texts that mix two neighbours of twenty words, in pieces of sentencepiece, with what is to be
    said of them: a class."""

    def make(folder: Path) -> None:
        generator = random.Random(1)
        for split, size in (("train", 300), ("valid", 40)):
            first = [generator.randrange(20) for _ in range(size)]
            lengths = [generator.randint(3, 20) for _ in range(size)]
            pairs = list(zip(first, lengths, strict=True))
            write(
                folder, split, [" ".join(f"w{(w + generator.randrange(2)) % 20}" for _ in range(n)) for w, n in pairs]
            )
            write(folder, f"{split}.class", [HALVES[word // 10] for word in first])
        sentencepiece.SentencePieceTrainer.train(
            input=folder / "train", model_prefix=folder / "pieces", model_type="word", vocab_size=23
        )
        pieces = sentencepiece.SentencePieceProcessor(str(folder / "pieces.model"))
        for split in ("train", "valid"):
            lines = (folder / split).read_text().splitlines()
            write(folder, f"{split}.pieces", [" ".join(pieces.encode(line, out_type=str)) for line in lines])
        preprocess(folder, "pieces", folder / "bin")
        dictionary = ["--srcdict", folder / "bin" / "dict.txt"]
        preprocess(folder, "pieces", folder / "class" / "input0", *dictionary)
        preprocess(folder, "class", folder / "class" / "label")

    return shared("texts", make)


def write(folder: Path, name: str, lines: list[str]) -> None:
    (folder / name).write_text("".join(line + "\n" for line in lines))


def preprocess(folder: Path, ending: str, out: Path, *more: object) -> None:
    splits = [part for split in ("train", "valid") for part in (f"--{split}pref", folder / f"{split}.{ending}")]
    run("preprocess", "--only-source", *splits, "--destdir", out, *more).ok()


@pytest.fixture(scope="session")
def trained(shared: Shared, texts: Path) -> Path:
    """Returns the last checkpoint of a Linformer; what fairseq-train printed is in the file `log` beside it."""

    def make(folder: Path) -> None:
        (folder / "log").write_text(train_masked(texts / "bin", folder, *LINFORMER, arch=ARCH).ok())

    return shared("masked-linformer", make) / "checkpoint_last.pt"


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def log_of(checkpoint: Path) -> str:
    return (checkpoint.parent / "log").read_text()


def test_training_and_validation(texts: Path, trained: Path) -> None:
    losses = valid_losses(log_of(trained))
    assert losses[-1] < losses[0] - 1
    put = {"DATA": texts / "bin", "converted.pt": trained}
    (loss,) = valid_losses(run_documented("conversion.md", "fairseq-validate", put, "--max-tokens", 400, "--cpu").ok())
    assert loss == pytest.approx(losses[-1], abs=0.002)


def test_two_processes_train_as_one(texts: Path, trained: Path, tmp_path: Path) -> None:
    """Each has half of the batches of an update."""
    together = [
        *("--distributed-world-size", 2, "--distributed-init-method", f"tcp://127.0.0.1:{free_port()}"),
        *("--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-no-spawn"),
        *("--update-freq", 1, "--max-epoch", 3, "--distributed-rank"),
    ]
    arguments = masked_arguments(texts / "bin", tmp_path, *LINFORMER, *together, arch=ARCH)
    commands = [[*arguments, rank] for rank in range(2)]
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(lambda arguments: run("train", *arguments), commands)
    assert "distributed init (rank 1)" in second.ok()
    found, expected = first.ok(), log_of(trained)
    for figure in ("train", "wpb"), ("train", "num_updates"), ("valid", "loss"):
        assert len(figures(found, *figure)) == 3
        assert figures(found, *figure) == pytest.approx(figures(expected, *figure)[:3], abs=2e-3)


def figures(output: str, part: str, name: str) -> list[float]:
    """Returns every figure of a name that fairseq printed of the training of an epoch or of a validation."""
    return [float(figure) for figure in re.findall(rf"\| {part}\b.* \| .*\b{name} ([\d.]+)", output)]


def test_two_levels_are_full_attention_on_short_texts(text: Path, trained_roberta: Path, tmp_path: Path) -> None:
    """A model of fairseq's with the same weights has the same loss."""
    nothing = ["--finetune-from-model", trained_roberta, "--max-update", 1, "--lr", 0]
    train_masked(text, tmp_path, *nothing, arch="two_level_roberta").ok()
    checkpoint, expected = tmp_path / "checkpoint_last.pt", masked_loss(text, trained_roberta)
    assert masked_loss(text, checkpoint) == pytest.approx(expected, abs=0.002)
    cut = {"linformer_exact_below": 0, "linformer_k": "2", "linformer_slot_width": 8, "linformer_open_slots": 1}
    assert masked_loss(text, checkpoint, "--model-overrides", str(cut)) != pytest.approx(expected, abs=0.002)


def finetuning(texts: Path, save_dir: Path, task: str, checkpoint: Path, *more: object) -> list[object]:
    """Returns the arguments of a training for sentences that starts from a masked language model."""
    start = ["--restore-file", checkpoint, "--reset-optimizer", "--reset-dataloader", "--reset-meters"]
    options = [*LINFORMER, *start, "--init-token", 0, "--max-positions", 64, "--lr", 0.002, *more]
    return encoder_arguments(texts / task, save_dir, "sentence_prediction", *options, arch=ARCH)


@pytest.fixture(scope="module")
def classifier(texts: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    output = run("train", *finetuning(texts, folder, "class", trained, "--num-classes", 2)).ok()
    assert "Loaded checkpoint" in output
    (folder / "log").write_text(output)
    return folder / "checkpoint_last.pt"


def test_sentence_prediction(classifier: Path) -> None:
    assert figures(log_of(classifier), "valid", "accuracy")[-1] > 80


def hub(texts: Path, checkpoint: Path, data: str) -> RobertaHubInterface:
    """Returns fairseq's interface to a checkpoint."""
    pieces = {"bpe": "sentencepiece", "sentencepiece_model": str(texts / "pieces.model")}
    return LinformerRobertaModel.from_pretrained(
        str(checkpoint.parent), checkpoint.name, str(texts / data), **pieces
    ).eval()


@torch.no_grad()
def test_the_hub_fills_masks(texts: Path, trained: Path) -> None:
    roberta = hub(texts, trained, "bin")
    tokens = roberta.encode("w3 w4 w3")
    assert roberta.decode(tokens) == "w3 w4 w3"
    assert roberta.extract_features(tokens).shape == (1, 5, 32)
    assert len(roberta.extract_features(tokens, return_all_hiddens=True)) == 3
    right = 0
    for word in range(20):
        one, other = f"w{word}", f"w{(word + 1) % 20}"
        filled = roberta.fill_mask(f"{one} {other} {other} <mask> {one} {other} {one}", topk=3)
        assert all(text == f"{one} {other} {other}{said} {one} {other} {one}" for text, _, said in filled)
        right += filled[0][2].strip() in (one, other)
    assert right > 15


@torch.no_grad()
def test_the_hub_predicts_classes(texts: Path, classifier: Path) -> None:
    roberta = hub(texts, classifier, "class")
    labels = roberta.task.label_dictionary
    lines = (texts / "valid").read_text().splitlines()
    scores = [roberta.predict("sentence_classification_head", roberta.encode(line)) for line in lines]
    found = [labels[score.argmax().item() + labels.nspecial] for score in scores]
    wanted = (texts / "valid.class").read_text().splitlines()
    right = sum(map(str.__eq__, found, wanted)) / len(wanted)
    assert 100 * right == pytest.approx(figures(log_of(classifier), "valid", "accuracy")[-1], abs=0.1)


def test_bfloat16(texts: Path, tmp_path: Path) -> None:
    """By the documented command."""
    sizes = ("layers", 2), ("embed_dim", 32), ("ffn_embed_dim", 32), ("attention_heads", 4)
    options = [f"+model.encoder_{name}={size}" for name, size in sizes]
    options += ["common.bf16=true", "common.cpu=true", "dataset.batch_size=2", "lr_scheduler.warmup_updates=0"]
    options += ["optimization.lr=[0.01]", "optimization.max_update=10000", "optimization.max_epoch=2"]
    options += [f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path}"]
    found = run_documented("flags.md", "fairseq-hydra-train task=masked_lm", {"DATA": texts / "bin"}, *options)
    first, second = valid_losses(found.ok())
    assert second < first


def test_a_checkpoint_of_fairseqs_example(texts: Path, tmp_path: Path) -> None:
    """It has the same loss on single texts, in which nothing is padded."""
    own = ["--user-dir", EXAMPLE, "--compressed", 4, "--batch-size-valid", 1, "--max-epoch", 2]
    own += ["--sample-break-mode", "complete"]  # as the other needs the plugin with numpy 2
    output = train_masked(texts / "bin", tmp_path, *own, arch="linformer_roberta").ok()
    found = masked_loss(texts / "bin", tmp_path / "checkpoint_last.pt", "--batch-size", 1)
    assert found == pytest.approx(valid_losses(output)[-1], abs=0.002)
