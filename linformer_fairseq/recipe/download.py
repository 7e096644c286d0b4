"""Fetching archives over connections that break, and telling later whether they are still the same."""

import re
import socket
import ssl
import time
from collections.abc import Callable
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import sha256_of, write_text, writing
from linformer_fairseq.cli.progress import bar, say

from .texts import read_lines

TIMEOUT_SECONDS = 60.0
PAUSE_SECONDS = 1.0  # after an attempt that brought something; doubled by every one that did not
LONGEST_PAUSE_SECONDS = 30.0
CHUNK = 1 << 16
GZIP_MAGIC = b"\x1f\x8b"
TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}  # another attempt may find the server mended


class SourceError(UserError):
    """An archive cannot be had, or is not what it should be; its message ends in what can be done."""

    def __init__(self, what: str, *remedies: str) -> None:
        super().__init__(f"{what}: {', or '.join(remedies)}." if remedies else f"{what}.")
        self._what = what
        self._remedies = remedies

    def or_else(self, remedy: str) -> "SourceError":
        """Returns the error with one more remedy, unless that is empty."""
        return SourceError(self._what, *self._remedies, remedy) if remedy else self


class _ConnectionLostError(Exception):
    """A connection that failed in a way that another attempt may mend."""


def fetch(url: str, to: Path, sha256: str | None = None, tries: int = 5) -> None:
    """Downloads a gzipped archive; a `to` that exists is left alone, without a request.

    What has arrived stands in `to.part`, and `to.part.from` says of which version it is: the URL and the server's
    validator, an ETag or else a date. Only with both the download goes on where it was, asking for the rest under
    the condition that the version is still the same (RFC 9110, sections 13.1.5 and 14). Without a validator, or from
    another URL, nothing vouches for the first half, and it starts anew.

    Args:
        url: http, https or file.
        sha256: the digest that the whole file must have.
        tries: attempts in a row that may end without anything new before it gives up.

    Raises:
        SourceError: it cannot be had, is no gzip file, or is not what it should be.
    """
    if to.exists():
        return
    part, origin = to.with_name(f"{to.name}.part"), to.with_name(f"{to.name}.part.from")
    with writing(to):
        to.parent.mkdir(parents=True, exist_ok=True)
    _fetch_with_retries(url, part, origin, tries)
    if sha256 is not None and (digest := sha256_of(part)) != sha256.lower():
        _start_anew(part, origin)
        raise SourceError(
            f"{url} has the sha256 digest {digest} instead of {sha256}", "run the same command again to fetch it anew"
        )
    with writing(to):
        part.replace(to)
        origin.unlink(missing_ok=True)


def verify(path: Path, record: Path, sha256: str | None = None) -> None:
    """Refuses a file that has another digest than when it was first seen.

    Args:
        record: lines of digest and name, as sha256sum writes and checks them; made, and added to, where need be.
        sha256: the digest that it must have in any case, where one is published.

    Raises:
        UserError: the file has changed or is another one, or one of the two cannot be read.
    """
    recorded = _read_record(record)
    digest = sha256_of(path)
    if sha256 is not None and digest != sha256:
        raise SourceError(
            f"{path} is not the published archive (its sha256 digest is {digest} instead of {sha256})",
            "remove it to fetch it",
        )
    if path.name not in recorded:
        remember(path, record)
    elif recorded[path.name] != digest:
        raise UserError(
            f"{path} is not the file that it was when {record} was written: remove it to fetch it again, or its line "
            "there if it was meant to change."
        )


def remember(path: Path, record: Path) -> None:
    """Writes the digest of a file to the record, in place of an earlier one."""
    recorded = {**_read_record(record), path.name: sha256_of(path)}
    with writing(record):
        write_text(record, "".join(f"{digest}  {name}\n" for name, digest in recorded.items()))


def _read_record(record: Path) -> dict[str, str]:
    """Returns the recorded digest of each file name."""
    recorded = {}
    for number, line in enumerate(read_lines(record) if record.exists() else [], start=1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if match is None:
            raise UserError(f"Line {number} of {record} is not a sha256 digest and a name: remove that line.")
        recorded[match[2]] = match[1]
    return recorded


def _fetch_with_retries(url: str, part: Path, origin: Path, tries: int) -> None:
    """Makes attempts until the part is whole, or enough in a row have brought nothing new."""
    furthest, _ = _resumable(part, origin, url)
    failures = 0
    while True:
        try:
            return _attempt(url, part, origin)
        except _ConnectionLostError as error:
            # the furthest of all attempts counts: one that starts anew each time must come to an end too
            reached = part.stat().st_size if part.exists() else 0
            failures = 0 if reached > furthest else failures + 1
            furthest = max(furthest, reached)
            if failures >= tries:
                raise SourceError(
                    f"{url} cannot be fetched ({error}; {tries} attempts in a row brought nothing new)",
                    "run the same command again later, which goes on from there",
                ) from None
            say(f"{url}: {error}; trying again")
            time.sleep(min(PAUSE_SECONDS * 2**failures, LONGEST_PAUSE_SECONDS))


def _attempt(url: str, part: Path, origin: Path) -> None:
    """Makes one request for all that is missing.

    Raises:
        _ConnectionLostError: another request may help.
        SourceError: no other request would help.
    """
    have, validator = _resumable(part, origin, url)
    with _open(url, {"Range": f"bytes={have}-", "If-Range": validator} if have else {}) as response:
        first, total = _extent(response.headers)
        if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if have == total:
                return
            _start_anew(part, origin)
            raise _ConnectionLostError("what has arrived is longer than the file")
        if response.status == HTTPStatus.PARTIAL_CONTENT:
            # a server that disregards If-Range may send the rest of another version
            if first != have or (have and _validator(response.headers) not in ("", validator)):
                _start_anew(part, origin)
                raise _ConnectionLostError("the rest does not fit what has arrived")
        else:
            have = 0
        head = b"" if have else _head(response, total, url)
        with writing(part), open(part, "ab" if have else "wb") as file:
            if not have:  # the old part is gone: only now the new version may be named
                write_text(origin, f"{url}\n{_validator(response.headers)}\n")
                have = file.write(head)
            with bar(total, part.stem, "B", initial=have) as progress:
                while total is None or have < total:
                    chunk = _read(response.read1, CHUNK if total is None else min(CHUNK, total - have))
                    if not chunk:
                        break
                    have += file.write(chunk)
                    progress.update(len(chunk))
    if total is not None and have < total:
        raise _ConnectionLostError(f"the connection ended after {have:,} of {total:,} bytes")


def _open(url: str, headers: dict[str, str]) -> Any:
    """Returns the response to a request; only the refusal of a range is not an error."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "file"):
            raise ValueError("not http, https or file")
        if parts.scheme != "file" and not parts.hostname:
            raise ValueError("no host")
        return urlopen(Request(url, headers={"User-Agent": "linformer_fairseq", **headers}), timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return error
        error.close()
        what = f"{error.code} {error.reason}"
        if error.code in TRANSIENT_STATUSES:
            raise _ConnectionLostError(what) from None
        raise SourceError(f"{url} cannot be fetched ({what})") from None
    except (ValueError, InvalidURL) as error:
        raise SourceError(f"{url} is not an address that can be fetched ({error})") from None
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        unknown_host = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME
        if parts.scheme == "file" or unknown_host or isinstance(cause, ssl.SSLCertVerificationError):
            raise SourceError(f"{url} cannot be fetched ({_reason(cause)})") from None
        raise _ConnectionLostError(_reason(cause)) from None


def _read(read: Callable[[int], bytes], count: int) -> bytes:
    """Returns bytes from a connection, whose errors are kept apart from those of the disk."""
    try:
        return read(count)
    except (OSError, HTTPException) as error:
        raise _ConnectionLostError(_reason(error)) from None


def _head(response: Any, total: int | None, url: str) -> bytes:
    """Returns the first bytes of an archive; anything else, an error page say, is refused before it replaces a part."""
    head = _read(response.read, len(GZIP_MAGIC))
    if len(head) < len(GZIP_MAGIC) and len(head) != total:
        raise _ConnectionLostError("the connection ended at once")
    if head != GZIP_MAGIC:
        html = head.startswith(b"<") or response.headers.get_content_type() == "text/html"
        what = "a web page (HTML)" if html else "something else"
        raise SourceError(f"{url} gave {what} instead of a .tgz archive")
    return head


def _reason(error: object) -> str:
    """Returns the text of an error without its number."""
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _extent(headers: Message) -> tuple[int | None, int | None]:
    """Returns the first byte that a response holds and the size of the whole file, each None where it does not say."""
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", headers.get("Content-Range", ""))
    if match:
        return int(match[1]) if match[1] else None, int(match[2])
    length = headers.get("Content-Length", "")
    return None, int(length) if length.isdecimal() else None


def _validator(headers: Message) -> str:
    """Returns the ETag or date that tells this version from all others; empty if there is none, as for a weak ETag."""
    tag = headers.get("ETag")
    if tag is None:
        return headers.get("Last-Modified", "")
    return "" if tag.startswith("W/") else tag


def _resumable(part: Path, origin: Path, url: str) -> tuple[int, str]:
    """Returns the number of bytes that a download can go on from, and their validator."""
    if not (part.exists() and origin.exists()):
        return 0, ""
    source, _, validator = origin.read_text(encoding="utf-8", errors="replace").removesuffix("\n").partition("\n")
    fits = source == url and validator and validator.isascii() and validator.isprintable()
    return (part.stat().st_size, validator) if fits else (0, "")


def _start_anew(part: Path, origin: Path) -> None:
    """Removes what has arrived, so that the next attempt begins at the first byte."""
    part.unlink(missing_ok=True)
    origin.unlink(missing_ok=True)
