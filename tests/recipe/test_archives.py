"""Files come out of archives whole or not at all, and only to where they were wanted."""

import gzip
import runpy
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacrebleu.dataset import DATASETS

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.archives import extract, read_sgm

from .mirror import CORPORA, archive_bytes, build_mirror

TEXT = b"".join(b"line %d %d\n" % (n, n * n) for n in range(20_000))
OTHER = b"other\n" * 100
VALID = [("One valid.", "Eins gültig."), ("Two valid.", "Zwei gültig.")]
TEST = [(f"The test & number {n}.", f"Der Test &amp; Nummer {n}.") for n in range(7)]
TRAINING = {corpus: [(f"{corpus} {n}", f"{corpus} auf Deutsch {n}") for n in range(3)] for corpus in CORPORA}


def entry(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, data


def refused(archive: Path, *names: str) -> str:
    """The one sentence with which an extraction ends, without a trace in the folder."""
    folder = archive.parent / "out"
    with pytest.raises(UserError) as error:
        extract(archive, {name: folder / f"file {number}" for number, name in enumerate(names)})
    sentence = str(error.value)
    assert str(archive) in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert not folder.exists() or not list(folder.iterdir())
    return sentence


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "corpus.tgz"


def test_wanted_files_are_copied(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(
        archive_bytes([entry("./a", OTHER), entry("folder", kind=tarfile.DIRTYPE), entry("folder/b", TEXT), entry("c")])
    )
    wanted = {"folder/b": tmp_path / "new" / "first", "a": tmp_path / "second", "c": tmp_path / "empty"}
    extract(archive, wanted)
    assert [path.read_bytes() for path in wanted.values()] == [TEXT, OTHER, b""]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["corpus.tgz", "empty", "first", "new", "second"]


def test_names_are_exact(archive: Path) -> None:
    archive.write_bytes(archive_bytes([entry("a.en", OTHER), entry("folder/a", OTHER), entry("A", OTHER)]))
    assert "holds no file a: remove it and run the same command again" in refused(archive, "a")


def test_the_first_of_a_name_counts_and_all_is_read(archive: Path, tmp_path: Path) -> None:
    whole = archive_bytes([entry("a", TEXT), entry("b", TEXT[::-1]), entry("a", OTHER)])
    assert len(whole) > 100_000
    archive.write_bytes(whole)
    extract(archive, {"a": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == TEXT
    (tmp_path / "a").unlink()
    archive.write_bytes(whole[: len(whole) * 3 // 4])  # a itself is whole
    assert "cut short or damaged" in refused(archive, "a")


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "in/../../outside", "a/./b", ".."])
def test_paths_in_the_archive_are_never_written_to(archive: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    archive.write_bytes(archive_bytes([entry(name, b"evil"), entry("a", OTHER)]))
    extract(archive, {"a": folder / "a"})
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {folder / "a", archive}
    extract(archive, {name: folder / "b"})  # a wanted name is a name like any other
    assert (folder / "b").read_bytes() == b"evil"
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {folder / "a", folder / "b", archive}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_only_regular_files_count(archive: Path, tmp_path: Path, kind: bytes) -> None:
    """Neither what a link points to nor what comes through it later."""
    (tmp_path / "secret").write_bytes(b"secret")
    link = str(tmp_path / "secret")
    archive.write_bytes(archive_bytes([entry("b", OTHER), entry("a", kind=kind, link=link), entry("a/c", b"evil")]))
    assert "holds no file a:" in refused(archive, "a", "b")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    archive.write_bytes(archive_bytes([entry("a", kind=kind, link=link), entry("a", TEXT)]))
    extract(archive, {"a": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == TEXT
    assert not (tmp_path / "a").is_symlink()


def test_links_in_the_way_are_replaced(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    archive.write_bytes(archive_bytes([entry("a", OTHER)]))
    extract(archive, {"a": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == OTHER
    assert not (tmp_path / "elsewhere").exists()


def test_all_or_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive_bytes([entry("a", OTHER), entry("b", OTHER)]))
    sentence = refused(archive, "a", "x", "b", "y")
    assert "holds no file x or y" in sentence
    (tmp_path / "a").write_bytes(b"from before")
    with pytest.raises(UserError):
        extract(archive, {"a": tmp_path / "a", "x": tmp_path / "x"})
    assert (tmp_path / "a").read_bytes() == b"from before"


WHOLE = archive_bytes([entry("a", OTHER), entry("b", TEXT), entry("c", OTHER)])


@given(st.one_of(st.integers(0, len(WHOLE) - 1), st.sampled_from([0, 1, 2, 9, 10, len(WHOLE) - 8, len(WHOLE) - 1])))
def test_cut_short(length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "corpus.tgz"
        archive.write_bytes(WHOLE[:length])
        sentence = refused(archive, "a")
        assert "is cut short or damaged" in sentence
        assert "a cannot be taken from it: remove it and run the same command again to fetch it anew" in sentence


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_found(place: int, change: int) -> None:
    """By gzip's checksum; the bytes of its header that mean nothing may change."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "corpus.tgz"
        damaged = bytearray(WHOLE)
        damaged[place] ^= change
        archive.write_bytes(damaged)
        sentence = refused(archive, "a", "missing")
        assert place < 10 or "is cut short or damaged" in sentence


def test_the_checksum_counts_behind_a_damaged_header(archive: Path) -> None:
    """tarfile takes a damaged header for the end of the archive, however much may follow."""
    tar = bytearray(gzip.decompress(archive_bytes([entry("a", OTHER), entry("b", OTHER)])) + bytes(1 << 20))
    archive.write_bytes(sound := gzip.compress(bytes(tar)))
    assert "holds no file c" in refused(archive, "a", "c")
    archive.write_bytes(sound[:-8] + b"\0\0\0\0" + sound[-4:])
    assert "is cut short or damaged" in refused(archive, "a", "c")


def test_damage_within_a_wanted_file(archive: Path) -> None:
    packer = zlib.compressobj(wbits=31)
    half = packer.compress(gzip.decompress(WHOLE)[:200_000]) + packer.flush(zlib.Z_SYNC_FLUSH)
    archive.write_bytes(half + b"\x06" * 1_000)  # a block of a type that there is not
    assert "is cut short or damaged" in refused(archive, "a", "b")


@pytest.mark.parametrize("at", [100, 2_000, 100_000])
def test_damaged_tar_headers(archive: Path, at: int) -> None:
    """A tar that is not one, in sound gzip: no traceback, and nothing half."""
    tar = bytearray(gzip.decompress(WHOLE))
    tar[at : at + 1024] = b"\xff" * 1024
    archive.write_bytes(gzip.compress(bytes(tar)))
    refused(archive, "a", "b", "missing")


@pytest.mark.parametrize("data", [b"", b"<html>please log in</html>", b"PK\x03\x04", OTHER])
def test_no_archive(archive: Path, data: bytes) -> None:
    archive.write_bytes(data)
    assert "no .tgz archive" in refused(archive, "a", "b")
    archive.write_bytes(gzip.compress(data))
    assert "no .tgz archive, so that a and b cannot be taken from it: remove it" in refused(archive, "a", "b")


def test_archive_that_is_not_there(archive: Path) -> None:
    assert "corpus.tgz cannot be read: No such file" in refused(archive, "a")
    archive.mkdir()
    assert "corpus.tgz cannot be read: Is a directory" in refused(archive, "a")


def test_full_disk(archive: Path, tmp_path: Path) -> None:
    """/dev/full takes no byte."""
    archive.write_bytes(archive_bytes([entry("a", OTHER), entry("b", TEXT)]))
    (tmp_path / "b.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"^There is no space left for .*/b\.part: free some space and run the same"):
        extract(archive, {"a": tmp_path / "a", "b": tmp_path / "b"})
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz"]


def sacrebleu_segments(path: Path) -> list[str]:
    """What sacreBLEU makes of an .sgm file, by its own code."""
    to = path.with_suffix(".txt")
    DATASETS["wmt14/full"]._convert_format(str(path), str(to))
    return to.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


SGM_LINES = st.one_of(
    st.text(max_size=8),
    st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(['<seg id="1">', "<seg >", "<seg id='2' x='>'>", ' <seg id="1">', "<segment>", "<seg id"]),
        st.text(st.sampled_from("aß&; \t\r\x0b\x1c\x85\xa0\u2028\u3000<>/"), max_size=12),
        st.sampled_from(["&lt;&amp;&quot;", "", "</seg>", '<seg id="3">x</seg>']),
        st.sampled_from(["</seg>", "", "</seg> ", "</SEG>"]),
        st.sampled_from(["", " rest", "\r", "</p>"]),
    ),
)


@settings(max_examples=100)
@given(st.lists(SGM_LINES, max_size=12), st.booleans())
@example(['<seg id="1">a</seg> b </seg> c', '<seg id="2"></seg>', '<seg id="3">a <seg id="4">b</seg>'], True)
def test_segments_are_sacrebleus(lines: list[str], ended: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sgm"
        text = "\n".join(["<srcset>", *lines, '<seg id="9">last</seg>'])
        path.write_bytes((text + "\n" * ended).encode("utf-8"))
        assert read_sgm(path) == sacrebleu_segments(path)


def test_segments(tmp_path: Path) -> None:
    path = tmp_path / "x.sgm"
    path.write_text(
        '<srcset setid="x" srclang="any">\n<doc docid="a">\n<p>\n<seg id="1"> A  man\u00a0&amp; a dog </seg>\n</p>\n'
        '<hl>\n<seg id="2"></seg>\n</hl>\n</doc>\n<seg id="1">One.</seg>\n</srcset>\n',
        encoding="utf-8",
    )
    assert read_sgm(path) == ["A man &amp; a dog", "", "One."]


def test_sgm_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.sgm"
    path.write_bytes(b'<srcset>\n<seg id="1">ok</seg>\n<seg id="2">M\xfcnchen</seg>\n')
    with pytest.raises(UserError, match=r"x\.sgm is not UTF-8 text: line 3"):
        read_sgm(path)
    path.write_bytes(b"<srcset>\n</srcset>\n")
    with pytest.raises(UserError, match=r"x\.sgm holds no segments"):
        read_sgm(path)


def test_mirror_is_laid_out_as_statmt_org(tmp_path: Path) -> None:
    build_mirror(tmp_path, TRAINING, VALID, TEST)
    names = {}
    for path in tmp_path.rglob("*.tgz"):
        with tarfile.open(path) as tar:
            names[str(path.relative_to(tmp_path))] = set(tar.getnames())
    stem = "test-full/newstest2014-deen"
    assert names == {
        "wmt13/training-parallel-europarl-v7.tgz": {
            f"training/europarl-v7.{side}" for side in ("de-en.de", "de-en.en", "fr-en.fr", "fr-en.en")
        },
        "wmt13/training-parallel-commoncrawl.tgz": {
            f"commoncrawl.{side}" for side in ("de-en.de", "de-en.en", "fr-en.fr", "fr-en.en")
        },
        "wmt14/training-parallel-nc-v9.tgz": {
            f"training/news-commentary-v9.{side}" for side in ("de-en.de", "de-en.en", "fr-en.fr", "fr-en.en")
        },
        "wmt14/dev.tgz": {f"dev/newstest201{year}.{lang}" for year in "23" for lang in ("de", "en")},
        "wmt14/test-full.tgz": {f"{stem}-{side}.sgm" for side in ("src.en", "ref.de", "src.de", "ref.en")},
    }


def test_mirror_holds_the_text(tmp_path: Path) -> None:
    training = {**TRAINING, "commoncrawl": [(b"caf\xe9", "Café"), ("two ", "")]}
    build_mirror(tmp_path, training, VALID, TEST)
    build_mirror(tmp_path / "again", training, VALID, TEST)
    for path in tmp_path.glob("wmt1*/*"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path)).read_bytes()
    en, de = tmp_path / "en", tmp_path / "de"
    extract(tmp_path / CORPORA["commoncrawl"][0], {"commoncrawl.de-en.en": en, "commoncrawl.de-en.de": de})
    assert (en.read_bytes(), de.read_bytes()) == (b"caf\xe9\ntwo \n", "Café\n\n".encode())
    extract(tmp_path / "wmt14" / "dev.tgz", {"dev/newstest2013.en": en, "dev/newstest2013.de": de})
    assert de.read_text(encoding="utf-8") == "Eins gültig.\nZwei gültig.\n"
    for names in (("src.en", "ref.de"), ("ref.en", "src.de")):
        stem = "test-full/newstest2014-deen"
        members = {f"{stem}-{name}.sgm": to for name, to in zip(names, (en, de), strict=True)}
        extract(tmp_path / "wmt14" / "test-full.tgz", members)
        assert list(zip(read_sgm(en), read_sgm(de), strict=True)) == TEST
        assert (sacrebleu_segments(en), sacrebleu_segments(de)) == (read_sgm(en), read_sgm(de))


def test_mirror_of_a_folder_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "mirror"
    data.mkdir()
    for split, count in (("train", 7), ("valid", 2), ("test", 2)):
        for lang in ("en", "de"):
            (data / f"{split}.{lang}").write_text("".join(f"{split} {lang} {n}\n" for n in range(count)))
    (data / "train.en.gz").write_bytes(gzip.compress((data / "train.en").read_bytes()))
    (data / "train.en").unlink()
    monkeypatch.setattr(sys, "argv", ["mirror", str(data), str(out)])
    monkeypatch.delitem(sys.modules, "tests.recipe.mirror")
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module("tests.recipe.mirror", run_name="__main__")
    found = []
    for archive, stem in CORPORA.values():
        extract(out / archive, {f"{stem}.de-en.de": tmp_path / "de"})
        found.append([int(line.split()[-1]) for line in (tmp_path / "de").read_text().splitlines()])
    assert found == [[0, 3, 6], [1, 4], [2, 5]]
