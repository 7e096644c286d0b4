"""Files come out of archives whole or not at all, and only to where they were wanted."""

import gzip
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

from .mirror import archive_bytes

TEXT = b"".join(b"line %d %d\n" % (n, n * n) for n in range(20_000))
OTHER = b"other\n" * 100


def entry(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, data


WHOLE = archive_bytes([entry("a", OTHER), entry("b", TEXT), entry("c", OTHER)])
TAR = gzip.decompress(WHOLE)


def refused(data: bytes | None, *names: str) -> str:
    """The one sentence with which an extraction ends, without a trace in the folder; None for no archive."""
    with tempfile.TemporaryDirectory() as temporary:
        archive, folder = Path(temporary, "corpus.tgz"), Path(temporary, "out")
        if data is not None:
            archive.write_bytes(data)
        with pytest.raises(UserError) as error:
            extract(archive, {name: folder / f"file {number}" for number, name in enumerate(names)})
        assert not folder.exists() or not list(folder.iterdir())
    sentence = str(error.value)
    assert str(archive) in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "corpus.tgz"


def test_wanted_files_are_copied(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(
        archive_bytes([entry("./a", OTHER), entry("folder", kind=tarfile.DIRTYPE), entry("folder/b", TEXT), entry("c")])
    )
    wanted = {"folder/b": tmp_path / "new" / "first", "a": tmp_path / "second", "c": tmp_path / "empty"}
    (tmp_path / "second").symlink_to(tmp_path / "elsewhere")  # is replaced
    extract(archive, wanted)
    assert [path.read_bytes() for path in wanted.values()] == [TEXT, OTHER, b""]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["corpus.tgz", "empty", "first", "new", "second"]


def test_the_first_of_a_name_counts_and_all_is_read(archive: Path, tmp_path: Path) -> None:
    whole = archive_bytes([entry("a", TEXT), entry("b", TEXT[::-1]), entry("a", OTHER)])
    archive.write_bytes(whole)
    extract(archive, {"a": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == TEXT
    assert "cut short or damaged" in refused(whole[: len(whole) * 3 // 4], "a")  # a itself is whole


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/./b", ".."])
def test_paths_in_the_archive_are_never_written_to(archive: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    archive.write_bytes(archive_bytes([entry(name, b"evil"), entry("a", OTHER)]))
    extract(archive, {"a": folder / "a", name: folder / "b"})  # a wanted name is a name like any other
    assert (folder / "b").read_bytes() == b"evil"
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {folder / "a", folder / "b", archive}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_only_regular_files_of_the_exact_name_count(archive: Path, tmp_path: Path, kind: bytes) -> None:
    """Neither what a link points to nor what comes through it later."""
    (tmp_path / "secret").write_bytes(b"secret")
    not_it = [entry("a", kind=kind, link=str(tmp_path / "secret")), entry("a/c", b"evil"), entry("a.en"), entry("A")]
    archive.write_bytes(archive_bytes([entry("b", OTHER), *not_it]))
    (tmp_path / "b").write_bytes(b"from before")
    with pytest.raises(UserError, match="holds no file a or d: remove it and run the same command again to fetch"):
        extract(archive, {name: tmp_path / name for name in "abd"})
    assert (tmp_path / "b").read_bytes() == b"from before"
    archive.write_bytes(archive_bytes([*not_it, entry("a", TEXT)]))
    extract(archive, {"a": tmp_path / "a"})
    assert (tmp_path / "a").read_bytes() == TEXT
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "secret").read_bytes() == b"secret"


@given(st.one_of(st.integers(0, len(WHOLE) - 1), st.sampled_from([0, 1, 2, 9, 10, len(WHOLE) - 8, len(WHOLE) - 1])))
def test_cut_short(length: int) -> None:
    sentence = refused(WHOLE[:length], "a")
    assert "is cut short or damaged" in sentence
    assert "a cannot be taken from it: remove it and run the same command again to fetch it anew" in sentence


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_found(place: int, change: int) -> None:
    """By gzip's checksum; the bytes of its header that mean nothing may change."""
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    assert "is cut short or damaged" in refused(damaged, "a", "missing") or place < 10


def within_a_file() -> bytes:
    """Compressed data that ends in a block of a type that there is not."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(TAR[:200_000]) + packer.flush(zlib.Z_SYNC_FLUSH) + b"\x06" * 1_000


NO_TAR = (b"", b"<html>log in</html>", b"PK\x03\x04", OTHER)
DAMAGED = [
    within_a_file(),
    WHOLE[:-8] + b"\0\0\0\0" + WHOLE[-4:],
    *(gzip.compress(TAR[:at] + b"\xff" * 1024 + TAR[at + 1024 :]) for at in (100, 2_000, 100_000)),
    *NO_TAR,
    *map(gzip.compress, NO_TAR),
]


def test_damaged_or_no_archive() -> None:
    """tarfile alone takes a damaged header for the end of an archive, however much may follow."""
    said = "is cut short or damaged, or no .tgz archive, so that a and d cannot be taken from it: remove it"
    for data in DAMAGED:
        sentence = refused(data, "a", "d")
        assert said in sentence or "holds no file d" in sentence


def test_archive_that_is_not_there() -> None:
    assert "corpus.tgz cannot be read: No such file" in refused(None, "a")


def test_full_disk(archive: Path, tmp_path: Path) -> None:
    """/dev/full takes no byte."""
    archive.write_bytes(WHOLE)
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


@settings(max_examples=40)
@given(st.lists(SGM_LINES, max_size=12), st.booleans())
@example(['<seg id="1">a</seg> b </seg> c', '<seg id="2"></seg>', '<seg id="3">a <seg id="4">b</seg>'], True)
def test_segments_are_sacrebleus(lines: list[str], ended: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sgm"
        text = "\n".join(["<srcset>", *lines, '<seg id="9">last</seg>'])
        path.write_bytes((text + "\n" * ended).encode("utf-8"))
        assert read_sgm(path) == sacrebleu_segments(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'<srcset>\n<seg id="1">ok</seg>\n<seg id="2">M\xfcnchen</seg>\n', r"x\.sgm is not UTF-8 text: line 3"),
        (b"<srcset>\n</srcset>\n", r"x\.sgm holds no segments"),
    ],
)
def test_sgm_that_cannot_be_read(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "x.sgm").write_bytes(data)
    with pytest.raises(UserError, match=said):
        read_sgm(tmp_path / "x.sgm")
