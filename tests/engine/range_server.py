"""A server of files that knows ranges, redirects and tokens, and can do all of it badly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


@dataclass
class Files:
    """What is served, and how.

    `token` is asked for where it is not empty; `elsewhere` is where every request is sent to;
    `cut` ends each answer after so many bytes; `most` is the longest part that is given at once.
    `seen` has path, range and token of each request.
    """

    folder: Path
    ranges: bool = True
    token: str = ""
    elsewhere: str = ""
    cut: int | None = None
    most: int = 1 << 40
    tells_size: bool = True
    sent: int = 0
    url: str = ""
    seen: list[tuple[str, str, str]] = field(default_factory=list)


def _handler(files: Files) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_args: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            token = self.headers.get("Authorization", "")
            files.seen.append((self.path, asked, token))
            path = files.folder / unquote(self.path).lstrip("/").partition("?")[0]
            if files.token and token != f"Bearer {files.token}":
                self._end(401, {}, 0)
            elif files.elsewhere:
                self._end(302, {"Location": files.elsewhere + self.path}, 0)
            elif not path.is_file():
                self._end(404, {}, 0)
            else:
                self._file(path, asked)

        def _file(self, path: Path, asked: str) -> None:
            size, begin, end = path.stat().st_size, 0, path.stat().st_size
            headers: dict[str, str] = {}
            if asked and files.ranges:
                first, last = asked.removeprefix("bytes=").split("-")
                begin = int(first)
                end = min(size, int(last) + 1, begin + files.most)
                headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
            self._end(206 if headers else 200, headers, end - begin)
            try:
                with path.open("rb") as data:
                    data.seek(begin)
                    left = end - begin if files.cut is None else min(end - begin, files.cut)
                    while left > 0:
                        piece = data.read(min(left, 1 << 16))
                        self.wfile.write(piece)
                        files.sent += len(piece)
                        left -= len(piece)
            except OSError:
                pass  # It has what it wanted.
            if files.cut is not None:
                self.close_connection = True

        def _end(self, status: int, headers: dict[str, str], length: int) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            if files.tells_size or status != 200:
                self.send_header("Content-Length", str(length))
            else:
                self.close_connection = True
            self.end_headers()

    return Handler


@contextmanager
def serving(files: Files) -> Iterator[Files]:
    """Serve on a free loopback port; its `url` is set."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(files))
    server.daemon_threads = True
    files.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
