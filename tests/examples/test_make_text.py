"""The quickstart's text: repeatable, its splits disjoint, written completely or not at all."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/quickstart/make_text.py"
SIZES = {"train": 1000, "valid": 40, "test": 60}
FLAGS = [word for split, size in SIZES.items() for word in (f"--{split}", str(size))]
FILES = sorted(f"{split}.{lang}" for split in SIZES for lang in ("en", "de"))


def make_text(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, args)], capture_output=True, text=True, check=False)


def read(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_bytes().decode("utf-8").splitlines() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("with space") / "text"
    assert make_text(made, *FLAGS).returncode == 0
    return made


def test_sizes_and_encoding(folder):
    text = read(folder)
    assert sorted(text) == FILES
    for split, size in SIZES.items():
        assert len(text[f"{split}.en"]) == len(text[f"{split}.de"]) == size
    assert any("ß" in line for line in text["train.de"])


def test_no_sentence_occurs_twice_on_either_side(folder):
    text = read(folder)
    for lang in ("en", "de"):
        lines = [line for split in SIZES for line in text[f"{split}.{lang}"]]
        assert len(set(lines)) == len(lines)


def test_sentences_are_written_as_sentences(folder):
    for line in (line for lines in read(folder).values() for line in lines):
        assert 3 < len(line.split()) < 60
        assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß]*([ ,] ?[A-Za-zÄÖÜäöüß]+)+\.", line)


def test_the_seed_decides_the_text(folder, tmp_path):
    assert make_text(tmp_path / "same", *FLAGS).returncode == 0
    assert read(tmp_path / "same") == read(folder)
    assert make_text(tmp_path / "other", *FLAGS, "--seed", 2).returncode == 0
    assert set(read(tmp_path / "other")["test.en"]) != set(read(folder)["test.en"])


def test_another_training_set_leaves_the_others_as_they_are(folder, tmp_path):
    assert make_text(tmp_path / "small", *FLAGS, "--train", 10).returncode == 0
    small, text = read(tmp_path / "small"), read(folder)
    assert {name for name in FILES if small[name] == text[name]} == {"test.de", "test.en", "valid.de", "valid.en"}


def test_words_are_unequally_frequent_and_translations_differ(folder):
    text = read(folder)
    women = [de for en, de in zip(text["train.en"], text["train.de"], strict=True) if " woman " in en]
    assert len(women) > len([en for en in text["train.en"] if " teacher " in en]) > 0
    assert any("Frau" in de for de in women)
    assert any("Dame" in de for de in women)


def test_every_word_that_a_verb_goes_with_is_known():
    grammar = runpy.run_path(str(SCRIPT))
    for verb in grammar["VERBS"]:
        assert verb.objects
        assert verb.places
        assert set(verb.objects) <= set(grammar["NOUNS"])
        assert set(verb.places) <= set(grammar["PREPOSITION"])


@pytest.mark.parametrize("flags", [("--seed", "one"), ("--train", "0"), ("--valid", "-3"), ("--test", "1.5")])
def test_a_bad_number_is_refused_in_one_sentence(tmp_path, flags):
    done = make_text(tmp_path / "text", *flags)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"error: {' '.join(flags)} is not a whole number from 1 to 999999999\n"
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(folder, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert make_text(folder, *FLAGS).returncode == 0
    done = make_text(folder, *FLAGS, "--seed", 2)
    assert done.returncode == 2
    assert done.stderr == f"error: {folder} holds something else: name a new folder\n"
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]
    file = tmp_path / "file"
    file.touch()
    done = make_text(file / "text", *FLAGS)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_killed_while_it_writes_it_leaves_no_text(folder, tmp_path):
    text = tmp_path / "text"
    code = (  # after the third of six files
        "import os, pathlib, runpy, signal, sys\n"
        "write_text, written = pathlib.Path.write_text, []\n"
        "def stop(path, *args, **kwargs):\n"
        "    written.append(write_text(path, *args, **kwargs))\n"
        "    if len(written) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "pathlib.Path.write_text = stop\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, SCRIPT, text, *FLAGS], check=False)
    assert done.returncode == -9
    assert not text.exists()
    assert make_text(text, *FLAGS).returncode == 0
    assert read(text) == read(folder)
