"""Archives arrive whole whatever the connection does, and what cannot arrive is said in one sentence."""

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
from linformer_fairseq.recipe.download import fetch, verify

from .dropping_server import DroppingServer, serve

NAME = "corpus.tgz"


def archive(seed: int, size: int = 300_000) -> bytes:
    """A gzip file of about `size` bytes."""
    return gzip.compress(random.Random(seed).randbytes(size), mtime=0)


DATA = archive(1)
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


def refused(server: DroppingServer, to: Path, **keywords: object) -> str:
    """The one sentence with which a download ends."""
    with pytest.raises(UserError) as error:
        get(server, to, **keywords)
    sentence = str(error.value)
    assert sentence.startswith(f"{server.url}/{NAME} ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert not to.exists()
    return sentence


def interrupt(server: DroppingServer, to: Path, after: int) -> str:
    """A run that ends with `after` bytes of the file, and what it says; it makes two requests."""
    server.drops[NAME] = [after, 0]
    sentence = refused(server, to, tries=1)
    assert to.with_name(f"{NAME}.part").stat().st_size == after
    return sentence


def ranges(server: DroppingServer) -> list[str | None]:
    return [wanted for _, wanted in server.requests]


def beside(to: Path) -> list[str]:
    """What is in the download folder."""
    return sorted(path.name for path in to.parent.iterdir())


def test_whole_file(server: DroppingServer, to: Path) -> None:
    get(server, to, sha256=hashlib.sha256(DATA).hexdigest().upper(), size=len(DATA))
    assert to.read_bytes() == DATA
    assert beside(to) == [NAME]
    assert ranges(server) == [None]


def test_a_file_that_is_there_is_left_alone(server: DroppingServer, to: Path) -> None:
    to.parent.mkdir()
    to.write_bytes(b"mine")
    get(server, to, size=7)
    assert to.read_bytes() == b"mine"
    assert server.requests == []


@pytest.mark.parametrize("drop", ["close", "reset"])
def test_dropped_connections_go_on_where_they_were(server: DroppingServer, to: Path, drop: str) -> None:
    server.drop = drop
    server.drops[NAME] = [100_000, 70_000, 50_000]
    get(server, to, tries=2)
    assert to.read_bytes() == DATA
    assert beside(to) == [NAME]
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
    assert to.read_bytes() == DATA
    assert ranges(server) == [None, "bytes=1000-"]
    assert "timed out; trying again" in capsys.readouterr().out


def test_a_later_run_goes_on(server: DroppingServer, to: Path) -> None:
    sentence = interrupt(server, to, after=200_000)
    assert "the connection ended after 200,000 of" in sentence
    assert "run the same command again later, which goes on from there" in sentence
    assert "WMT_BASE_URL" in sentence
    assert beside(to) == [f"{NAME}.part", f"{NAME}.part.from"]
    get(server, to)
    assert to.read_bytes() == DATA
    assert beside(to) == [NAME]
    assert ranges(server) == [None, "bytes=200000-", "bytes=200000-"]


def test_only_attempts_without_anything_new_count(server: DroppingServer, to: Path) -> None:
    server.drops[NAME] = [1_000, 0, 0, 1_000, 0, 0, 0, 1_000]
    assert "3 attempts in a row brought nothing new" in refused(server, to, tries=3)
    assert len(server.requests) == 7
    assert (to.parent / f"{NAME}.part").read_bytes() == DATA[:2_000]


def test_starting_anew_is_nothing_new(server: DroppingServer, to: Path) -> None:
    """A server that can only send whole files, and never does, is given up."""
    server.ranges = False
    server.drops[NAME] = [2_000, 1_000, 2_000, 1_500, 2_000]
    refused(server, to, tries=3)
    assert len(server.requests) == 4


def test_server_without_ranges(server: DroppingServer, to: Path) -> None:
    server.ranges = False
    server.drops[NAME] = [1_000, 2_000]
    get(server, to)
    assert to.read_bytes() == DATA


def test_server_without_lengths(server: DroppingServer, to: Path) -> None:
    server.lengths = False
    server.drops[NAME] = [1_000, 150_000]
    get(server, to)
    assert to.read_bytes() == DATA
    assert ranges(server) == [None, "bytes=1000-", "bytes=151000-"]


@pytest.mark.parametrize(
    ("etag", "last_modified", "goes_on"),
    [
        ('"1"', None, True),
        (None, "Tue, 15 Nov 1994 12:45:26 GMT", True),
        ('"1"', "Tue, 15 Nov 1994 12:45:26 GMT", True),
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
    assert to.read_bytes() == DATA
    assert ranges(server) == [None, "bytes=1000-" if goes_on else None]


@pytest.mark.parametrize(("if_range", "tells"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("between_runs", [True, False])
def test_two_versions_are_never_mixed(
    server: DroppingServer, to: Path, if_range: bool, tells: bool, between_runs: bool
) -> None:
    """Not even by a server that sends the rest of the new version after the first half of the old one."""
    server.if_range, server.tells = if_range, tells
    other = archive(3)
    assert len(other) == len(DATA)

    def change() -> None:
        (server.folder / NAME).write_bytes(other)
        server.etag = '"2"'

    if between_runs:
        interrupt(server, to, after=100_000)
        change()
    else:
        server.drops[NAME] = [100_000]
        server.after_drop = change
    server.requests.clear()
    get(server, to)
    assert to.read_bytes() == other
    assert ranges(server)[0 if between_runs else 1] == "bytes=100000-"


def test_the_wrong_range_is_not_used(server: DroppingServer, to: Path) -> None:
    server.drops[NAME] = [100_000]
    server.late = 5
    get(server, to)
    assert to.read_bytes() == DATA
    assert ranges(server) == [None, "bytes=100000-", None]


def test_pauses_grow_until_something_arrives(server: DroppingServer, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 1.0)
    server.drops[NAME] = [0, 0, 0, 1_000, 0, 0, 0, 0, 0, 0]
    get(server, to, tries=9)
    assert pauses == [2, 4, 8, 1, 2, 4, 8, 16, 30, 30]


def test_the_version_on_another_mirror_is_another(server: DroppingServer, to: Path) -> None:
    (server.folder / "mirror").mkdir()
    (server.folder / "mirror" / NAME).write_bytes(other := archive(3))
    interrupt(server, to, after=100_000)
    fetch(f"{server.url}/mirror/{NAME}", to)
    assert to.read_bytes() == other
    assert ranges(server)[-1] is None


def leave(to: Path, server: DroppingServer, part: bytes, origin: str | None = None) -> None:
    """A download folder as an interrupted run may have left it."""
    to.parent.mkdir()
    to.with_name(f"{NAME}.part").write_bytes(part)
    if origin is None:
        origin = f'{server.url}/{NAME}\n"1"\n'
    to.with_name(f"{NAME}.part.from").write_text(origin)


def test_whole_part_is_taken(server: DroppingServer, to: Path) -> None:
    leave(to, server, DATA)
    get(server, to)
    assert to.read_bytes() == DATA
    assert ranges(server) == [f"bytes={len(DATA)}-"]
    assert beside(to) == [NAME]


def test_part_that_is_too_long(server: DroppingServer, to: Path) -> None:
    leave(to, server, DATA + b"more")
    get(server, to)
    assert to.read_bytes() == DATA
    assert ranges(server) == [f"bytes={len(DATA) + 4}-", None]


@pytest.mark.parametrize("origin", ["", "what?", "{url}\n", "{url}\n\n", '{url}\n"1"\nmore\n', '{url}\n"\x00"\n'])
def test_part_of_unknown_origin_is_not_used(server: DroppingServer, to: Path, origin: str) -> None:
    leave(to, server, b"\x1f\x8b junk", origin.format(url=f"{server.url}/{NAME}"))
    get(server, to)
    assert to.read_bytes() == DATA
    assert ranges(server) == [None]


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
        if runs:  # each attempt a run of its own
            while server.drops[NAME] and not to.exists():
                try:
                    get(server, to, tries=1)
                except UserError:
                    assert not to.exists()
        get(server, to, tries=len(drops) + 1)
        assert to.read_bytes() == SMALL
        assert beside(to) == [NAME]


def test_expected_size(server: DroppingServer, to: Path) -> None:
    assert f"has {len(DATA):,} bytes instead of 1,234" in refused(server, to, size=1234)
    assert beside(to) == []


def test_expected_digest(server: DroppingServer, to: Path) -> None:
    sentence = refused(server, to, sha256="0" * 64)
    assert hashlib.sha256(DATA).hexdigest() in sentence
    assert "fetch it anew" in sentence
    assert beside(to) == []
    get(server, to)


@pytest.mark.parametrize(
    ("status", "said"), [(403, "(403 Forbidden)"), (404, "(404 Not Found)"), (410, "(410 Gone)"), (302, "302")]
)
def test_refusals_of_the_server_are_final(server: DroppingServer, to: Path, status: int, said: str) -> None:
    server.answers[NAME] = [(status, b"<html>no</html>")]
    sentence = refused(server, to)
    assert said in sentence
    assert "set WMT_BASE_URL to a mirror that has it" in sentence
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_server_is_asked_again(server: DroppingServer, to: Path, status: int) -> None:
    server.answers[NAME] = [(status, b"<html>later</html>")] * 2
    get(server, to, tries=3)
    assert to.read_bytes() == DATA
    assert len(server.requests) == 3


def test_web_page_in_place_of_an_archive(server: DroppingServer, to: Path) -> None:
    server.answers[NAME] = [(200, b"\n<html>please log in</html>")]
    assert "gave a web page (HTML) instead of a .tgz archive: set WMT_BASE_URL" in refused(server, to)
    assert beside(to) == []
    (server.folder / NAME).write_bytes(b"<!doctype html>")
    assert "gave a web page (HTML)" in refused(server, to)


def test_web_page_leaves_what_has_arrived(server: DroppingServer, to: Path) -> None:
    interrupt(server, to, after=100_000)
    server.answers[NAME] = [(200, b"<html>please log in</html>")]
    refused(server, to)
    get(server, to)
    assert to.read_bytes() == DATA
    assert ranges(server)[-2:] == ["bytes=100000-", "bytes=100000-"]


@pytest.mark.parametrize("data", [b"", b"\x1f", b"PK\x03\x04 and so on"])
def test_no_archive(server: DroppingServer, to: Path, data: bytes) -> None:
    (server.folder / NAME).write_bytes(data)
    assert "gave something else instead of a .tgz archive" in refused(server, to)
    assert beside(to) == []


@pytest.mark.parametrize(
    "url",
    ["wmt/x.tgz", "ftp://x/x.tgz", "http://[/x.tgz", "http://x:y/x.tgz", "http:///x.tgz", "http://x/a b", "http://x/ä"],
)
def test_no_address(to: Path, url: str) -> None:
    with pytest.raises(UserError) as error:
        fetch(url, to)
    assert str(error.value).startswith(f"{url} is not an address that can be fetched (")
    assert "set WMT_BASE_URL" in str(error.value)


def test_unknown_host(to: Path) -> None:
    with pytest.raises(UserError, match=r"^http://no-such-host\.invalid/x\.tgz cannot be fetched .*WMT_BASE_URL"):
        fetch("http://no-such-host.invalid/x.tgz", to, tries=1)


def test_nobody_listens(tmp_path: Path, to: Path) -> None:
    with serve(tmp_path) as server:
        pass
    assert "Connection refused; 2 attempts" in refused(server, to, tries=2)


def test_certificate_that_nobody_vouches_for(tmp_path: Path, to: Path) -> None:
    (tmp_path / NAME).write_bytes(DATA)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serve(tmp_path, tls=context) as server:
        sentence = refused(server, to).replace("self signed", "self-signed")
        assert "self-signed certificate" in sentence
        assert "attempts" not in sentence
        assert server.requests == []


def test_file_url(tmp_path: Path, to: Path) -> None:
    (tmp_path / NAME).write_bytes(DATA)
    fetch((tmp_path / NAME).as_uri(), to)
    assert to.read_bytes() == DATA
    assert beside(to) == [NAME]


def test_file_url_of_nothing(tmp_path: Path, to: Path) -> None:
    with pytest.raises(
        UserError, match=r"^file:///.*/nowhere\.tgz cannot be fetched \(No such file[^;]*\): set WMT_BASE_URL"
    ):
        fetch((tmp_path / "nowhere.tgz").as_uri(), to)


def test_full_disk(server: DroppingServer, small_disk: Path) -> None:
    (small_disk / "taken").write_bytes(bytes(192 << 10))
    data = archive(4, 100_000)
    (server.folder / NAME).write_bytes(data)
    to = small_disk / NAME
    with pytest.raises(UserError) as error:
        get(server, to)
    assert str(error.value) == (
        f"There is no space left for {to}.part: free some space and run the same command again: it goes on from there."
    )
    assert not to.exists()
    (small_disk / "taken").unlink()
    get(server, to)
    assert to.read_bytes() == data
    assert ranges(server)[0] is None
    assert ranges(server)[1] not in (None, "bytes=0-")
    assert beside(to) == [NAME]


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
    digests = [hashlib.sha256(data).hexdigest() for data in (b"a", b"b")]
    assert record.read_text() == f"{digests[0]}  a.tgz\n{digests[1]}  b c.tgz\n"
    subprocess.run(["sha256sum", "--check", "--strict", record.name], cwd=tmp_path, check=True, capture_output=True)

    first.write_bytes(b"A")
    before = record.read_text()
    with pytest.raises(
        UserError, match=r"a\.tgz is not the file that it was.*remove it to fetch it again, or its line"
    ):
        verify(first, record)
    assert record.read_text() == before
    verify(second, record)
    record.write_text(before.partition("\n")[2])
    verify(first, record)
    assert beside(record) == ["SHA256SUMS", "a.tgz", "b c.tgz"]


def test_record_that_sha256sum_wrote(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(b"a")
    for mode in ("--text", "--binary"):
        done = subprocess.run(["sha256sum", mode, "a.tgz"], cwd=tmp_path, check=True, capture_output=True)
        (tmp_path / "record").write_bytes(done.stdout)
        verify(tmp_path / "a.tgz", tmp_path / "record")
        assert (tmp_path / "record").read_bytes() == done.stdout


def test_unreadable_record_or_file(tmp_path: Path) -> None:
    record = tmp_path / "SHA256SUMS"
    (tmp_path / "a.tgz").write_bytes(b"a")
    record.write_text(f"{'0' * 64}  b.tgz\n<html>\n")
    with pytest.raises(UserError, match=r"Line 2 of .*SHA256SUMS is not"):
        verify(tmp_path / "a.tgz", record)
    record.write_bytes(b"\xff\xfe\n")
    with pytest.raises(UserError, match="UTF-8"):
        verify(tmp_path / "a.tgz", record)
    record.unlink()
    with pytest.raises(UserError, match=r"b\.tgz cannot be read: No such file"):
        verify(tmp_path / "b.tgz", record)
    assert not record.exists()
