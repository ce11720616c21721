"""The header of a GGUF that is still on a server: some megabytes instead of the whole file.

The server is a stranger. What is asked of it, how much is taken from it and for how long are
bounded, and a token goes to the one host that it is for, wherever that host sends us.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import httpx2

from veriloop_tui.engine.gguf.facts import GGUFFacts, facts_of
from veriloop_tui.engine.gguf.read import Header, Malformed, read_header
from veriloop_tui.engine.gguf.shards import shard_names
from veriloop_tui.errors import DownloadFailed, ModelFileInvalid

_FIRST: Final = 1 << 20
_MOST_AT_ONCE: Final = 16 << 20
# The largest header so far has about twelve megabytes: 250,000 tokens and as many merges.
_MOST: Final = 64 << 20
_MOST_SIZE: Final = 1 << 44
_MOST_REQUESTS: Final = 64
_REDIRECTS: Final = 5
_TIMEOUT_SECONDS: Final = 30.0
_WHOLE_SECONDS: Final = 180.0
_STATUS: Final = {
    401: "it wants a token; set HF_TOKEN",
    403: "it wants a token with more rights; accept the model's terms and set HF_TOKEN",
    404: "there is no such file",
}

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Access:
    """A token, and the origin (such as `https://huggingface.co`) that alone may see it."""

    origin: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model's facts, and the bytes of the header of each of its files."""

    facts: GGUFFacts
    headers: tuple[bytes, ...]

    def stand_in(self, folder: Path) -> Path:
        """Write files of the true headers and lengths into `folder`, with a hole for the weights.

        They take no room for those. The first one's path. Raises `OSError` where the disk cannot.
        """
        count = len(self.headers)
        paths = [
            folder / (f"model-{at:05}-of-{count:05}.gguf" if count > 1 else "model.gguf")
            for at in range(1, count + 1)
        ]
        for path, data, part in zip(paths, self.headers, self.facts.parts, strict=True):
            with path.open("wb") as file:
                file.write(data)
                file.truncate(part.size)
        return paths[0]


def read_remote(url: str, access: Access, clock: Clock = time.monotonic) -> RemoteModel:
    """The model behind an http(s) address, or that the file there is a part of.

    Raises `DownloadFailed`, `ModelFileInvalid`.
    """
    with httpx2.Client(timeout=_TIMEOUT_SECONDS) as client:
        try:
            files = [_read(RemoteFile(one, access, client, clock)) for one in _part_urls(url)]
        except httpx2.InvalidURL as problem:
            raise DownloadFailed(url, f"that is no address ({problem})") from problem
    facts = facts_of([(url, size, header) for url, size, header, _ in files])
    return RemoteModel(facts, tuple(data for _, _, _, data in files))


class RemoteFile:
    """The beginning of a file on a server, fetched in growing pieces as it is read."""

    def __init__(self, url: str, access: Access, client: httpx2.Client, clock: Clock) -> None:
        """Ask for the first piece. Raises `DownloadFailed`."""
        self.url = self._where = url
        self._access, self._client, self._clock = access, client, clock
        self._deadline = clock() + _WHOLE_SECONDS
        self._data = bytearray()
        self._at = self._asked = 0
        self.size = 0
        self._fetch(_FIRST)

    def read(self, size: int) -> bytes:
        """At most `size` bytes; fewer only at the file's end. Raises `DownloadFailed`."""
        end = min(self._at + size, self.size)
        if end > _MOST:
            self._fail(f"its header has more than {_MOST >> 20} MiB")
        while (have := len(self._data)) < end:
            self._fetch(min(max(end, 2 * have), have + _MOST_AT_ONCE, _MOST))
        begin, self._at = self._at, max(end, self._at)
        return bytes(self._data[begin:end])

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go on reading from there; what is passed over is fetched all the same."""
        self._at = offset + (self._at if whence == 1 else 0)
        return self._at

    def first(self, size: int) -> bytes:
        """The file's first bytes. Raises `DownloadFailed`."""
        self.seek(0)
        return self.read(size)

    def _fetch(self, end: int) -> None:
        """Have more of the file's first `end` bytes, or all of it."""
        self._asked += 1
        if self._asked > _MOST_REQUESTS:
            self._fail("the server sends too little at a time")
        have = len(self._data)
        headers = {"Range": f"bytes={have}-{end - 1}", "Accept-Encoding": "identity"}
        for _ in range(_REDIRECTS + 1):
            try:
                with self._client.stream(
                    "GET", self._where, headers={**headers, **self._token()}, follow_redirects=False
                ) as answer:
                    if answer.is_redirect:
                        self._follow(answer.headers.get("Location", ""))
                        continue
                    self._take(answer, have, end)
                    return
            except (httpx2.TransportError, httpx2.StreamError) as lost:
                self._fail(f"the connection failed ({lost or type(lost).__name__})")
        self._fail("the server sends from one address to the next")

    def _token(self) -> dict[str, str]:
        ours = self._access.token and _origin(self._where) == self._access.origin
        return {"Authorization": f"Bearer {self._access.token}"} if ours else {}

    def _follow(self, location: str) -> None:
        try:
            target = httpx2.URL(self._where).join(location)
        except httpx2.InvalidURL:
            self._fail("the server sends to what is no address")
        plain = target.scheme == "http" and not self._where.startswith("https:")
        if target.scheme != "https" and not plain:
            self._fail("the server sends to an address that is not encrypted")
        self._where = str(target)

    def _take(self, answer: httpx2.Response, have: int, end: int) -> None:
        """Append the piece from `have` to `end`; a server without ranges begins at the start."""
        if answer.status_code not in (200, 206):
            problem = _STATUS.get(answer.status_code)
            self._fail(problem or f"the server answered with status {answer.status_code}")
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            self._fail("the server packs it")
        partial = answer.status_code == 206
        size = _size(answer.headers.get("Content-Range" if partial else "Content-Length", ""))
        begins = _begins(answer.headers.get("Content-Range", "")) if partial else 0
        if not 0 < size < _MOST_SIZE or (self.size and size != self.size):
            self._fail("the server does not say how long it is, or changed it meanwhile")
        if begins not in (0, have):
            self._fail("the server sends another part than it was asked for")
        self.size = size
        end = min(end, size)
        skip = have - begins
        for piece in answer.iter_raw():
            if self._clock() > self._deadline:
                self._fail(f"it took more than {_WHOLE_SECONDS:.0f} seconds")
            fresh = piece[skip:]
            skip = max(0, skip - len(piece))
            self._data += fresh[: end - len(self._data)]
            if len(self._data) >= end:
                return
        if len(self._data) <= have:
            self._fail("the server ended before anything had come")

    def _fail(self, problem: str) -> NoReturn:
        raise DownloadFailed(self.url, problem)


def _read(file: RemoteFile) -> tuple[str, int, Header, bytes]:
    try:
        header = read_header(file, file.size)
    except Malformed as problem:
        raise ModelFileInvalid(file.url, str(problem)) from None
    return file.url, file.size, header, file.first(header.data_start)


def _part_urls(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise DownloadFailed(url, f"that is no address ({problem})") from problem
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DownloadFailed(url, "an address begins with http:// or https:// and a host")
    if "@" in parts.netloc:
        # Not shown: what stands there is a password.
        raise DownloadFailed("The file", "its address must hold no name or key; set HF_TOKEN")
    folder, _, name = parts.path.rpartition("/")
    try:
        names = shard_names(unquote(name))
    except Malformed as problem:
        raise ModelFileInvalid(url, str(problem)) from None
    if len(names) == 1:
        return [url]
    return [urlunsplit(parts._replace(path=f"{folder}/{quote(one)}")) for one in names]


def _origin(url: str) -> str:
    parts = httpx2.URL(url)
    return f"{parts.scheme}://{parts.netloc.decode('ascii', 'replace')}"


def _size(told: str) -> int:
    """The length of the whole file, 0 if it is not told."""
    number = told.rpartition("/")[2].strip()
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else 0


def _begins(told: str) -> int:
    """Where a part begins, −1 if it is not told."""
    number = told.removeprefix("bytes ").partition("-")[0].strip()
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else -1
