"""examples/documents: made documents, examples of several resolutions, scores, and the way from text to scores."""

import gzip
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fairseq.data import Dictionary, data_utils
from sacrebleu.metrics import BLEU, CHRF

from tests.conftest import Shared
from tests.examples.recipes import EXAMPLES, SMALL, refused, run

FOLDER = EXAMPLES / "documents"
MADE, EXAMPLE, SCORE = (
    runpy.run_path(str(FOLDER / name)) for name in ("make_documents.py", "make_examples.py", "score.py")
)
SIZES = ("--train", "24", "--valid", "2", "--test", "3", "--longest", "12")
SIZE = " ".join([*SMALL, "--max-source-positions", "256", "--max-target-positions", "256"])


def python(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, FOLDER / script, *map(str, arguments)], capture_output=True, text=True)


def documents(path: Path) -> list[list[str]]:
    return [document.splitlines() for document in path.read_text(encoding="utf-8").split("\n\n")]


# made documents


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with space") / "made"
    assert python("make_documents.py", folder, *SIZES).returncode == 0
    return folder


def test_a_name_is_what_its_glossary_says_everywhere_in_its_document(made: Path) -> None:
    names, told = set(MADE["NAMES"]), set(MADE["TRANSLATIONS"])
    glossaries = []
    for split in ("train", "valid", "test"):
        for english, german in zip(*(documents(made / f"{split}.{lang}") for lang in ("en", "de")), strict=True):
            expected = [str(number) for number in range(1, len(english) + 1)]
            assert [line.split()[0] for line in english] == [line.split()[0] for line in german] == expected
            glossary = dict(line.split(maxsplit=1)[1].split(" = ") for line in english if " = " in line)
            count = len(glossary)
            assert count == len(set(glossary.values())) == min(6, len(english) // 2)
            assert english[:count] == german[:count]
            for source, target in zip(english[count:], german[count:], strict=True):
                found = [word for word in re.findall(r"\w+", source) if word in names]
                assert [glossary[name] for name in found] == [w for w in re.findall(r"\w+", target) if w in told]
            glossaries.append(tuple(glossary.values())[:2])
    assert len(set(glossaries)) > 20  # drawn anew for each document


def test_sizes_are_those_asked_for_and_the_longest_is_halved_for_training(made: Path) -> None:
    sizes = {split: [len(own) for own in documents(made / f"{split}.en")] for split in ("train", "valid", "test")}
    assert len(sizes["train"]) == 24
    assert set(sizes["train"]) == {12, 6}
    assert (sizes["valid"], sizes["test"]) == ([12] * 2, [12] * 3)


def test_names_come_again_far_later_in_the_test_set() -> None:
    test = MADE["make"](1, {"test": 20}, 80)["test"]
    distances = [mention.distance for mention in SCORE["mentions"]([[en for en, _ in own] for own in test])]
    assert sum(distance > 256 for distance in distances) > 30


def test_the_seed_decides_the_documents_and_what_is_there_stays(made: Path, tmp_path: Path) -> None:
    assert python("make_documents.py", made, *SIZES).returncode == 0
    done = python("make_documents.py", made, *SIZES, "--seed", 2)
    assert done.stderr == f"error: {made} holds something else: name a new folder\n"
    assert done.returncode == 2
    assert python("make_documents.py", tmp_path / "b", *SIZES, "--seed", 2).returncode == 0
    assert (tmp_path / "b/test.en").read_bytes() != (made / "test.en").read_bytes()
    done = python("make_documents.py", tmp_path / "c", "--longest", 4)
    assert done.stderr == "error: --longest 4 is fewer than the 5 sentences of the shortest documents\n"
    done = python("make_documents.py", tmp_path / "c", "--train", "0")
    assert done.stderr == "error: --train 0 is not a whole number from 1 to 999999\n"
    assert not (tmp_path / "c").exists()


# training examples

DOCUMENT = [("a b", "A"), ("c", "C C C"), ("d", "D"), ("e", "E")]


def test_a_document_is_cut_between_sentences() -> None:
    cut = EXAMPLE["cut"]
    assert [*cut(DOCUMENT, 99)] == [("a b <sep> c <sep> d <sep> e", "A <sep> C C C <sep> D <sep> E")]
    assert [*cut(DOCUMENT, 99, 3)] == [("a b <sep> c <sep> d", "A <sep> C C C <sep> D"), ("e", "E")]
    # the longer side counts, and one separator or end a sentence: 3 + 4 + 2 + 2 tokens
    assert [len(source.split("<sep>")) for source, _ in cut(DOCUMENT, 7)] == [2, 2]
    assert [len(source.split("<sep>")) for source, _ in cut(DOCUMENT, 6)] == [1, 2, 1]


def test_no_part_of_a_document_is_there_twice() -> None:
    lines = EXAMPLE["examples"]([DOCUMENT, DOCUMENT[:2]], 99, [1, 2, None])
    assert [source for source, _ in lines] == [
        *("a b", "c", "d", "e", "a b <sep> c", "d <sep> e", "a b <sep> c <sep> d <sep> e"),
        *("a b", "c", "a b <sep> c"),
    ]


def test_a_sentence_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        for lang in ("en", "de"):
            (tmp_path / f"{split}.{lang}").write_text("one two\n\nthree\n")
    (tmp_path / "valid.de").write_text("eins zwei\n\ndrei vier fünf\n")
    done = python("make_examples.py", tmp_path, tmp_path, "en", "de", 3, "1", "1")
    assert done.returncode == 2
    assert done.stderr == (
        "error: line 3 of valid has 4 subwords, its end included, more than the 3 of an example: split it up, or raise "
        "MAX_TOKENS.\n"
    )


# scores


def scores(hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the scores of documents whose sentences are divided by bars."""
    sides = [[line.split("|") for line in side] for side in (hypotheses, references, sources or references)]
    return SCORE["score"](*sides, "de")


def test_a_perfect_translation_has_all_points() -> None:
    found = scores(
        ["1 eins zwei drei vier|2 fünf sechs sieben acht"], ["1 eins zwei drei vier|2 fünf sechs sieben acht"]
    )
    assert {name: round(value, 6) for name, value in found.items() if name != "signatures"} == {
        **{"d-BLEU": 100, "chrF": 100, "s-BLEU": 100, "d-BLEU, 1-512 tokens": 100},
        **{"out of place, %": 0, "missing, %": 0},
    }


def test_sentences_are_known_by_their_numbers() -> None:
    """The second is missing, the third stands in its place and the fourth comes last but one; an empty one is there."""
    reference = "1 eins zwei drei|2 fünf sechs sieben|3 acht neun zehn|4 elf zwölf dreizehn"
    found = scores(["1 eins zwei drei|3 acht neun zehn|4 elf zwölf dreizehn|"], [reference])
    assert (found["missing, %"], found["out of place, %"]) == (25, 50)
    left, right = found["d-BLEU"], found["s-BLEU"]
    assert left > right  # a document hides what stands in the wrong place
    hypotheses = ["1 eins zwei drei", "3 acht neun zehn", "4 elf zwölf dreizehn", ""]
    assert right == BLEU(trg_lang="de").corpus_score(hypotheses, [reference.split("|")]).score
    assert left == BLEU(trg_lang="de").corpus_score([" ".join(hypotheses)], [[reference.replace("|", " ")]]).score
    assert "s-BLEU" not in scores(["1 eins zwei drei"], [reference])
    assert scores(["2 fünf|1 eins"], ["1 eins|2 fünf"])["out of place, %"] == 100


def test_without_numbers_sentences_are_counted() -> None:
    found = scores(["eins||zwei", "drei vier"], ["eins|zwei|drei", "vier|fünf"])
    assert found["missing, %"] == 40
    assert "out of place, %" not in found
    assert "s-BLEU" not in found


def test_documents_are_scored_by_the_length_of_their_source() -> None:
    sources = ["x " * 511 + "x", "x " * 300 + "x|" + "x " * 300 + "x"]  # 513 and 604 tokens with their ends
    found = scores(
        ["ein Wort ist hier", "falsch"], ["ein Wort ist hier", "zwei Worte sind da"], [sources[0][2:], sources[1]]
    )
    assert [name for name in found if name.startswith("d-BLEU,")] == ["d-BLEU, 1-512 tokens", "d-BLEU, 513-1024 tokens"]
    assert round(found["d-BLEU, 1-512 tokens"]) == 100
    assert found["d-BLEU, 513-1024 tokens"] < 1


def test_names_are_looked_for_in_their_sentence_and_by_their_distance() -> None:
    filler = " ".join(["x"] * 67)
    source = (
        f"1 Bel@@ kor = Ama|2 Dordan = Eli|3 Dordan sees|4 {filler}|5 Belkor sees Bel@@ kor|6 {filler}|7 Belkor sees"
    )
    reference = "1 Belkor = Ama|2 Dordan = Eli|3 Eli sieht|4 x|5 Ama sieht Ama|6 x|7 Ama sieht"
    # Dordan 5 tokens after its line; Belkor 6 + 5 + 4 + 69 after its line, and then 5 + 1 + 69 after that
    distances = [mention.distance for mention in SCORE["mentions"]([source.split("|")])]
    assert distances == [5, 84, 75]
    perfect = scores([reference], [reference], [source])
    assert perfect["names right, 1-64 tokens, %"] == perfect["names right, 65-256 tokens, %"] == 100
    assert perfect["any name of the glossary, %"] == 50
    # sentence 7 is elsewhere and right; 5 has another name; sentence 3 is missing, though its name stands elsewhere
    moved = "1 Belkor = Ama|2 Dordan = Eli|7 Ama sieht|4 Eli|5 Eli sieht|6 x|8 x"
    found = scores([moved], [reference], [source])
    assert found["names right, 1-64 tokens, %"] == 0
    assert found["names right, 65-256 tokens, %"] == 50


def test_names_are_kept_where_both_sides_have_them() -> None:
    """In the translation of their sentence, wherever it stands; its first word has a capital anyway."""
    source = "1 Da@@ vid saw David and Émile|2 It calls array _ map or PHP in Egypt|3 &quot; In Rome &quot;"
    reference = "1 David sah David und Émile|2 Es ruft array_map oder PHP in Ägypten|3 „In Rom“"
    kept = scores([reference], [reference], [source])
    assert kept["names kept, %"] == 100  # David, Émile, array_map, PHP
    found = scores(["2 Es ruft array _ map|1 Davids PHP und Émile"], [reference], [source])
    assert found["names kept, %"] == 50  # array_map and Émile
    assert "names kept, %" not in scores(["1 ein"], ["1 ein"], ["1 a"])
    assert scores(["1 a PHP"], ["1 a PHP|2 b"], ["1 a PHP"])["names kept, %"] == 100


# from text to scores


def write_documents(folder: Path) -> Path:
    """Writes three documents of 5, 1 and 3 sentences for each set, and returns their folder."""
    folder.mkdir()
    for split in ("train", "valid", "test"):
        for lang, word in (("en", "one"), ("de", "ein's")):
            sizes = {0: 5, 1: 1, 2: 3}
            text = "\n".join("".join(f"{word} line, {d}-{s}.\n" for s in range(n)) for d, n in sizes.items())
            (folder / f"{split}.{lang}").write_text(text)
    return folder


def lines(out: Path, subset: str, lang: str) -> list[str]:
    """Returns the text that is in the binary data, without BPE."""
    words = Dictionary.load(str(out / "bin" / f"dict.{lang}.txt"))
    found = data_utils.load_indexed_dataset(str(out / "bin" / f"{subset}.en-de.{lang}"), words)
    return [words.string(found[i], "@@ ") for i in range(len(found))]


@pytest.mark.slow
def test_text_becomes_examples_and_a_stopped_call_goes_on(tmp_path: Path) -> None:
    text, out = write_documents(tmp_path / "a text"), tmp_path / "out"
    (text / "valid.en.gz").write_bytes(gzip.compress((text / "valid.en").read_bytes()))
    (text / "valid.en").unlink()
    (text / "train.de").write_text("\ufeff" + (text / "train.de").read_text().replace("\n", "\r\n"))
    given = {"RESOLUTIONS": "2", "SHORT": "1", "MAX_TOKENS": "64"}
    run(FOLDER / "prepare.sh", "out", text, cwd=tmp_path, **given).ok()
    sizes = {
        subset: [line.count("<sep>") + 1 for line in lines(out, subset, "de")]
        for subset in ("train", "short", "valid", "test")
    }
    limit = max(sizes["valid"])  # what fits into 64 tokens
    assert sizes["test"] == [5, 1, 3]
    assert sum(sizes["valid"]) == 9
    assert limit > 1
    assert sizes["short"] == [1] * 9
    assert [size for size in sizes["train"] if size <= 2][:3] == [2, 2, 1]
    assert lines(out, "test", "en")[2] == " <sep> ".join(f"one line , 2 @-@ {n} ." for n in range(3))
    assert (out / "reference.de").read_text().splitlines()[2] == "ein's line, 2-0.\tein's line, 2-1.\tein's line, 2-2."
    whole = {path.name: path.read_bytes() for path in (out / "bin").glob("*.bin")}
    shutil.rmtree(out / "bin")
    shutil.rmtree(out / "prepared/examples")
    (out / "prepared/examples.part").mkdir()
    (out / "prepared/examples.part/train.en").write_text("half")
    said = run(FOLDER / "prepare.sh", "out", text, cwd=tmp_path, **given).ok()
    assert "tokenising" not in said
    assert {path.name: path.read_bytes() for path in (out / "bin").glob("*.bin")} == whole
    assert "bin: already prepared" in run(FOLDER / "prepare.sh", "out", text, cwd=tmp_path, **given).ok()
    sentence = refused(FOLDER / "prepare.sh", "out", text, cwd=tmp_path, **{**given, "RESOLUTIONS": "2 4"})
    assert "> --resolutions '2 4'" in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("test.de", "eins\n", "test.en has 11 lines but test.de 1: line n of one must translate line n of the other."),
        ("valid.en", "a\nb\n\nc\nd\ne\n\nf\ng\nh\ni\n", "line 3 of valid is empty in one language alone"),
        ("train.de", "gut\nschlecht \xff\n", "train.de is not UTF-8 text: line 2 cannot be read."),
        ("test.en", "\n \n", "test.en is empty: give it a sentence a line"),
        ("train.en", "a\n<sep> b\n", "line 2 of * has <sep>, which is to stand between sentences"),
        ("train.*", "a\nb\n", "train.en is a single document: put an empty line between two documents."),
        ("valid.*", "a\n\u200b\x01\nb\n", "has nothing but control characters: remove it in both languages."),
        ("valid.de", None, "valid.de is missing, and so is valid.de.gz"),
    ],
)
def test_bad_text_is_refused_in_one_sentence(tmp_path: Path, name: str, content: str | None, sentence: str) -> None:
    text = write_documents(tmp_path / "text")
    for path in text.glob(name):
        path.unlink()
        if content is not None:
            path.write_bytes(content.encode("latin-1" if "\xff" in content else "utf-8"))
    said = refused(FOLDER / "prepare.sh", tmp_path / "out", text, cwd=tmp_path)
    assert all(part in said for part in sentence.split("*"))
    assert not (tmp_path / "out/bin").exists()


def check(study: str, text: Path, cwd: Path) -> None:
    """Prepares a text as a study has it, and lets fairseq parse the flags and build the model of each arm."""
    command = (
        "doit",
        "-f",
        EXAMPLES / "studies/dodo.py",
        "check",
        f"study={FOLDER / study}",
        f"text={text}",
        "out=out",
    )
    run(*command, cwd=cwd).ok()
    assert (cwd / "out/bin").is_dir()


@pytest.mark.slow
def test_the_study_of_ones_own_documents_has_flags_that_its_models_take(tmp_path: Path) -> None:
    check("documents.yaml", write_documents(tmp_path / "text"), tmp_path)


@pytest.fixture(scope="session")
def evaluated(shared: Shared) -> Path:
    """Returns a folder with made documents, prepared as for the quick form, and a model of four updates in `run`."""

    def make(folder: Path) -> None:
        assert python("make_documents.py", folder / "text", *SIZES).returncode == 0
        check("quick.yaml", folder / "text", folder)
        flags = ["--task", "document_translation", *SIZE.split(), "--linformer-value-convolution", 3]
        flags += ["--max-update", 4, "--save-interval-updates", 4, "--train-subset", "short"]
        flags += ["--linformer-exact-below", 0]
        run("train.sh", "out/bin", "run", "two_level_transformer", *flags, cwd=folder).ok()
        arguments = ("out/bin", "run", "out/reference.de", "--max-len-a", 0, "--max-len-b", 5)
        run(FOLDER / "evaluate.sh", *arguments, cwd=folder, AVERAGE="1").ok()

    return shared("evaluated documents", make)


@pytest.mark.slow
def test_the_way_from_text_to_scores(evaluated: Path) -> None:
    found = json.loads((evaluated / "run/scores.json").read_text())
    hypotheses, references = (
        path.read_text().split("\n")[:-1] for path in (evaluated / "run/test.de", evaluated / "out/reference.de")
    )
    assert [line.count("\t") for line in hypotheses] == [line.count("\t") for line in references] == [11] * 3
    # to sacreBLEU a tab is a space: these files are what it takes
    assert found["d-BLEU"] == round(BLEU(trg_lang="de", force=True).corpus_score(hypotheses, [references]).score, 2)
    assert found["chrF"] == round(CHRF().corpus_score(hypotheses, [references]).score, 2)
    assert found["any name of the glossary, %"] == 16.67
    validated = (evaluated / "run/validate.log").read_text()
    assert f'"valid_ppl": "{found["perplexity"]:g}"' in validated
    assert {"s-BLEU", "missing, %", "out of place, %", "translation, s", "tokens/s", "signatures"} <= found.keys()


@pytest.mark.slow
def test_documents_are_translated_in_parts_of_several_sizes(evaluated: Path, tmp_path: Path) -> None:
    """With the larger ones, documents are whole."""
    shutil.copytree(evaluated / "run", tmp_path / "run")
    (tmp_path / "run/scores.json").unlink()
    arguments = (evaluated / "out/bin", "run", evaluated / "out/reference.de", "--max-len-a", 0, "--max-len-b", 5)
    run(FOLDER / "evaluate.sh", *arguments, cwd=tmp_path, AVERAGE="1", PARTS="64 256").ok()
    whole, found = (json.loads((folder / "run/scores.json").read_text()) for folder in (evaluated, tmp_path))
    assert {"64: d-BLEU", "64: tokens/s"} <= found.keys()
    assert all(found[name] == whole[name] for name in ("perplexity", "signatures"))
    assert all(found[f"256: {name}"] == whole[name] for name in ("d-BLEU", "chrF", "missing, %"))


@pytest.mark.slow
def test_an_evaluation_is_not_repeated_and_other_flags_are_refused(evaluated: Path, tmp_path: Path) -> None:
    arguments = ("out/bin", "run", "out/reference.de", "--max-len-a", 0, "--max-len-b", 5)
    said = run(FOLDER / "evaluate.sh", *arguments, cwd=evaluated, AVERAGE="1").ok()
    assert said == f"{evaluated / 'run'}: already evaluated\n"
    sentence = refused(FOLDER / "evaluate.sh", *arguments, "--part-tokens", 64, cwd=evaluated, AVERAGE="1")
    assert "> --part-tokens 64;" in sentence
    sentence = refused(FOLDER / "evaluate.sh", "out/bin", "no", "out/reference.de", cwd=evaluated)
    assert sentence.endswith("train the model first (train.sh).")
