"""Archives arrive whole whatever the connection does, and what cannot arrive ends in one sentence."""

import gzip
import hashlib
import random
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import download
from linformer_fairseq.recipe.download import SourceError, fetch, verify

from .dropping_server import DroppingServer, serve

NAME = "corpus.tgz"
DATE = "Tue, 15 Nov 1994 12:45:26 GMT"
GO_ON = [None, "bytes=1000-"]
ANEW = [None, None]


def archive(seed: int, size: int = 300_000) -> bytes:
    """A gzip file of about `size` bytes."""
    return gzip.compress(random.Random(seed).randbytes(size), mtime=0)


DATA, OTHER, SMALL = archive(1), archive(2), archive(3, 2_000)


@pytest.fixture(autouse=True)
def _here_and_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DroppingServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / NAME).write_bytes(DATA)
    with serve(folder) as server:
        yield server


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "got" / NAME


def get(server: DroppingServer, to: Path, **keywords: Any) -> None:
    fetch(f"{server.url}/{NAME}", to, **keywords)


def refused(url: str, to: Path, **keywords: Any) -> str:
    """The one sentence with which a download ends, with one remedy more than it knows itself."""
    with pytest.raises(SourceError) as error:
        fetch(url, to, **keywords)
    assert not to.exists()
    sentence = str(error.value.or_else("ask for another"))
    assert sentence.startswith(f"{url} ")
    assert sentence.endswith((": ask for another.", ", or ask for another."))
    assert "\n" not in sentence
    return sentence


def interrupt(server: DroppingServer, to: Path, after: int) -> str:
    """Ends a run with `after` bytes of the file, and returns what it says."""
    server.drops[NAME] = [after, 0]
    sentence = refused(f"{server.url}/{NAME}", to, tries=1)
    assert to.with_name(f"{NAME}.part").stat().st_size == after
    server.requests.clear()
    return sentence


def ranges(server: DroppingServer) -> list[str | None]:
    return [wanted for _, wanted in server.requests]


def check_whole(to: Path, data: bytes = DATA) -> None:
    assert to.read_bytes() == data
    assert [path.name for path in to.parent.iterdir()] == [NAME]


def test_whole_file(server: DroppingServer, to: Path) -> None:
    get(server, to, sha256=hashlib.sha256(DATA).hexdigest().upper())
    check_whole(to)
    get(server, to, sha256="0" * 64)  # a file that is there is left alone
    assert ranges(server) == [None]
    to.unlink()
    fetch((server.folder / NAME).as_uri(), to)
    check_whole(to)


@pytest.mark.parametrize(
    ("server_is", "asked"),
    [
        ({"drop": "close"}, GO_ON),
        ({"drop": "reset"}, None),  # which may swallow what was on its way
        ({"drop": "stall"}, GO_ON),
        ({"lengths": False}, GO_ON),
        ({"last_modified": DATE}, GO_ON),
        ({"etag": None, "last_modified": DATE}, GO_ON),
        ({"etag": 'W/"1"', "last_modified": DATE}, ANEW),  # which vouches for no byte
        ({"etag": None}, ANEW),
        ({"late": 5}, [*GO_ON, None]),
    ],
)
def test_a_dropped_connection_goes_on_where_it_can(
    server: DroppingServer, to: Path, server_is: dict[str, Any], asked: list[str | None] | None
) -> None:
    vars(server).update(server_is)
    server.drops[NAME] = [1_000]
    get(server, to)
    check_whole(to)
    assert asked in (None, ranges(server))


def test_a_later_run_goes_on(server: DroppingServer, to: Path) -> None:
    sentence = interrupt(server, to, after=200_000)
    assert "the connection ended after 200,000 of" in sentence
    assert "run the same command again later, which goes on from there, or" in sentence
    server.answers[NAME] = [(200, b"<html>please log in</html>")]
    assert "gave a web page" in refused(f"{server.url}/{NAME}", to)  # and leaves what has arrived
    get(server, to)
    check_whole(to)
    assert ranges(server) == ["bytes=200000-"] * 2


@pytest.mark.parametrize(
    ("can_range", "drops", "requests"),
    [(True, [1_000, 0, 0, 1_000, 0, 0, 0, 1_000], 7), (False, [2_000, 1_000, 2_000, 1_500, 2_000], 4)],
)
def test_only_attempts_without_anything_new_count(
    server: DroppingServer, to: Path, can_range: bool, drops: list[int], requests: int
) -> None:
    """A server that can only send whole files, and never does, is given up."""
    server.ranges = can_range
    server.drops[NAME] = drops
    assert "3 attempts in a row brought nothing new" in refused(f"{server.url}/{NAME}", to, tries=3)
    assert len(server.requests) == requests


@pytest.mark.parametrize(("if_range", "tells"), [(True, True), (True, False), (False, True)])
def test_two_versions_are_never_mixed(server: DroppingServer, to: Path, if_range: bool, tells: bool) -> None:
    """Not even by a server that sends the rest of the new version after the first half of the old one."""
    server.if_range, server.tells = if_range, tells
    assert len(OTHER) == len(DATA)
    interrupt(server, to, after=1_000)
    (server.folder / NAME).write_bytes(OTHER)
    server.etag = '"2"'
    get(server, to)
    check_whole(to, OTHER)
    assert GO_ON[1] in ranges(server)


def test_pauses_grow_until_something_arrives(server: DroppingServer, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 1.0)
    server.drops[NAME] = [0, 0, 0, 1_000, 0, 0, 0, 0, 0, 0]
    get(server, to, tries=9)
    assert pauses == [2, 4, 8, 1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(
    ("part", "origin", "asked"),
    [
        (DATA, '{url}\n"1"\n', [f"bytes={len(DATA)}-"]),
        (DATA + b"more", '{url}\n"1"\n', [f"bytes={len(DATA) + 4}-", None]),
        (DATA[:9], "what?", [None]),
        (DATA[:9], "{url}\n\n", [None]),
        (DATA[:9], 'http://another/corpus.tgz\n"1"\n', [None]),
    ],
    ids=["whole", "too long", "other text", "no validator", "another server"],
)
def test_what_an_earlier_run_may_have_left(
    server: DroppingServer, to: Path, part: bytes, origin: str, asked: list[str | None]
) -> None:
    to.parent.mkdir()
    to.with_name(f"{NAME}.part").write_bytes(part)
    to.with_name(f"{NAME}.part.from").write_text(origin.format(url=f"{server.url}/{NAME}"))
    get(server, to)
    check_whole(to)
    assert ranges(server) == asked


KNOBS = st.fixed_dictionaries(
    {
        "drop": st.sampled_from(["close", "reset"]),
        "ranges": st.booleans(),
        "lengths": st.booleans(),
        "etag": st.sampled_from(['"1"', 'W/"1"', None]),
    }
)


@given(drops=st.lists(st.integers(0, len(SMALL) + 3), max_size=8), knobs=KNOBS, runs=st.booleans())
def test_whatever_drops_the_bytes_are_the_same(drops: list[int], knobs: dict[str, Any], runs: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        (server.folder / NAME).write_bytes(SMALL)
        vars(server).update(knobs)
        server.drops[NAME] = list(drops)
        to = server.folder / "got" / NAME
        while runs and server.drops[NAME] and not to.exists():  # each attempt a run of its own
            try:
                get(server, to, tries=1)
            except SourceError:
                assert not to.exists()
        get(server, to, tries=len(drops) + 1)
        check_whole(to, SMALL)


@pytest.mark.parametrize(
    ("answers", "data", "expected", "said"),
    [
        ([], DATA, {"sha256": "0" * 64}, f"has the sha256 digest {hashlib.sha256(DATA).hexdigest()} instead of 0000"),
        ([], b"<!doctype html>", {}, "gave a web page (HTML) instead of a .tgz archive"),
        ([], b"", {}, "gave something else instead of a .tgz archive"),
        ([], b"PK\x03\x04 and so on", {}, "gave something else instead of a .tgz archive"),
        ([404], DATA, {}, "(404 Not Found)"),
        ([302], DATA, {}, "302"),
    ],
    ids=["digest", "page", "empty", "zip", "404", "302"],
)
def test_refusals_are_final(
    server: DroppingServer, to: Path, answers: list[int], data: bytes, expected: dict[str, Any], said: str
) -> None:
    server.answers[NAME] = [(status, b"<html>no</html>") for status in answers]
    (server.folder / NAME).write_bytes(data)
    assert said in refused(f"{server.url}/{NAME}", to, **expected)
    assert len(server.requests) == 1
    assert not list(to.parent.iterdir())


def test_an_overloaded_server_is_asked_again(server: DroppingServer, to: Path) -> None:
    server.answers[NAME] = [(429, b"<html>later</html>"), (503, b"<html>later</html>")]
    get(server, to, tries=3)
    check_whole(to)


def test_no_address_and_nobody_there(tmp_path: Path, to: Path) -> None:
    for url in ("wmt/x.tgz", "ftp://x/x.tgz", "http://[/x.tgz", "http:///x.tgz", "http://x/a b", "http://x/ä"):
        assert "is not an address that can be fetched (" in refused(url, to)
    assert "cannot be fetched (No such file or directory" in refused("file:///nowhere/x.tgz", to)
    assert "cannot be fetched (" in refused("http://no-such-host.invalid/x.tgz", to, tries=1)
    with serve(tmp_path) as server:
        pass
    assert "Connection refused; 2 attempts" in refused(f"{server.url}/{NAME}", to, tries=2)


def test_certificate_that_nobody_vouches_for(tmp_path: Path, to: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serve(tmp_path, tls=context) as server:
        sentence = refused(f"{server.url}/{NAME}", to).replace("self signed", "self-signed")
    assert "self-signed certificate" in sentence
    assert "attempts" not in sentence


def test_full_disk(server: DroppingServer, small_disk: Path) -> None:
    (small_disk / "taken").write_bytes(bytes(192 << 10))
    (server.folder / NAME).write_bytes(data := archive(4, 100_000))
    to = small_disk / NAME
    with pytest.raises(UserError, match=r"^There is no space left for .*\.part: free some space and run the same comm"):
        get(server, to)
    assert not to.exists()
    (small_disk / "taken").unlink()
    get(server, to)
    check_whole(to, data)
    assert ranges(server)[1] not in (None, "bytes=0-")


def test_recorded_checksums(tmp_path: Path) -> None:
    record, first, second = tmp_path / "SHA256SUMS", tmp_path / "a.tgz", tmp_path / "b c.tgz"
    first.write_bytes(b"a")
    second.write_bytes(b"b")
    for path in (first, second, first):
        verify(path, record)
    before = record.read_text()
    told = subprocess.run(["sha256sum", "a.tgz", "b c.tgz"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert before == told.stdout

    first.write_bytes(b"A")
    with pytest.raises(UserError, match=r"a\.tgz is not the file that it was.*remove it to fetch it .*or its line"):
        verify(first, record)
    assert record.read_text() == before
    record.write_text(before.partition("\n")[2].replace("  ", " *"))  # as sha256sum --binary writes it
    verify(first, record)
    verify(second, record)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (f"{'0' * 64}  b.tgz\n<html>\n".encode(), r"Line 2 of .*SHA256SUMS is not"),
        (b"\xff\xfe\n", "UTF-8"),
        (b"", r"a\.tgz cannot be read: No such file"),
    ],
)
def test_unreadable_record_or_file(tmp_path: Path, record: bytes, said: str) -> None:
    (tmp_path / "SHA256SUMS").write_bytes(record)
    with pytest.raises(UserError, match=said):
        verify(tmp_path / "a.tgz", tmp_path / "SHA256SUMS")
    assert (tmp_path / "SHA256SUMS").read_bytes() == record
