"""Documents are trained on and translated by fairseq's own commands, and in Python."""

import random
import re
from pathlib import Path

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from linformer_fairseq import DocumentHubInterface, LinformerTransformerModel
from linformer_fairseq.trained import plain_encoder
from tests.commands.conftest import override_flags, trained_once
from tests.conftest import Shared
from tests.fairseq_commands import (
    Result,
    generate_arguments,
    hypotheses,
    run,
    run_documented,
    train,
    valid_losses,
    validate_arguments,
)
from tests.variants import reads_checkpoints

pytestmark = pytest.mark.slow

PAGE = "translating_documents.md"
TASK = ["--task", "document_translation"]
LONGEST = 64
"""Positions of the models, a source's as well as a target's."""


@pytest.fixture(scope="module")
def corpus(shared: Shared) -> Path:
    """Returns the folder of binarised documents, whose translations are their words in capitals.

    `TEXT.raw` has the text before tokenisation, `TEXT.bpe` what was binarised. The last documents of the test set are
    longer than the models.
    """

    def make(folder: Path) -> None:
        generator = random.Random(1)

        def documents(size: int, most: int) -> list[list[list[str]]]:
            return [
                [[f"w{generator.randrange(4)}", "see", "them"] for _ in range(sentences)]
                for sentences in (generator.randint(1, most) for _ in range(size))
            ]

        texts = {"train": documents(400, 6), "valid": documents(20, 6), "test": documents(8, 6) + documents(3, 40)}
        texts["test"][-1] = documents(1, 1)[0] * 40
        for split, found in texts.items():
            for language, case in (("en", str.lower), ("de", str.upper)):
                lines = [[case(" ".join(words)) for words in document] for document in found]
                (folder / f"{split}.raw.{language}").write_text(
                    "".join(" <sep> ".join(f"{sentence}." for sentence in line) + "\n" for line in lines)
                )
                (folder / f"{split}.{language}").write_text(
                    "".join(" <sep> ".join(f"{sentence} ." for sentence in line) + "\n" for line in lines)
                )
        with (folder / "codes").open("w") as codes:
            words = (folder / "train.en").read_text() + (folder / "train.de").read_text()
            learn_bpe(words.replace("<sep>", "").splitlines(), codes, 10)
        with (folder / "codes").open() as codes:
            subwords = BPE(codes)
        for path in [folder / f"{split}.{language}" for split in texts for language in ("en", "de")]:
            lines = [
                " <sep> ".join(subwords.process_line(sentence).strip() for sentence in line.split(" <sep> "))
                for line in path.read_text().splitlines()
            ]
            path.with_suffix(f".bpe{path.suffix}").write_text("".join(f"{line}\n" for line in lines))
        prefixes = [part for split in texts for part in (f"--{split}pref", folder / f"{split}.bpe")]
        run_documented(PAGE, "fairseq-preprocess", {"DATA": folder / "bin"}, *prefixes).ok()

    return shared("documents", make)


def trained_on(shared: Shared, corpus: Path, arch: str) -> Path:
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 8}', "--eval-bleu-remove-bpe"]
    flags = [*TASK, "--max-epoch", 6, "--dropout", 0, *bleu, "--eval-bleu-detok", "moses"]
    return trained_once(shared, corpus, f"documents_{arch}", *flags, arch=arch)


@pytest.fixture(scope="module")
def linformer(shared: Shared, corpus: Path) -> Path:
    """Returns the checkpoint of a Linformer that has learned what documents look like."""
    return trained_on(shared, corpus, "linformer_transformer_tiny")


@pytest.fixture(scope="module")
def transformer(shared: Shared, corpus: Path) -> Path:
    """Returns the checkpoint of fairseq's own Transformer."""
    return trained_on(shared, corpus, "transformer_tiny")


@pytest.fixture(scope="module", params=["linformer", "transformer"])
def checkpoint(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


only_linformer = pytest.mark.parametrize("checkpoint", ["linformer"], indirect=True)


def encoders(corpus: Path) -> list[object]:
    """Returns the flags of the tokeniser, which needs the languages, and of the subwords."""
    return ["-s", "en", "-t", "de", "--tokenizer", "moses", "--bpe", "subword_nmt", "--bpe-codes", corpus / "codes"]


def search(checkpoint: Path) -> list[object]:
    """Returns the flags of a search, but for those of the documented commands."""
    return ["--path", checkpoint, "--beam", 4, "--max-len-b", 30, "--cpu"]


def lines(corpus: Path, name: str) -> list[str]:
    return (corpus / name).read_text().splitlines()


def generated(corpus: Path, checkpoint: Path, *more: object) -> str:
    flags = [*search(checkpoint), *encoders(corpus), *override_flags(), *more]
    return run_documented(PAGE, "fairseq-generate --beam", {"DATA": corpus / "bin"}, *flags).ok()


def interactive(corpus: Path, checkpoint: Path, text: str, *more: object) -> Result:
    flags = [*search(checkpoint), "--bpe-codes", corpus / "codes", *override_flags(), *more]
    return run_documented(PAGE, "fairseq-interactive", {"DATA": corpus / "bin"}, *flags, text=text + "\n")


def detokenised(output: str) -> dict[int, str]:
    """Returns the text of each document's translation as a reader wants it."""
    return {int(number): text for number, text in re.findall(r"^D-(\d+)\t\S+\t(.*)$", output, re.MULTILINE)}


@pytest.fixture(scope="module")
def output(corpus: Path, checkpoint: Path) -> str:
    """Returns what fairseq-generate prints, with a flag at which newer fairseq drops the last documents."""
    return generated(corpus, checkpoint, "--required-batch-size-multiple", 8)


def test_every_document_is_translated_sentence_by_sentence(corpus: Path, output: str) -> None:
    """Those that are longer than the model as well; D- lines are detokenised, H- lines are what the model wrote."""
    sources, texts = lines(corpus, "test.bpe.en"), detokenised(output)
    assert max(len(source.split()) for source in sources) > 3 * LONGEST
    assert texts.keys() == hypotheses(output).keys() == set(range(len(sources)))
    for number, (_, hypothesis) in hypotheses(output).items():
        for text, end in ((hypothesis, "."), (texts[number], "THEM.")):
            sentences = text.split(" <sep> ")
            assert len(sentences) == len(sources[number].split(" <sep> "))
            assert all(sentence.split()[-1] == end for sentence in sentences)


@only_linformer
def test_words_are_joined_in_each_sentence(corpus: Path, linformer: Path, output: str) -> None:
    """`--post-process` leaves spaces around separators."""
    arguments = generate_arguments(corpus, linformer, *TASK, "--post-process", "subword_nmt")
    for _, text in hypotheses(run("generate", *arguments).ok()).values():
        sentences = text.split(" <sep> ")
        assert not any("@@" in sentence or "<sep>" in sentence for sentence in sentences)
        assert all(sentence.endswith("SEE THEM .") for sentence in sentences)


def test_interactive_and_python_say_what_generate_says(corpus: Path, checkpoint: Path, output: str) -> None:
    """Both take text as it is written; documents of all lengths are in one batch."""
    sources, expected = lines(corpus, "test.raw.en"), detokenised(output)
    spoken = interactive(corpus, checkpoint, "\n".join(sources), "--buffer-size", 20, "--batch-size", 20).ok()
    assert detokenised(spoken) == expected
    model = hub(corpus, checkpoint)
    for number in (0, 10):
        sentences = sources[number].split(" <sep> ")
        assert model.translate_document(sentences, beam=4, max_len_b=30) == expected[number].split(" <sep> ")
    assert model.translate(sources[:3], beam=4, max_len_b=30) == [expected[number] for number in range(3)]
    assert model.translate_document([]) == []


def hub(corpus: Path, checkpoint: Path, **flags: object) -> DocumentHubInterface:
    """Returns the Python interface to a checkpoint of our model or of fairseq's."""
    codes = str(corpus / "codes")
    flags = {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_codes": codes, **plain_encoder(), **flags}
    place = (str(checkpoint.parent), checkpoint.name, str(corpus / "bin"))
    if "linformer" in checkpoint.parent.name:
        return LinformerTransformerModel.from_pretrained(*place, **flags)
    return DocumentHubInterface.from_hub(TransformerModel.from_pretrained(*place, **flags))


def test_python_refuses_what_is_no_document(corpus: Path, linformer: Path) -> None:
    model = hub(corpus, linformer)
    for sentences, refusal in (
        (["W1.", " "], "sentence 2 is empty"),
        (["W1 <sep> W2."], "sentence 1 holds <sep>"),
        ("W1.", "put the string into a list"),
        (["w1.", "w1 " * 70], r"sentence 2 of document 0 \(.* has 140 subwords, and the model takes 63"),
    ):
        with pytest.raises(ValueError, match=refusal):
            model.translate_document(sentences)


@reads_checkpoints
def test_checkpoints_of_other_tasks(corpus: Path, linformer: Path, tmp_path: Path) -> None:
    """A checkpoint of `translation` translates documents once it is told to, if its dictionary has the separator."""
    state = torch.load(linformer, weights_only=True)
    state["cfg"]["task"]["_name"] = "translation"
    for flag in ("sentence_separator", "sentence_count", "no_split_documents"):
        del state["cfg"]["task"][flag]
    (tmp_path / "linformer").mkdir()
    plain = tmp_path / "linformer" / "checkpoint_best.pt"
    torch.save(state, plain)
    with pytest.raises(ValueError, match="not of --task document_translation"):
        hub(corpus, plain).translate_document(["w1."])
    expected = hub(corpus, linformer).translate_document(["w1 see them."] * 3)
    task = "document_translation"
    assert hub(corpus, plain, task=task).translate_document(["w1 see them."] * 3) == expected
    free = hub(corpus, plain, task=task, sentence_count="free")
    assert free.task.cfg.sentence_count == "free"
    fairseq = TransformerModel.from_pretrained(*map(str, (plain.parent, plain.name, corpus / "bin")))
    assert len(DocumentHubInterface.from_hub(fairseq, task).translate_document(["w@@ 1 see them ."] * 3)) == 3
    with pytest.raises(ValueError, match="source dictionary has no word '<doc>'"):
        hub(corpus, plain, task=task, sentence_separator="<doc>")


@only_linformer
@reads_checkpoints
def test_a_checkpoint_of_another_dictionary_is_refused(corpus: Path, checkpoint: Path, tmp_path: Path) -> None:
    """As one is that was trained without the separator."""
    state = torch.load(checkpoint, weights_only=True)
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        if name in state["model"]:
            state["model"][name] = state["model"][name][:-1].clone()
    torch.save(state, tmp_path / "smaller.pt")
    words = len(state["model"]["encoder.embed_tokens.weight"])
    said = run("generate", *generate_arguments(corpus, tmp_path / "smaller.pt", *TASK)).sentence()
    sizes = f"has {words + 1} words, and the checkpoint was trained with {words}"
    assert said.startswith(f"error: the encoder's dictionary {sizes}: name the data of its training")


def test_a_hub_interface_takes_flags_of_its_task(corpus: Path, linformer: Path) -> None:
    model = hub(corpus, linformer)
    assert DocumentHubInterface.from_hub(model).task.cfg.sentence_count == "forced"
    assert DocumentHubInterface.from_hub(model, sentence_count="free").task.cfg.sentence_count == "free"
    for task in (None, "document_translation"):
        with pytest.raises(ValueError, match="document_translation has no flag sentence_cout"):
            DocumentHubInterface.from_hub(model, task, sentence_cout="free")
    # the second is a task of fairseq's without a dataclass
    for task in ("document_translatoin", "translation_from_pretrained_bart"):
        with pytest.raises(ValueError, match=f"no task {task} with flags to set"):
            DocumentHubInterface.from_hub(model, task)


def test_a_document_that_may_not_be_made_in_parts_is_not_cut_off(corpus: Path, linformer: Path) -> None:
    whole = DocumentHubInterface.from_hub(hub(corpus, linformer), no_split_documents=True)
    with pytest.raises(ValueError, match="longer than the longest target"):
        whole.translate_document(["w1 see them."] * 5, min_len=20)


@only_linformer
def test_losses(corpus: Path, checkpoint: Path) -> None:
    """BLEU is that of detokenised documents; fairseq-validate finds the loss of the training."""
    log = (checkpoint.parent / "log").read_text()
    assert float(re.findall(r"\| bleu ([\d.]+)", log)[-1]) > 30
    arguments = [*override_flags(), *validate_arguments(corpus, checkpoint)]
    (loss,) = valid_losses(run("validate", *arguments).ok())
    assert loss == pytest.approx(min(valid_losses(log)), abs=0.002)
    long = [*arguments[:-1], "test"]
    assert f"or its translation is longer than the {LONGEST} source and" in run("validate", *long).sentence()


def test_the_model_says_how_long_a_document_may_be(corpus: Path, transformer: Path) -> None:
    """Here 2,048 tokens, above fairseq's default of `--max-source-positions`, unless a flag says less."""
    text = " <sep> ".join(["w1 see them."] * 200)
    positions = {"max_source_positions": 2048, "max_target_positions": 2048}
    flags = ["--model-overrides", str(positions), "--no-split-documents", "--max-len-b", 1, "--beam", 1]
    translated = detokenised(interactive(corpus, transformer, text, *flags).ok())[0]
    assert translated.count("<sep>") == 199
    refused = interactive(corpus, transformer, text, *flags, "--max-source-positions", 512).sentence()
    assert "has 1,200 tokens, and the model takes 512: leave out --no-split-documents" in refused


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        (["--no-split-documents"], 'document 8 ("w@@'),
        (["--sampling", "--nbest", 4], "give --sentence-count free"),
    ],
)
def test_refusals(corpus: Path, linformer: Path, flags: list[object], refusal: str) -> None:
    """In one sentence, before anything is translated."""
    result = run("generate", *generate_arguments(corpus, linformer, *TASK, *flags))
    assert refusal in result.sentence()
    assert not hypotheses(result.output)


def documented_training(corpus: Path, save_dir: Path, *more: object) -> Result:
    """Runs the training that the documentation has, of a model that is small enough for a test."""
    sizes = ("layers", 1), ("embed-dim", 32), ("ffn-embed-dim", 32), ("attention-heads", 2)
    small = [word for name, size in sizes for side in ("encoder", "decoder") for word in (f"--{side}-{name}", size)]
    quick = ["--lr", 0.003, "--lr-scheduler", "fixed", "--warmup-updates", 1, "--max-tokens", 2000, "--cpu"]
    quick += ["--save-dir", save_dir, "--num-workers", 0, "--no-progress-bar", "--no-epoch-checkpoints"]
    return run_documented(PAGE, "fairseq-train", {"DATA": corpus / "bin"}, *small, *quick, *more)


def test_a_documented_training_translates_with_more_windows(corpus: Path, tmp_path: Path) -> None:
    losses = valid_losses(documented_training(corpus, tmp_path, "--max-epoch", 3).ok())
    assert losses[-1] < losses[0]
    flags = [*search(tmp_path / "checkpoint_best.pt"), "--beam", 1, "--max-len-b", 5]
    found = hypotheses(
        run_documented(PAGE, "fairseq-generate --model-overrides", {"DATA": corpus / "bin"}, *flags).ok()
    )
    assert found.keys() == set(range(len(lines(corpus, "test.bpe.en"))))


def test_documents_that_are_longer_than_the_model(corpus: Path, tmp_path: Path) -> None:
    """Those of a training set are left out with a warning; one of a validation set is named, unless told otherwise."""
    too_long = [number for number, line in enumerate(lines(corpus, "test.bpe.en")) if len(line.split()) >= LONGEST]
    flags = ["--train-subset", "test", "--valid-subset", "test", "--max-update", 1]
    flags += ["--max-source-positions", LONGEST, "--max-target-positions", LONGEST]
    warning = f"{len(too_long)} samples have invalid sizes and will be skipped"
    refused = documented_training(corpus, tmp_path, *flags)
    assert warning in refused.output
    told = re.escape(f"or its translation is longer than the {LONGEST} source and {LONGEST} target tokens")
    assert re.match(rf'error: document {too_long[0]} \("w.*"\) {told}', refused.sentence())
    skipping = "--skip-invalid-size-inputs-valid-test"
    assert "done training" in documented_training(corpus, tmp_path, *flags, skipping).ok()


def test_training_needs_the_separator(data: Path, tmp_path: Path) -> None:
    assert "the source dictionary has no word '<sep>'" in train(data, tmp_path, *TASK).sentence()
