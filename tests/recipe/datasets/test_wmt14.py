"""The text of WMT14: every pair of the archives is kept in order or counted, and bad archives end in one sentence."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.__main__ import main
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.datasets import wmt14
from linformer_fairseq.recipe.download import fetch
from linformer_fairseq.recipe.prepare import corpus_facts, prepare_subwords
from tests.recipe.dropping_server import serve
from tests.recipe.mirror import CORPORA, build_mirror, marked, marker, training

LANGS = ("en", "de")
ARCHIVES = [*(archive for archive, _ in CORPORA.values()), "wmt14/dev.tgz", "wmt14/test-full.tgz"]


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
    """All that is made of the text before fairseq comes in."""
    run = parse(arguments(server, out, *more))
    out.mkdir(exist_ok=True)
    prepare_subwords(run.settings.text, out, run.threads)


def refuse(capfd: pytest.CaptureFixture[str], server: str | Path, out: Path, *more: object) -> str:
    """The one sentence that the command ends with; nothing half-written is left under a name that counts."""
    capfd.readouterr()
    assert main(arguments(server, out, *more)) == 2
    error = capfd.readouterr().err
    assert "Traceback" not in error
    said = error.rpartition("error: ")[2]
    assert said.count("\n") == 1
    assert said.endswith(".\n")
    assert not any((out / step).exists() for step in ("raw", "tok", "bpe", "bin"))
    return said


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("bpe", ["subword-nmt", "sentencepiece"])
def test_pairs_stay_pairs_and_every_test_line_stays(tmp_path: Path, bpe: str) -> None:
    """3,003 lines of test come out as 3,003, in their order; so do the pairs of the three corpora."""
    build_mirror(tmp_path / "mirror", training(300), marked(1000, 20), marked(2000, 3003))
    out = tmp_path / "out"
    prepare(tmp_path / "mirror", out, "--bpe", bpe, "--max-subwords", 250, "--max-ratio", 1.5)
    for step in ("raw", "tok", "bpe"):
        found = {path.name: list(map(marker, lines(path))) for path in (out / step).glob("*.??")}
        for lang in LANGS:
            assert found[f"valid.{lang}"] == list(range(1000, 1020))
            assert found[f"test.{lang}"] == list(range(2000, 5003))
        assert found["train.en"] == found["train.de"] == sorted(set(found["train.en"]))
        assert len(found["train.en"]) == 300 or step == "bpe"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_several_threads_prepare_the_same(mirror: Path, tmp_path: Path) -> None:
    for threads in ("1", "2"):
        assert main(arguments(mirror, tmp_path / threads, "--threads", threads)) == 0
    assert contents(tmp_path / "1" / "bin") == contents(tmp_path / "2" / "bin")
    assert "test.en-de.de.bin" in contents(tmp_path / "1" / "bin")


def test_every_100th_line_validates(tmp_path: Path) -> None:
    """Every 100th of the training text, cleaned as that is: what cannot be learnt from cannot validate either."""
    text = training(600)
    text["europarl"][99] = ("", "Leer.")
    text["commoncrawl"][99] = ("a" * 100_000, "Eine lange Zeile.")
    text["news-commentary"][99] = ("word " * 300, "Wort " * 300)
    build_mirror(tmp_path / "mirror", text, marked(1000, 20), marked(2000, 12))
    out = tmp_path / "out"
    prepare(tmp_path / "mirror", out, "--wmt14", "every-100th", "--max-subwords", 250)
    assert [marker(line) for line in lines(out / "raw" / "valid.en")[:2]] == [199, 399]
    assert [marker(line) for line in lines(out / "bpe" / "valid.de")] == [199, 399, 599]
    assert [marker(line) for line in lines(out / "raw" / "train.de")] == [n for n in range(600) if n % 100 != 99]
    dropped = {"an empty side": 1, "more than 10,000 characters": 1, "more than 250 subwords": 1}
    assert corpus_facts(out)["dropped"] == dropped


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
    assert raw["dropped"] == {"an empty side": 1, "bytes that are not UTF-8": 1, "more than 10,000 characters": 1}
    assert raw["train"] == 297
    assert corpus_facts(out)["server"] == (tmp_path / "mirror").as_uri()
    for reason in raw["dropped"]:
        assert f"left out 1 pairs with {reason}" in said
    cut = json.loads((out / "bpe" / "subwords.json").read_text(encoding="utf-8"))
    assert cut["dropped"]["more than 250 subwords"] == 1
    assert cut["dropped"]["lengths more than 1.5 to 1"] >= 1
    assert cut["train"]["pairs"] == 297 - sum(cut["dropped"].values()) == len(lines(out / "bpe" / "train.de"))
    odd = [line for line in lines(out / "tok" / "train.en") if "marks" in line]
    assert odd == ["A line with odd marks and &quot; quotes &quot; - x1x"]


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
        shutil.rmtree(tmp_path / "dropped" / "raw")
        prepare(server.url, tmp_path / "dropped")
        assert len(server.requests) == asked
    for step in ("tok", "bpe"):
        assert contents(tmp_path / "dropped" / step) == contents(tmp_path / "undisturbed" / step)


def truncate(mirror: Path) -> None:
    path = mirror / NEWS
    path.write_bytes(path.read_bytes()[:-300])


def repacking(archive: str, member: str, change: Callable[[str], str | bytes | None]) -> Callable[[Path], None]:
    """A fault within an archive: a member's text becomes what `change` makes of it, or goes where that is None."""

    def repack(mirror: Path) -> None:
        files = mirror / "files"
        files.mkdir()
        subprocess.run(["tar", "-xzf", mirror / archive, "-C", files], check=True)
        path = files / member
        changed = change(path.read_text(encoding="utf-8"))
        path.unlink()
        if changed is not None:
            path.write_bytes(changed.encode() if isinstance(changed, str) else changed)
        subprocess.run(["tar", "-czf", mirror / archive, "-C", files, "."], check=True)

    return repack


EUROPARL, COMMON_CRAWL, NEWS, DEV, TEST = ARCHIVES
remove_language = repacking(EUROPARL, "training/europarl-v7.de-en.de", lambda text: None)
MIRROR = "name a mirror that has it by --server (WMT_BASE_URL)."


@pytest.mark.parametrize(
    ("fault", "said", "ending"),
    [
        (truncate, "training-parallel-nc-v9.tgz is cut short or damaged", f"to fetch it anew, or {MIRROR}"),
        (lambda mirror: (mirror / DEV).write_text("<html>Sign in</html>"), "dev.tgz gave a web page (HTML)", MIRROR),
        (lambda mirror: (mirror / COMMON_CRAWL).unlink(), "parallel-commoncrawl.tgz cannot be fetched", MIRROR),
        (remove_language, "v7.tgz holds no file training/europarl-v7.de-en.de", f"to fetch it anew, or {MIRROR}"),
        (
            repacking(NEWS, "training/news-commentary-v9.de-en.de", lambda text: text[: text[:-1].rindex("\n") + 1]),
            "news-commentary-v9.de-en.en has 100 lines but training/news-commentary-v9.de-en.de has 99",
            f"to fetch it anew, or {MIRROR}",
        ),
        (
            repacking(TEST, "test-full/newstest2014-deen-ref.de.sgm", lambda text: text.replace('<seg id="1">', "", 1)),
            "newstest2014-deen-ref.de.sgm has 11",
            f"to fetch it anew, or {MIRROR}",
        ),
        (
            repacking(DEV, "dev/newstest2013.en", lambda text: b"ok\n\xff\xfe\n"),
            "newstest2013.en is not UTF-8 text: line 2",
            "",
        ),
        (
            repacking(DEV, "dev/newstest2013.de", lambda text: text.replace(text.split("\n")[6], "a" * 100_000)),
            "Pair 7 of the valid set has a line of 100,000 characters",
            "",
        ),
    ],
)
def test_faults_end_in_one_sentence(
    broken: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: Callable, said: str, ending: str
) -> None:
    fault(broken)
    sentence = refuse(capfd, broken, tmp_path / "out")
    assert said in sentence
    assert sentence.rstrip().endswith(ending)


def test_full_disk(broken: Path, small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """While writing the text or while fetching an archive; other faults keep their names, however little is left."""
    for pairs, said in ((3000, "full, so .*/raw could not be written"), (30_000, r"no space left for .*\.tgz\.part")):
        mirror = tmp_path / str(pairs)
        build_mirror(mirror, training(pairs), marked(10**6, 20), marked(2 * 10**6, 12))
        sentence = refuse(capfd, mirror, small_disk / "out")
        assert re.search(f"{said}: free some space and run the same command again", sentence)
        assert not (small_disk / "out" / "raw.part").exists()
        shutil.rmtree(small_disk / "out")
    remove_language(broken)
    assert "holds no file training/europarl-v7.de-en.de" in refuse(capfd, broken, small_disk / "out")


def test_archives_of_statmt_must_be_the_published_ones(mirror: Path, tmp_path: Path) -> None:
    """Those that are fetched, and those that were put there by hand."""
    archive = wmt14.EUROPARL
    with pytest.raises(UserError, match="sha256 digest"):
        fetch(f"{mirror.as_uri()}/{archive.path}", tmp_path / archive.name, sha256=archive.sha256)
    shutil.copy(mirror / archive.path, tmp_path)
    with pytest.raises(UserError, match=r"europarl-v7\.tgz is not the published archive"):
        wmt14.Wmt14(wmt14.NEWSTEST2013, "https://statmt.org").download(tmp_path)


def test_sets_of_statmt_must_have_their_published_sizes(mirror: Path, tmp_path: Path) -> None:
    """dev.tgz and test-full.tgz have no published digest, but their lines are known."""
    members = ("dev/newstest2013.en", "dev/newstest2013.de")
    with pytest.raises(UserError, match=r"dev\.tgz has 20 lines in its valid set, not 3,000: remove it"):
        list(wmt14.Wmt14(wmt14.NEWSTEST2013).held_out("valid", mirror / DEV, members, tmp_path, lines))


def test_an_archive_that_changes_is_noticed_and_a_mended_one_is_taken(
    broken: Path, mirror: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the sentence advises helps: the record of the bad archive goes with it."""
    truncate(broken)
    refuse(capfd, broken, tmp_path / "out")
    archive = tmp_path / "out" / "orig" / "training-parallel-nc-v9.tgz"
    archive.write_bytes(b"something else")
    assert f"{archive.name} is not the file that it was" in refuse(capfd, broken, tmp_path / "out")
    archive.unlink()
    prepare(mirror, tmp_path / "out")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert f"{digest}  {archive.name}" in lines(tmp_path / "out" / "orig" / "SHA256SUMS")
