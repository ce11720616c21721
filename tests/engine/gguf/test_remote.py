import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from tests.engine.paper_gguf import Dense, write_paper
from tests.engine.range_server import Files, serving
from veriloop_tui.engine.gguf.facts import check_loadable, read_facts
from veriloop_tui.engine.gguf.read import read_header
from veriloop_tui.engine.gguf.remote import Access, RemoteFile, read_remote
from veriloop_tui.errors import DownloadFailed, ModelFileInvalid

NOBODY = Access()
BIG = Dense(width=512, feed_forward=2048, blocks=16, vocabulary=50_000)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with serving(Files(tmp_path)) as server:
        yield server


def still() -> float:
    return 0.0


def test_the_facts_are_those_of_the_file_and_little_more_than_its_header_is_fetched(
    files: Files,
) -> None:
    path = write_paper(files.folder / "m.gguf", BIG)
    local = read_facts(path)

    found = read_remote(f"{files.url}/m.gguf", NOBODY)

    assert replace(found.facts, path=local.path, parts=local.parts) == local
    assert found.facts.path == f"{files.url}/m.gguf"
    assert local.file_size > 200 << 20
    assert files.sent <= 4 << 20


def test_a_stand_in_has_the_header_and_the_length_but_takes_no_room(
    files: Files, tmp_path: Path
) -> None:
    write_paper(files.folder / "m.gguf", BIG)
    (tmp_path / "in").mkdir()

    stand_in = read_remote(f"{files.url}/m.gguf", NOBODY).stand_in(tmp_path / "in")

    facts = read_facts(stand_in)
    check_loadable(facts)
    assert facts.sizes == read_facts(files.folder / "m.gguf").sizes
    assert stand_in.stat().st_blocks * 512 < 8 << 20


def test_a_large_header_takes_few_requests(files: Files) -> None:
    write_paper(files.folder / "m.gguf", Dense(vocabulary=150_000))

    read_remote(f"{files.url}/m.gguf", NOBODY)

    assert read_facts(files.folder / "m.gguf").header_size > 3 << 20
    assert len(files.seen) <= 5


def test_a_server_that_knows_no_ranges_will_do(files: Files) -> None:
    write_paper(files.folder / "m.gguf", Dense(vocabulary=100_000, blocks=2))
    files.ranges = False

    found = read_remote(f"{files.url}/m.gguf", NOBODY)

    assert found.facts.vocabulary_size == 100_000


def test_a_server_that_gives_small_parts_will_do(files: Files) -> None:
    write_paper(files.folder / "m.gguf", Dense(vocabulary=20_000))
    files.most = 100_000

    assert read_remote(f"{files.url}/m.gguf", NOBODY).facts.vocabulary_size == 20_000

    files.most = 1_000
    with pytest.raises(DownloadFailed, match="too little at a time"):
        read_remote(f"{files.url}/m.gguf", NOBODY)


def test_the_token_goes_to_its_own_host_and_not_where_that_sends(
    files: Files, tmp_path: Path
) -> None:
    write_paper(tmp_path / "m.gguf", Dense())
    with serving(Files(tmp_path, token="secret", elsewhere=files.url)) as hub:
        found = read_remote(f"{hub.url}/m.gguf", Access(hub.url, "secret"))

        assert found.facts.architecture == "llama"
        assert [token for _, _, token in hub.seen] == ["Bearer secret"]
        assert {token for _, _, token in files.seen} == {""}


def test_a_token_is_not_given_to_a_stranger(files: Files) -> None:
    write_paper(files.folder / "m.gguf", Dense())

    read_remote(f"{files.url}/m.gguf", Access("https://huggingface.co", "secret"))

    assert {token for _, _, token in files.seen} == {""}


def test_a_missing_token_is_said(files: Files) -> None:
    files.token = "secret"

    with pytest.raises(DownloadFailed, match="set HF_TOKEN"):
        read_remote(f"{files.url}/m.gguf", NOBODY)


def test_a_missing_file_is_said(files: Files) -> None:
    with pytest.raises(DownloadFailed, match="no such file"):
        read_remote(f"{files.url}/m.gguf", NOBODY)


def test_a_server_that_sends_in_circles_is_left(files: Files) -> None:
    files.elsewhere = files.url

    with pytest.raises(DownloadFailed, match="one address to the next"):
        read_remote(f"{files.url}/m.gguf", NOBODY)
    assert len(files.seen) < 10


def test_a_lost_connection_is_said(files: Files) -> None:
    write_paper(files.folder / "m.gguf", Dense())
    files.cut = 1000

    with pytest.raises(DownloadFailed, match="connection failed"):
        read_remote(f"{files.url}/m.gguf", NOBODY)


def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(DownloadFailed, match="connection failed"):
        read_remote("http://127.0.0.1:9/m.gguf", NOBODY)


def test_a_server_that_tells_no_size_is_refused(files: Files) -> None:
    write_paper(files.folder / "m.gguf", Dense())
    files.ranges = files.tells_size = False

    with pytest.raises(DownloadFailed, match="how long it is"):
        read_remote(f"{files.url}/m.gguf", NOBODY)


@pytest.mark.parametrize(
    "url", ["ftp://host/m.gguf", "file:///etc/passwd", "http://", "http://[bad/m.gguf", "m.gguf"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises((DownloadFailed, ModelFileInvalid)):
        read_remote(url, NOBODY)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(DownloadFailed) as caught:
        read_remote("https://me:hunter2@host/m.gguf", NOBODY)

    assert "hunter2" not in str(caught.value)


def test_what_is_no_gguf_is_refused_with_its_address(files: Files) -> None:
    (files.folder / "m.gguf").write_text("<!DOCTYPE html>" * 100)

    with pytest.raises(ModelFileInvalid, match="not a GGUF"):
        read_remote(f"{files.url}/m.gguf", NOBODY)


def test_all_parts_of_a_model_are_read(files: Files, split: Path) -> None:
    for part in split.parent.iterdir():
        (files.folder / part.name).write_bytes(part.read_bytes())

    found = read_remote(f"{files.url}/{split.name.replace('00001', '00002')}?download=true", NOBODY)

    local = read_facts(split)
    assert replace(found.facts, path=local.path, parts=local.parts) == local
    assert found.facts.path.endswith(f"/{split.name}?download=true")
    (files.folder / "in").mkdir()
    assert read_facts(found.stand_in(files.folder / "in")).sizes == local.sizes


class Answers(httpx2.BaseTransport):
    """Answers each request by a function."""

    def __init__(self, answer: Callable[[httpx2.Request], httpx2.Response]) -> None:
        self.answer, self.asked = answer, 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        return self.answer(request)


def remote(answer: Callable[[httpx2.Request], httpx2.Response], url: str) -> RemoteFile:
    return RemoteFile(url, NOBODY, httpx2.Client(transport=Answers(answer)), still)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://host/m.gguf", "not encrypted"),
        ("file:///etc/passwd", "not encrypted"),
        ("https://host:port/", "no address"),
    ],
)
def test_an_encrypted_address_never_becomes_a_plain_one(target: str, reason: str) -> None:
    with pytest.raises(DownloadFailed, match=reason):
        remote(lambda _: httpx2.Response(302, headers={"Location": target}), "https://a/m.gguf")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": "bytes 5-10/100"},
        {"Content-Range": "bytes 0-10/*"},
        {"Content-Range": "bytes 0-10/" + "9" * 400},
        {"Content-Range": "nonsense"},
        {},
        {"Content-Range": "bytes 0-10/100", "Content-Encoding": "gzip"},
    ],
)
def test_a_part_that_was_not_asked_for_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(DownloadFailed):
        remote(lambda _: httpx2.Response(206, headers=headers, content=[b"x" * 11]), "https://a/m")


def test_more_bytes_than_announced_are_not_taken() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Length": "10"}, content=[b"x" * 50])

    assert remote(answer, "https://a/m").read(100) == b"x" * 10


def test_a_header_without_an_end_is_left_at_its_bound() -> None:
    array = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 0, 1 << 40)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + array
    transport = Answers(lambda request: part_of(head, request))

    with httpx2.Client(transport=transport) as client:
        file = RemoteFile("https://a/m.gguf", NOBODY, client, still)
        with pytest.raises(DownloadFailed, match="more than 64 MiB"):
            read_header(file, file.size)
    assert transport.asked < 20


def part_of(head: bytes, request: httpx2.Request) -> httpx2.Response:
    """A part of a file of 2 TiB that begins with `head`."""
    first, last = (int(one) for one in request.headers["Range"].removeprefix("bytes=").split("-"))
    data = head[first : last + 1].ljust(last + 1 - first, b"\0")
    told = {"Content-Range": f"bytes {first}-{last}/{1 << 41}"}
    return httpx2.Response(206, headers=told, content=[data])


def test_a_slow_server_is_left() -> None:
    now = iter(range(0, 100_000, 100))
    told = {"Content-Range": "bytes 0-9/100"}
    transport = Answers(lambda _: httpx2.Response(206, headers=told, content=[b"x" * 10]))

    with pytest.raises(DownloadFailed, match="took more than"):
        RemoteFile(
            "https://a/m", NOBODY, httpx2.Client(transport=transport), lambda: next(now) * 9.0
        )


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """A model in two parts; the first one's path."""
    folder = tmp_path / "split"
    folder.mkdir()
    return write_paper(folder / "m.gguf", Dense(), tensors_each=20)
