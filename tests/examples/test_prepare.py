"""examples/wmt14_en_de/prepare.sh: raw text to binary data, and what it refuses."""

import fcntl
import gzip
import re
import shutil
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

from tests.examples.mirror import build_mirror, marked, training
from tests.examples.recipes import refused, run, write_text

pytestmark = pytest.mark.slow


def sentences(out: Path, split: str, lang: str) -> list[str]:
    """Returns the text that is in the binary data, without BPE."""
    words = Dictionary.load(str(out / "bin" / f"dict.{lang}.txt"))
    found = data_utils.load_indexed_dataset(str(out / "bin" / f"{split}.en-de.{lang}"), words)
    return [words.string(found[i], "@@ ") for i in range(len(found))]


def prepared_files(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()} - {".lock"}


def test_text_becomes_binary_data_and_a_reference(tmp_path: Path) -> None:
    """Byte order marks and control characters go, and training pairs that are empty or unequal."""
    text = write_text(tmp_path / "a text")
    english, german = (text / f"train.{lang}" for lang in ("en", "de"))
    more = [("one two " * 9, "eins zwei"), ("", "leer"), ("a\u200bb\tc „d“", 'ab\rc "d"'), ("one two", "one two")]
    english.write_bytes(b"\xef\xbb\xbf" + english.read_bytes() + "".join(e + "\r\n" for e, _ in more).encode())
    german.write_text(german.read_text() + "".join(d + "\n" for _, d in more)[:-1], newline="")
    with gzip.open(text / "test.de.gz", "wb") as file:
        file.write((text / "test.de").read_bytes())
    reference = (text / "test.de").read_text()
    (text / "test.de").unlink()
    said = run("prepare.sh", "out", text, cwd=tmp_path).ok()
    out = tmp_path / "out"
    assert prepared_files(out) == {"bin", "prepared", "reference.de", "settings"}
    assert (out / "reference.de").read_text() == reference
    kept = sentences(out, "train", "en")
    assert len(kept) == 242
    assert kept[-2:] == ["ab c &quot; d &quot;", "one two"]
    assert sentences(out, "train", "de")[-2:] == kept[-2:]
    assert "left out 2 pairs" in said
    assert len(sentences(out, "test", "de")) == 20
    # subwords are learnt from both languages together, and hyphens stand alone
    assert (out / "bin/dict.en.txt").read_bytes() == (out / "bin/dict.de.txt").read_bytes()
    assert any("@-@" in line for line in kept)
    assert run("prepare.sh", out, text, cwd=tmp_path).ok().endswith("bin: already prepared\n")


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Half-made folders are made again, and whole ones are taken as they are."""
    text, out = write_text(tmp_path / "text"), tmp_path / "out"
    run("prepare.sh", out, text, cwd=tmp_path).ok()
    whole = {path.name: path.read_bytes() for path in (out / "bin").glob("*.bin")}
    shutil.rmtree(out / "bin")
    shutil.rmtree(out / "prepared/bpe")
    (out / "bin.part").mkdir()
    (out / "prepared/bpe.part").mkdir()
    (out / "prepared/bpe.part/codes").write_text("half")
    said = run("prepare.sh", out, text, cwd=tmp_path).ok()
    assert "BPE" in said
    assert "tokenising" not in said
    assert {path.name: path.read_bytes() for path in (out / "bin").glob("*.bin")} == whole


def broken(text: Path, what: str) -> str:
    """Breaks a text, and returns what the refusal says."""
    if what == "no folder":
        shutil.rmtree(text)
        return "text is missing: name a folder"
    if what == "a missing side":
        (text / "valid.de").unlink()
        return "valid.de is missing, and so is valid.de.gz"
    if what == "unequal":
        (text / "test.en").write_text("one\ntwo\n")
        return "test.en has 2 lines but test.de 20"
    if what == "not UTF-8":
        (text / "train.de").write_bytes(b"gut\nschlecht \xff\n")
        return "train.de is not UTF-8 text: line 2 cannot be read"
    if what == "empty":
        for lang in ("en", "de"):
            (text / f"valid.{lang}").write_text("\n \n")
        return "valid.en is empty"
    assert what == "cut short"
    whole = gzip.compress((text / "train.en").read_bytes())
    (text / "train.en.gz").write_bytes(whole[:-9])
    (text / "train.en").unlink()
    return "train.en.gz cannot be read, or is no whole gzip file"


@pytest.mark.parametrize("what", ["no folder", "a missing side", "unequal", "not UTF-8", "empty", "cut short"])
def test_bad_text_is_refused_in_one_sentence(tmp_path: Path, what: str) -> None:
    text = write_text(tmp_path / "text")
    expected = broken(text, what)
    assert expected in refused("prepare.sh", tmp_path / "out", text, cwd=tmp_path)
    assert not (tmp_path / "out/bin").exists()
    if what == "not UTF-8":  # once it is right, the same command goes on
        write_text(text)
        run("prepare.sh", tmp_path / "out", text, cwd=tmp_path).ok()


def test_other_text_and_settings_are_refused_once_it_is_prepared(tmp_path: Path, study: Path) -> None:
    out, text = study / "study", study / "made text"
    assert "< --merges 60 > --merges 50" in refused("prepare.sh", out, text, cwd=tmp_path, BPE_MERGES="50")
    other = write_text(tmp_path / "other", train=100)
    sentence = refused("prepare.sh", out, other, cwd=tmp_path)
    assert f"{other} < --sha256" in sentence
    assert sentence.endswith("go on with those, or name another OUT.")


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with open(out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sentence = refused("prepare.sh", out, write_text(tmp_path / "text"), cwd=tmp_path)
    assert "is in use: another call is preparing there" in sentence
    assert sentence.endswith("wait until they end.")


def test_a_full_disk_is_an_error_and_it_goes_on_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    text, ballast = write_text(tmp_path / "text"), small_disk / "ballast"
    ballast.write_bytes(bytes(440 << 10))
    result = run("prepare.sh", small_disk / "out", text, cwd=tmp_path)
    assert result.status == 1
    assert f"failed because the disk of {small_disk / 'out'} is full" in result.output.splitlines()[-1]
    assert not (small_disk / "out/bin").exists()
    ballast.unlink()
    run("prepare.sh", small_disk / "out", text, cwd=tmp_path).ok()
    assert len(sentences(small_disk / "out", "train", "de")) == 240


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """The archives of WMT14 with a little text, a pair of which is not UTF-8."""
    corpora = training(150)
    corpora["commoncrawl"][3] = (b"broken \xff\xfe", "kaputt")
    build_mirror(tmp_path / "mirror", corpora, marked(1000, 12), marked(2000, 15))
    return tmp_path / "mirror"


def test_wmt14_from_a_mirror(tmp_path: Path, mirror: Path) -> None:
    """The test set is whole, and its reference as it came."""
    out, server = tmp_path / "out", f"file://{mirror}"
    (out / "orig").mkdir(parents=True)
    whole = (mirror / "wmt14/dev.tgz").read_bytes()
    (out / "orig/dev.tgz.part").write_bytes(whole[:20])  # a download that broke
    said = run("prepare.sh", out, cwd=tmp_path, WMT_BASE_URL=server, BPE_MERGES="500").ok()
    assert "left out 1 pairs that are not UTF-8" in said
    unequal = int(re.search(r"left out (\d+) pairs that are empty, too long or too unequal", said)[1])
    assert [len(sentences(out, split, "de")) for split in ("train", "valid", "test")] == [149 - unequal, 12, 15]
    assert (out / "reference.de").read_text() == "".join(german + "\n" for _, german in marked(2000, 15))
    assert (out / "orig/dev.tgz").read_bytes() == whole

    shutil.rmtree(out / "bin")
    shutil.rmtree(out / "prepared")
    (out / "orig/dev.tgz").write_bytes((mirror / "wmt14/test-full.tgz").read_bytes())
    sentence = refused("prepare.sh", out, cwd=tmp_path, WMT_BASE_URL=server, BPE_MERGES="500")
    assert "dev.tgz does not match its published or recorded SHA-256: remove it" in sentence


@pytest.mark.parametrize("fault", ["a web page", "cut short", "absent", "another text"])
def test_what_a_server_may_give_instead_of_an_archive(tmp_path: Path, mirror: Path, fault: str) -> None:
    archive = mirror / "wmt14/training-parallel-nc-v9.tgz"
    if fault == "a web page":
        archive.write_text("<!DOCTYPE html><title>Log in</title>")
    elif fault == "cut short":
        archive.write_bytes(archive.read_bytes()[:-30])
    elif fault == "absent":
        archive.unlink()
    else:
        build_mirror(mirror, {**training(150), "news-commentary": [("one", "eins"), ("two", "zwei")]}, [], [])
        (mirror / "wmt14/dev.tgz").write_bytes(archive.read_bytes())
    result = run("prepare.sh", tmp_path / "out", cwd=tmp_path, WMT_BASE_URL=f"file://{mirror}")
    sentence = result.sentence()
    if fault in ("a web page", "cut short"):
        assert result.status == 2
        assert "nc-v9.tgz is not a whole archive (a web page, cut short or damaged): run" in sentence
    elif fault == "absent":
        assert result.status == 2
        assert "nc-v9.tgz cannot be fetched: run the same command again" in sentence
    else:
        assert "collecting the text failed, see the lines above" in sentence
    assert not list((tmp_path / "out/orig").glob("*nc-v9.tgz")) or fault == "another text"


def test_wmt14_has_two_languages(tmp_path: Path) -> None:
    assert "not en and fr: name a TEXT" in refused("prepare.sh", tmp_path / "out", cwd=tmp_path, TGT="fr")
