"""A small server that speaks the Hugging Face hub's protocol, with the troubles of a network."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
REPO = "someone/tiny-GGUF"


@dataclass
class Hub:
    """What it serves, and what it does to those who ask.

    `cut_after` ends each of the next `cuts` downloads after so many bytes; `token` is asked for
    where it is not empty; `lies` are files whose bytes are not those of the published sha256;
    `extra` are further names in the listing.
    """

    files: dict[str, bytes]
    cut_after: int = 0
    cuts: int = 0
    token: str = ""
    ranges: bool = True
    lies: set[str] = field(default_factory=set)
    extra: tuple[str, ...] = ()
    sent: int = 0
    url: str = ""

    def tree(self) -> list[dict[str, object]]:
        """The listing, as the hub writes it."""
        entries: list[dict[str, object]] = []
        for name, data in self.files.items():
            sha = hashlib.sha256(data).hexdigest()
            lfs = {"oid": sha, "size": len(data), "pointerSize": 130}
            entry = {"type": "file", "path": name, "size": len(data), "oid": "b" * 40, "lfs": lfs}
            entries.append(entry)
        for name in self.extra:
            entries.append({"type": "file", "path": name, "size": 3, "oid": "b" * 40})
        return entries


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._end(401, {"X-Error-Code": "GatedRepo"}, b"{}")
            elif path == f"/api/models/{REPO}":
                self._json({"id": REPO, "sha": COMMIT, "siblings": []})
            elif path == f"/api/models/{REPO}/tree/{COMMIT}":
                self._json(hub.tree())
            elif path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
                self._file(path.removeprefix(f"/{REPO}/resolve/{COMMIT}/"))
            else:
                self._end(404, {"X-Error-Code": "RepoNotFound"}, b"{}")

        def _file(self, name: str) -> None:
            data = hub.files[name]
            if name in hub.lies:
                data = bytes(len(data))
            sha = hashlib.sha256(hub.files[name]).hexdigest()
            headers = {"ETag": f'"{sha}"', "X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(data))}
            start = 0
            asked = self.headers.get("Range")
            if asked and hub.ranges:
                start = int(asked.removeprefix("bytes=").split("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._end(206 if start else 200, headers, data[start:])

        def _json(self, value: object) -> None:
            self._end(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

        def _end(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.cuts and "ETag" in headers:
                hub.cuts -= 1
                body = body[: hub.cut_after]
                self.close_connection = True
            if "ETag" in headers:
                hub.sent += len(body)
            self.wfile.write(body)
            self.wfile.flush()

    return Handler


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve `hub` on a free loopback port; its `url` is set."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
