"""The text of WMT14: every pair of the archives is kept in order or counted, and bad archives end in one sentence."""

import hashlib
import json
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import wmt14
from linformer_fairseq.recipe.__main__ import main
from linformer_fairseq.recipe.download import fetch
from linformer_fairseq.recipe.prepare import corpus_facts
from linformer_fairseq.recipe.settings import NEWSTEST2013
from tests.recipe.dropping_server import serve
from tests.recipe.mirror import CORPORA, Pair, build_mirror

SPLITS = ("train", "valid", "test")
LANGS = ("en", "de")
ARCHIVES = [*(archive for archive, _ in CORPORA.values()), "wmt14/dev.tgz", "wmt14/test-full.tgz"]
WORDS = {"en": "the small dog sees an old well-known house", "de": "der kleine Hund sieht ein altes Haus"}


def sentence(number: int, lang: str) -> str:
    """Some words around a marker that names the pair."""
    words = random.Random(f"{number} {lang}").choices(WORDS[lang].split(), k=6)
    return " ".join([*words[:3], f"x{number}x", *words[3:]]) + "."


def marked(start: int, count: int) -> list[Pair]:
    return [(sentence(n, "en"), sentence(n, "de")) for n in range(start, start + count)]


def marker(line: str) -> str:
    """The number in a line, whatever tokens or subwords it has been cut into."""
    return re.search(r"x(\d+)x", line.replace("@@ ", "").replace(" ", ""))[1]


def training(count: int, start: int = 0) -> dict[str, list[Pair]]:
    each = count // len(CORPORA)
    return {corpus: marked(start + i * each, each) for i, corpus in enumerate(CORPORA)}


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's folder in which nothing is wrong."""
    folder = tmp_path_factory.mktemp("mirror")
    build_mirror(folder, training(300), marked(1000, 20), marked(2000, 12))
    return folder


@pytest.fixture
def broken(mirror: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(mirror, tmp_path / "broken"))


def arguments(server: str | Path, out: Path, *more: object) -> list[str]:
    base = server if isinstance(server, str) else server.as_uri()
    flags = "--wmt14 newstest2013 --bpe-merges 100 --threads 1 --normalise-punctuation --aggressive-hyphens"
    return ["prepare", "--server", base, "--out", str(out), *flags.split(), *map(str, more)]


def prepare(server: str | Path, out: Path, *more: object) -> None:
    assert main(arguments(server, out, *more)) == 0


def refuse(capfd: pytest.CaptureFixture[str], server: str | Path, out: Path, *more: object) -> str:
    """The one sentence that it ends with; nothing half-written is left under a name that counts."""
    capfd.readouterr()
    assert main(arguments(server, out, *more)) == 2
    error = capfd.readouterr().err
    assert "Traceback" not in error
    said = error.rpartition("error: ")[2]
    assert said.count("\n") == 1
    assert said.endswith(".\n")
    for step in ("raw", "tok", "bpe", "bin"):
        assert not (out / step).exists()
    return said


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("bpe", ["subword-nmt", "sentencepiece"])
def test_pairs_stay_pairs_and_every_test_line_stays(tmp_path: Path, bpe: str) -> None:
    """3,003 lines of test come out as 3,003, in their order; so do the pairs of the three corpora."""
    build_mirror(tmp_path / "mirror", training(300), marked(1000, 20), marked(2000, 3003))
    flags = ("--bpe", bpe, "--max-subwords", 250, "--max-ratio", 1.5)
    prepare(tmp_path / "mirror", tmp_path / "out", *flags, "--threads", 2)
    for step in ("raw", "tok", "bpe"):
        for split, numbers in (("valid", range(1000, 1020)), ("test", range(2000, 5003))):
            for lang in LANGS:
                found = [marker(line.replace("▁", "")) for line in lines(tmp_path / "out" / step / f"{split}.{lang}")]
                assert found == [str(number) for number in numbers]
        sides = [lines(tmp_path / "out" / step / f"train.{lang}") for lang in LANGS]
        pairs = [(marker(a.replace("▁", "")), marker(b.replace("▁", ""))) for a, b in zip(*sides, strict=True)]
        assert all(a == b for a, b in pairs)
        assert [int(a) for a, _ in pairs] == sorted({int(a) for a, _ in pairs})
        assert step == "bpe" or len(pairs) == 300
    log = (tmp_path / "out" / "preprocess.log").read_text(encoding="utf-8")
    assert "3003 sents" in log
    prepare(tmp_path / "mirror", tmp_path / "one", *flags, "--threads", 1)
    assert contents(tmp_path / "out" / "bin") == contents(tmp_path / "one" / "bin")
    assert "test.en-de.de.bin" in contents(tmp_path / "one" / "bin")


@pytest.mark.slow
def test_every_100th_line_validates(tmp_path: Path) -> None:
    """Every 100th of the training text, cleaned as that is: what cannot be learnt from cannot validate either."""
    text = training(600)
    text["europarl"][99] = ("", "Leer.")
    text["commoncrawl"][99] = ("a" * 100_000, "Eine lange Zeile.")
    text["news-commentary"][99] = ("word " * 300, "Wort " * 300)
    build_mirror(tmp_path / "mirror", text, marked(1000, 20), marked(2000, 12))
    out = tmp_path / "out"
    prepare(tmp_path / "mirror", out, "--wmt14", "every-100th", "--max-subwords", 250)
    assert [marker(line) for line in lines(out / "raw" / "valid.en")[:2]] == ["199", "399"]
    assert [marker(line) for line in lines(out / "bpe" / "valid.de")] == ["199", "399", "599"]
    train = [marker(line) for line in lines(out / "raw" / "train.de")]
    assert train == [str(n) for n in range(600) if n % 100 != 99]
    assert corpus_facts(out)["dropped"] == {
        "an empty side": 1,
        "more than 10,000 characters": 1,
        "more than 250 subwords": 1,
    }


@pytest.mark.slow
def test_what_cannot_be_learnt_from_is_left_out_and_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = training(300)
    text["europarl"][3] = ("", "Nichts.")
    text["europarl"][4] = (b"Caf\xe9 is not UTF-8 here.", "Kein UTF-8.")
    text["commoncrawl"][5] = ("a" * 100_000, "Eine lange Zeile.")
    text["commoncrawl"][6] = ("one " * 60 + "x0x", "zu kurz x0x")
    text["news-commentary"][7] = ("word " * 300, "Wort " * 300)
    text["news-commentary"][8] = ("A\x00 line\x85 with\u2028odd \u200bmarks\r and “quotes” – x1x", "Eine „Zeile“ x1x\r")
    build_mirror(tmp_path / "mirror", text, marked(1000, 20), marked(2000, 12))
    out = tmp_path / "out"
    prepare(tmp_path / "mirror", out, "--max-subwords", 250, "--max-ratio", 1.5)
    said = capfd.readouterr().out
    raw = json.loads((out / "raw" / "sizes.json").read_text(encoding="utf-8"))
    assert raw["dropped"] == {
        "an empty side": 1,
        "bytes that are not UTF-8": 1,
        "more than 10,000 characters": 1,
    }
    assert raw["train"] == 297
    for reason in raw["dropped"]:
        assert f"left out 1 pairs with {reason}" in said
    cut = json.loads((out / "bpe" / "subwords.json").read_text(encoding="utf-8"))
    assert cut["dropped"]["more than 250 subwords"] == 1
    assert cut["dropped"]["lengths more than 1.5 to 1"] >= 1
    assert cut["train"]["pairs"] == 297 - sum(cut["dropped"].values()) == len(lines(out / "bpe" / "train.de"))
    odd = [line for line in lines(out / "tok" / "train.en") if "marks" in line]
    assert odd == ["A line with odd marks and &quot; quotes &quot; - x1x"]


@pytest.mark.slow
def test_a_server_that_drops_connections_gives_the_same_text(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linformer_fairseq.recipe.download.PAUSE_SECONDS", 0.0)
    prepare(mirror, tmp_path / "undisturbed")
    with serve(mirror) as server:
        server.drops = {path: [500, 0, 900] for path in ARCHIVES}
        prepare(server.url, tmp_path / "dropped")
        asked = len(server.requests)
        assert asked >= 2 * len(ARCHIVES)
        prepare(server.url, tmp_path / "dropped")
        assert len(server.requests) == asked
    assert contents(tmp_path / "dropped" / "bin") == contents(tmp_path / "undisturbed" / "bin")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def truncate(mirror: Path) -> None:
    path = mirror / "wmt14" / "training-parallel-nc-v9.tgz"
    path.write_bytes(path.read_bytes()[:-300])


def write_html(mirror: Path) -> None:
    (mirror / "wmt14" / "dev.tgz").write_text("<!DOCTYPE html><html>Sign in</html>", encoding="utf-8")


def remove_archive(mirror: Path) -> None:
    (mirror / "wmt13" / "training-parallel-commoncrawl.tgz").unlink()


def repack(mirror: Path, path: str, change: Callable[[Path], None]) -> None:
    """Let `change` work on an archive's files."""
    files = mirror / "files"
    files.mkdir()
    subprocess.run(["tar", "-xzf", mirror / path, "-C", files], check=True)
    change(files)
    subprocess.run(["tar", "-czf", mirror / path, "-C", files, *(entry.name for entry in files.iterdir())], check=True)


def remove_language(mirror: Path) -> None:
    repack(mirror, ARCHIVES[0], lambda files: (files / "training" / "europarl-v7.de-en.de").unlink())


def remove_line(mirror: Path) -> None:
    def change(files: Path) -> None:
        path = files / "training" / "news-commentary-v9.de-en.de"
        path.write_text("".join(line + "\n" for line in lines(path)[:-1]), encoding="utf-8")

    repack(mirror, ARCHIVES[2], change)


def remove_test_line(mirror: Path) -> None:
    def change(files: Path) -> None:
        path = files / "test-full" / "newstest2014-deen-ref.de.sgm"
        path.write_text(path.read_text(encoding="utf-8").replace('<seg id="1">', "<!-- ", 1), encoding="utf-8")

    repack(mirror, ARCHIVES[4], change)


def spoil_valid(mirror: Path) -> None:
    repack(mirror, ARCHIVES[3], lambda files: (files / "dev" / "newstest2013.en").write_bytes(b"ok\n\xff\xfe\n"))


def lengthen_valid(mirror: Path) -> None:
    def change(files: Path) -> None:
        path = files / "dev" / "newstest2013.de"
        text = lines(path)
        text[6] = "a" * 100_000
        path.write_text("\n".join(text) + "\n", encoding="utf-8")

    repack(mirror, ARCHIVES[3], change)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (truncate, "training-parallel-nc-v9.tgz is cut short or damaged"),
        (write_html, "wmt14/dev.tgz gave a web page (HTML)"),
        (remove_archive, "wmt13/training-parallel-commoncrawl.tgz cannot be fetched"),
        (remove_language, "training-parallel-europarl-v7.tgz holds no file training/europarl-v7.de-en.de"),
        (remove_line, "news-commentary-v9.de-en.en has 100 lines but training/news-commentary-v9.de-en.de has 99"),
        (remove_test_line, "newstest2014-deen-ref.de.sgm has 11"),
        (spoil_valid, "newstest2013.en is not UTF-8 text: line 2"),
        (lengthen_valid, "Pair 7 of the valid set has a line of 100,000 characters"),
    ],
)
def test_faults_end_in_one_sentence(
    broken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: Callable[[Path], None], said: str
) -> None:
    fault(broken)
    assert said in refuse(capfd, broken, tmp_path / "out")


def test_a_404_names_the_address_and_the_variable(
    broken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    remove_archive(broken)
    with serve(broken) as server:
        said = refuse(capfd, server.url, tmp_path / "out")
    assert f"{server.url}/{ARCHIVES[1]} cannot be fetched (404" in said
    assert "WMT_BASE_URL" in said


def test_full_disk(broken: Path, small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """While writing the text or while fetching; other faults keep their names, however little space is left."""
    places = ((3000, "raw could not be written"), (30_000, "There is no space left for"))
    for number, (pairs, full) in enumerate(places):
        build_mirror(tmp_path / f"mirror{number}", training(pairs), marked(10**6, 20), marked(2 * 10**6, 12))
        said = refuse(capfd, tmp_path / f"mirror{number}", small_disk / f"out{number}")
        assert full in said
        assert "free some space and run the same command again" in said
        shutil.rmtree(small_disk / f"out{number}")
    remove_language(broken)
    assert "holds no file training/europarl-v7.de-en.de" in refuse(capfd, broken, small_disk / "out")


def test_an_archive_of_statmt_must_have_its_published_digest(mirror: Path, tmp_path: Path) -> None:
    """The digests are those of the official archives: a mirror of other text fits none of them."""
    archive = wmt14.EUROPARL
    with pytest.raises(UserError, match="sha256 digest"):
        fetch(f"{mirror.as_uri()}/{archive.path}", tmp_path / archive.name, sha256=archive.sha256)


def test_sets_of_statmt_must_have_their_published_sizes(mirror: Path, tmp_path: Path) -> None:
    """dev.tgz and test-full.tgz have no published digest, but their lines are known."""

    def read(archives: Path) -> None:
        list(wmt14.pairs(archives, tmp_path / "work", LANGS, NEWSTEST2013, official=True, dropped=Counter()))

    with pytest.raises(UserError, match=r"The test set in .*test-full\.tgz has 12 lines, not 3,003: remove"):
        read(mirror / "wmt14")
    build_mirror(tmp_path / "mirror", training(3), marked(0, 20), marked(0, 3003))
    with pytest.raises(UserError, match=r"The valid set in .*dev\.tgz has 20 lines, not 3,000: remove"):
        read(tmp_path / "mirror" / "wmt14")


@pytest.mark.slow
def test_a_mended_archive_is_taken(
    broken: Path, mirror: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the sentence advises helps: the record of the bad archive goes with it."""
    truncate(broken)
    refuse(capfd, broken, tmp_path / "out")
    bad = tmp_path / "out" / "orig" / "training-parallel-nc-v9.tgz"
    bad.unlink()
    prepare(mirror, tmp_path / "out")
    digest = hashlib.sha256(bad.read_bytes()).hexdigest()
    assert f"{digest}  {bad.name}" in lines(tmp_path / "out" / "orig" / "SHA256SUMS")


def test_an_archive_put_there_by_hand_must_be_the_published_one(
    mirror: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orig").mkdir()
    shutil.copy(mirror / ARCHIVES[0], tmp_path / "orig")
    with pytest.raises(UserError, match=r"europarl-v7\.tgz is not the published archive"):
        wmt14.download("https://statmt.org", tmp_path / "orig")


def test_an_archive_that_changes_between_runs_is_noticed(
    broken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_html(broken)
    refuse(capfd, broken, tmp_path / "out")
    (tmp_path / "out" / "orig" / "training-parallel-nc-v9.tgz").write_bytes(b"something else")
    said = refuse(capfd, broken, tmp_path / "out")
    assert "training-parallel-nc-v9.tgz is not the file that it was" in said
