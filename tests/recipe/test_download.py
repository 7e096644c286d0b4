"""Archives arrive whole whatever the connection does, and what cannot arrive ends in one sentence."""

import gzip
import hashlib
import random
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import download
from linformer_fairseq.recipe.download import SourceError, fetch, verify

from .dropping_server import DroppingServer, serve

NAME = "corpus.tgz"


def archive(seed: int, size: int = 300_000) -> bytes:
    """A gzip file of about `size` bytes."""
    return gzip.compress(random.Random(seed).randbytes(size), mtime=0)


DATA, OTHER = archive(1), archive(3)
SMALL = archive(2, 2_000)


@pytest.fixture(autouse=True)
def _here_and_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
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


def get(server: DroppingServer, to: Path, **keywords: object) -> None:
    fetch(f"{server.url}/{NAME}", to, **keywords)


def refused(url: str, to: Path, **keywords: object) -> str:
    """The one sentence with which a download ends, whatever else can be done."""
    with pytest.raises(SourceError) as error:
        fetch(url, to, **keywords)
    assert not to.exists()
    sentence = str(error.value.or_else("ask for another"))
    assert sentence.startswith(f"{url} ")
    assert sentence.endswith((": ask for another.", ", or ask for another."))
    assert "\n" not in sentence
    return sentence


def interrupt(server: DroppingServer, to: Path, after: int) -> str:
    """Ends a run with `after` bytes of the file, and returns what it says; it makes two requests."""
    server.drops[NAME] = [after, 0]
    sentence = refused(f"{server.url}/{NAME}", to, tries=1)
    assert to.with_name(f"{NAME}.part").stat().st_size == after
    return sentence


def ranges(server: DroppingServer) -> list[str | None]:
    return [wanted for _, wanted in server.requests]


def check_whole(to: Path, data: bytes = DATA) -> None:
    assert to.read_bytes() == data
    assert [path.name for path in to.parent.iterdir()] == [NAME]


def test_whole_file(server: DroppingServer, to: Path) -> None:
    get(server, to, sha256=hashlib.sha256(DATA).hexdigest().upper(), size=len(DATA))
    check_whole(to)
    get(server, to, size=7)  # a file that is there is left alone
    assert ranges(server) == [None]
    to.unlink()
    fetch((server.folder / NAME).as_uri(), to)
    check_whole(to)


@pytest.mark.parametrize("drop", ["close", "reset"])
def test_dropped_connections_go_on_where_they_were(server: DroppingServer, to: Path, drop: str) -> None:
    server.drop = drop
    server.drops[NAME] = [100_000, 70_000, 50_000]
    get(server, to, tries=2)
    check_whole(to)
    assert len(server.requests) == 4
    if drop == "close":  # a reset may swallow what was on its way
        assert ranges(server) == [None, "bytes=100000-", "bytes=170000-", "bytes=220000-"]


def test_a_silent_connection_is_given_up(
    server: DroppingServer, to: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.2)
    server.drop = "stall"
    server.drops[NAME] = [1_000]
    get(server, to)
    check_whole(to)
    assert ranges(server) == [None, "bytes=1000-"]
    assert "timed out; trying again" in capsys.readouterr().out


def test_a_later_run_goes_on(server: DroppingServer, to: Path) -> None:
    sentence = interrupt(server, to, after=200_000)
    assert "the connection ended after 200,000 of" in sentence
    assert "run the same command again later, which goes on from there, or" in sentence
    server.answers[NAME] = [(200, b"<html>please log in</html>")]
    assert "gave a web page" in refused(f"{server.url}/{NAME}", to)  # and leaves what has arrived
    get(server, to)
    check_whole(to)
    assert ranges(server) == [None, *["bytes=200000-"] * 3]


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


@pytest.mark.parametrize(
    ("etag", "last_modified", "goes_on"),
    [
        ('"1"', "Tue, 15 Nov 1994 12:45:26 GMT", True),
        (None, "Tue, 15 Nov 1994 12:45:26 GMT", True),
        ('W/"1"', "Tue, 15 Nov 1994 12:45:26 GMT", False),
        (None, None, False),
    ],
)
def test_only_a_validator_lets_it_go_on(
    server: DroppingServer, to: Path, etag: str | None, last_modified: str | None, goes_on: bool
) -> None:
    server.etag, server.last_modified = etag, last_modified
    server.drops[NAME] = [1_000]
    get(server, to)
    check_whole(to)
    assert ranges(server) == [None, "bytes=1000-" if goes_on else None]


@pytest.mark.parametrize(("if_range", "tells"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("between_runs", [True, False])
def test_two_versions_are_never_mixed(
    server: DroppingServer, to: Path, if_range: bool, tells: bool, between_runs: bool
) -> None:
    """Not even by a server that sends the rest of the new version after the first half of the old one."""
    server.if_range, server.tells = if_range, tells
    assert len(OTHER) == len(DATA)

    def change() -> None:
        (server.folder / NAME).write_bytes(OTHER)
        server.etag = '"2"'

    if between_runs:
        interrupt(server, to, after=100_000)
        change()
    else:
        server.drops[NAME] = [100_000]
        server.after_drop = change
    server.requests.clear()
    get(server, to)
    check_whole(to, OTHER)
    assert ranges(server)[0 if between_runs else 1] == "bytes=100000-"


def test_the_wrong_range_is_not_used(server: DroppingServer, to: Path) -> None:
    server.drops[NAME] = [100_000]
    server.late = 5
    get(server, to)
    check_whole(to)
    assert ranges(server) == [None, "bytes=100000-", None]


def test_pauses_grow_until_something_arrives(server: DroppingServer, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 1.0)
    server.drops[NAME] = [0, 0, 0, 1_000, 0, 0, 0, 0, 0, 0]
    get(server, to, tries=9)
    assert pauses == [2, 4, 8, 1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(
    ("part", "origin", "requests"),
    [
        (DATA, '{url}\n"1"\n', [f"bytes={len(DATA)}-"]),
        (DATA + b"more", '{url}\n"1"\n', [f"bytes={len(DATA) + 4}-", None]),
        *(
            (b"\x1f\x8b junk", origin, [None])
            for origin in ("", "what?", "{url}\n\n", '{url}\n"\x00"\n', 'http://another/mirror\n"1"\n')
        ),
    ],
)
def test_what_an_earlier_run_may_have_left(
    server: DroppingServer, to: Path, part: bytes, origin: str, requests: list[str | None]
) -> None:
    to.parent.mkdir()
    to.with_name(f"{NAME}.part").write_bytes(part)
    to.with_name(f"{NAME}.part.from").write_text(origin.format(url=f"{server.url}/{NAME}"))
    get(server, to)
    check_whole(to)
    assert ranges(server) == requests


@given(
    drops=st.lists(st.integers(0, len(SMALL) + 3), max_size=8),
    drop=st.sampled_from(["close", "reset"]),
    can_range=st.booleans(),
    lengths=st.booleans(),
    etag=st.sampled_from(['"1"', 'W/"1"', None]),
    runs=st.booleans(),
)
def test_whatever_drops_the_bytes_are_the_same(
    drops: list[int], drop: str, can_range: bool, lengths: bool, etag: str | None, runs: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        (server.folder / NAME).write_bytes(SMALL)
        server.drop, server.ranges, server.lengths, server.etag = drop, can_range, lengths, etag
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
    ("expected", "said"),
    [
        ({"size": 1234}, f"has {len(DATA):,} bytes instead of 1,234"),
        ({"sha256": "0" * 64}, f"has the sha256 digest {hashlib.sha256(DATA).hexdigest()} instead of 0000"),
    ],
)
def test_another_file_than_expected(server: DroppingServer, to: Path, expected: dict[str, object], said: str) -> None:
    assert said in refused(f"{server.url}/{NAME}", to, **expected)
    assert not list(to.parent.iterdir())
    get(server, to)


@pytest.mark.parametrize(
    ("status", "said"), [(403, "(403 Forbidden)"), (404, "(404 Not Found)"), (302, "302"), (429, None), (503, None)]
)
def test_an_overloaded_server_is_asked_again_and_a_refusal_is_final(
    server: DroppingServer, to: Path, status: int, said: str | None
) -> None:
    server.answers[NAME] = [(status, b"<html>no</html>")] * 2
    if said:
        assert said in refused(f"{server.url}/{NAME}", to)
        assert len(server.requests) == 1
    else:
        get(server, to, tries=3)
        check_whole(to)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"<!doctype html>", "a web page (HTML)"),
        (b"", "something else"),
        (b"\x1f", "something else"),
        (b"PK\x03\x04 and so on", "something else"),
    ],
)
def test_no_archive(server: DroppingServer, to: Path, data: bytes, what: str) -> None:
    (server.folder / NAME).write_bytes(data)
    assert f"gave {what} instead of a .tgz archive" in refused(f"{server.url}/{NAME}", to)
    assert not list(to.parent.iterdir())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *(
            (url, "is not an address that can be fetched (")
            for url in ("wmt/x.tgz", "ftp://x/x.tgz", "http://[/x.tgz", "http:///x.tgz", "http://x/a b", "http://x/ä")
        ),
        ("http://no-such-host.invalid/x.tgz", "cannot be fetched ("),
        ("file:///nowhere/x.tgz", "cannot be fetched (No such file or directory"),
    ],
)
def test_addresses_of_nothing(to: Path, url: str, said: str) -> None:
    assert said in refused(url, to, tries=1)


def test_nobody_listens(tmp_path: Path, to: Path) -> None:
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
    with pytest.raises(UserError) as error:
        get(server, to)
    assert str(error.value) == (
        f"There is no space left for {to}.part: free some space and run the same command again: it goes on from there."
    )
    assert not to.exists()
    (small_disk / "taken").unlink()
    get(server, to)
    check_whole(to, data)
    assert ranges(server)[1] not in (None, "bytes=0-")


def test_folder_that_cannot_be_made(server: DroppingServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"corpus\.tgz cannot be written: (Not a directory|File exists)\.$"):
        get(server, tmp_path / "file" / NAME)
    assert server.requests == []


def test_recorded_checksums(tmp_path: Path) -> None:
    record = tmp_path / "SHA256SUMS"
    first, second = tmp_path / "a.tgz", tmp_path / "b c.tgz"
    first.write_bytes(b"a")
    second.write_bytes(b"b")
    for _ in range(2):
        verify(first, record)
        verify(second, record)
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
    ("record", "name", "said"),
    [
        (f"{'0' * 64}  b.tgz\n<html>\n".encode(), "a.tgz", r"Line 2 of .*SHA256SUMS is not"),
        (b"\xff\xfe\n", "a.tgz", "UTF-8"),
        (b"", "b.tgz", r"b\.tgz cannot be read: No such file"),
    ],
)
def test_unreadable_record_or_file(tmp_path: Path, record: bytes, name: str, said: str) -> None:
    (tmp_path / "SHA256SUMS").write_bytes(record)
    (tmp_path / "a.tgz").write_bytes(b"a")
    with pytest.raises(UserError, match=said):
        verify(tmp_path / name, tmp_path / "SHA256SUMS")
    assert (tmp_path / "SHA256SUMS").read_bytes() == record
