"""A server of files on this machine that fails as it is told to."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import SSLContext
from typing import Literal
from urllib.parse import unquote, urlsplit


@dataclass
class DroppingServer:
    """Its knobs, which may be turned while it runs, and what it was asked for."""

    folder: Path
    url: str = ""  # of the folder
    ranges: bool = True  # honours Range; otherwise it sends whole files
    if_range: bool = True  # honours If-Range; otherwise it sends ranges of whatever version there is
    tells: bool = True  # the version of a range too
    late: int = 0  # ranges start so many bytes later than asked for
    lengths: bool = True  # tells a file's length; otherwise it sends chunks
    etag: str | None = '"1"'
    last_modified: str | None = None
    drop: Literal["close", "reset", "stall"] = "close"
    drops: dict[str, list[int]] = field(default_factory=dict)  # path -> bytes after which the next responses break
    answers: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)  # path -> status and page of the next
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(folder: Path, tls: SSLContext | None = None) -> Iterator[DroppingServer]:
    """Serves `folder` on 127.0.0.1 until the end of the block."""
    served = DroppingServer(folder)

    class Handler(_Handler):
        server_state = served

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        served.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_state: DroppingServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        state = self.server_state
        path = unquote(urlsplit(self.path).path).lstrip("/")
        state.requests.append((path, self.headers.get("Range")))
        file = state.folder / path
        if state.answers.get(path):
            self._page(*state.answers[path].pop(0))
        elif not file.is_file():
            self._page(HTTPStatus.NOT_FOUND, b"<html>no such file</html>")
        else:
            self._file(path, file.read_bytes())

    def _page(self, status: int, page: bytes) -> None:
        self._head(status, {"Content-Type": "text/html", "Content-Length": str(len(page))})
        self.wfile.write(page)

    def _file(self, path: str, data: bytes) -> None:
        state = self.server_state
        validators = {"ETag": state.etag, "Last-Modified": state.last_modified}
        headers = {name: value for name, value in validators.items() if value is not None}
        start = self._start()
        if start is not None and not state.tells:
            headers = {}
        if start is not None and start >= len(data):
            headers |= {"Content-Range": f"bytes */{len(data)}", "Content-Length": "0"}
            self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers)
            return
        body = data[start or 0 :]
        headers |= {"Content-Length": str(len(body))} if state.lengths else {"Transfer-Encoding": "chunked"}
        if start is None:
            self._head(HTTPStatus.OK, headers)
        else:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._head(HTTPStatus.PARTIAL_CONTENT, headers)
        drops = state.drops.get(path)
        cut = drops.pop(0) if drops else None
        self._body(body[:cut])
        if cut is not None:
            self._break()
        elif not state.lengths:
            self.wfile.write(b"0\r\n\r\n")

    def _start(self) -> int | None:
        """The first byte of the range that is to be sent, if one is."""
        state = self.server_state
        wanted, condition = self.headers.get("Range"), self.headers.get("If-Range")
        if wanted is None or not state.ranges:
            return None
        if state.if_range and condition not in (None, state.etag, state.last_modified):
            return None
        return int(wanted.removeprefix("bytes=").removesuffix("-")) + state.late

    def _body(self, body: bytes) -> None:
        if self.server_state.lengths:
            self.wfile.write(body)
        elif body:
            self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")

    def _break(self) -> None:
        state = self.server_state
        if state.drop == "stall":
            state.closing.wait()
        if state.drop == "reset":  # closed at once, with whatever is on its way
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is said."""
