"""The Hugging Face hub: what a repository has, and fetching it so that a cut costs nothing.

Listing, tokens, endpoints and the cache's layout are huggingface-hub's. The bytes come through
its session too, but into a file that outlives an interruption: the library drops what it had.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NoReturn

from veriloop_tui.errors import Cancelled, DownloadFailed
from veriloop_tui.registry.files import RepoFile

_TRIES: Final = 6
_LEFT_FREE: Final = 512 << 20
_TIMEOUT_SECONDS: Final = 30.0

# Called with the bytes that are on the disk of the file at hand.
Progress = Callable[[RepoFile, int], None]


@dataclass(frozen=True, slots=True)
class Revision:
    """A repository at one commit, and the files in it."""

    repo: str
    commit: str
    files: tuple[RepoFile, ...]


def list_files(repo: str) -> Revision:
    """The repository as it is now. Raises `DownloadFailed`."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile as HubFile

    with _told(repo):
        api = HfApi()
        commit = api.repo_info(repo, timeout=_TIMEOUT_SECONDS).sha
        tree = list(api.list_repo_tree(repo, recursive=True, revision=commit))
    files = []
    for entry in tree:
        if isinstance(entry, HubFile) and _is_tame(entry.path):
            sha256 = entry.lfs.sha256 if entry.lfs is not None else ""
            files.append(RepoFile(entry.path, entry.size, sha256))
    return Revision(repo, commit or "main", tuple(files))


def missing_bytes(revision: Revision, files: tuple[RepoFile, ...]) -> int:
    """The bytes that are still to be fetched of these files."""
    return sum(file.size - _have(_part(revision.repo, file), file) for file in files)


def check_room(files: tuple[RepoFile, ...], missing: int, free: int) -> None:
    """Refuse what would fill the disk. `free` in bytes. Raises `DownloadFailed`."""
    if missing + _LEFT_FREE > free:
        raise DownloadFailed(
            files[0].name,
            f"{missing / 2**30:.1f} GiB are to be fetched and {free / 2**30:.1f} GiB are free; "
            "make room, or set HF_HOME to a larger disk",
        )


def cache_free() -> int:
    """Free bytes where the Hugging Face cache is."""
    return shutil.disk_usage(_existing(_cache())).free


def fetch(
    revision: Revision,
    file: RepoFile,
    progress: Progress,
    cancelled: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch one file into the cache, from where an earlier try ended; its path there.

    Connection losses are retried. Raises `DownloadFailed`, `Cancelled`.
    """
    from huggingface_hub import hf_hub_download

    blob = _blob(revision.repo, file)
    if _have(blob, file) == file.size:
        progress(file, file.size)
    elif file.sha256:
        part = _part(revision.repo, file)
        with _told(file.name):
            part.parent.mkdir(parents=True, exist_ok=True)
            _fill(part, revision, file, progress, cancelled, sleep)
        _check(part, file)
        part.replace(blob)
    with _told(file.name):
        # The bytes are there, so this only makes the links that the cache's readers look for;
        # a file without a sha256 is small, and comes with it.
        return Path(hf_hub_download(revision.repo, file.name, revision=revision.commit))


def verify(path: Path, sha256: str) -> bool:
    """Whether a file's bytes are what the hub published. Raises `DownloadFailed`."""
    with _told(path.name):
        return _sha256(path) == sha256


def remove(repo: str, names: tuple[str, ...]) -> int:
    """Delete files of a repository from the cache, in all revisions; the bytes that became free.

    Raises `DownloadFailed`.
    """
    from huggingface_hub import CacheNotFound, scan_cache_dir

    freed = 0
    with _told(repo):
        try:
            info = scan_cache_dir()
        except CacheNotFound:
            return 0
        for cached in info.repos:
            if cached.repo_type != "model" or cached.repo_id != repo:
                continue
            for revision in cached.revisions:
                for one in revision.files:
                    if str(one.file_path.relative_to(revision.snapshot_path)) in names:
                        freed += one.size_on_disk if one.blob_path.exists() else 0
                        one.file_path.unlink(missing_ok=True)
                        one.blob_path.unlink(missing_ok=True)
    return freed


def _fill(
    part: Path,
    revision: Revision,
    file: RepoFile,
    progress: Progress,
    cancelled: Callable[[], bool],
    sleep: Callable[[float], None],
) -> None:
    """Append to `part` until it is as long as the file. Tries again while bytes arrive."""
    import httpx2

    fruitless = 0
    while (have := _have(part, file)) < file.size:
        try:
            _append(part, revision, file, progress, cancelled)
        except httpx2.TransportError as lost:
            fruitless = 0 if _have(part, file) > have else fruitless + 1
            if fruitless >= _TRIES:
                problem = f"the connection was lost ({lost or type(lost).__name__})"
                raise DownloadFailed(
                    file.name, f"{problem}; run the same command to go on"
                ) from lost
            sleep(min(2.0**fruitless, 30.0))
    progress(file, file.size)


def _append(
    part: Path,
    revision: Revision,
    file: RepoFile,
    progress: Progress,
    cancelled: Callable[[], bool],
) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    have = _have(part, file)
    headers: dict[str, str] = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    url = hf_hub_url(revision.repo, file.name, revision=revision.commit)
    with get_session().stream(
        "GET", url, headers=headers, follow_redirects=True, timeout=_TIMEOUT_SECONDS
    ) as response:
        if response.status_code != 206:
            hf_raise_for_status(response)
        # A server that does not know ranges begins at the start again.
        with part.open("ab" if response.status_code == 206 else "wb") as out:
            for piece in response.iter_raw():
                if out.tell() + len(piece) > file.size:
                    raise DownloadFailed(file.name, "the server sends more bytes than it announced")
                out.write(piece)
                progress(file, out.tell())
                if cancelled():
                    raise Cancelled


def _check(part: Path, file: RepoFile) -> None:
    if file.sha256 and _sha256(part) != file.sha256:
        part.unlink()
        raise DownloadFailed(
            file.name, "its sha256 is not the published one, so it was deleted; fetch it again"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _have(path: Path, file: RepoFile) -> int:
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size if size <= file.size else 0


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _blob(repo: str, file: RepoFile) -> Path:
    """Where the cache keeps a file of this content: large ones go by their sha256."""
    folder = _cache() / f"models--{repo.replace('/', '--')}" / "blobs"
    return folder / (file.sha256 or "small")


def _part(repo: str, file: RepoFile) -> Path:
    blob = _blob(repo, file)
    return blob.with_name(f"{blob.name}.veriloop-part")


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _is_tame(name: str) -> bool:
    """Whether a name stays inside the snapshot's folder; it comes from a stranger."""
    path = PurePosixPath(name)
    return (
        not path.is_absolute()
        and ".." not in path.parts
        and name.isprintable()
        and "\\" not in name
    )


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What goes wrong on the way, as one sentence that says what to do."""
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled:
        _fail(what, "HF_HUB_OFFLINE is set; unset it to use the network")
    except errors.GatedRepoError:
        _fail(what, "its authors ask for your consent: accept it on the hub and set HF_TOKEN")
    except errors.RepositoryNotFoundError:
        _fail(what, "the hub has no such repository, or it is private: check it, or set HF_TOKEN")
    except errors.EntryNotFoundError:
        _fail(
            what, "the repository has no such file any more; list it with `veriloop models files`"
        )
    except errors.HFValidationError as problem:
        _fail(what, str(problem))
    except errors.HfHubHTTPError as problem:
        status = problem.response.status_code if problem.response is not None else 0
        _fail(what, _status_sentence(status))
    except httpx2.TransportError as problem:
        _fail(what, f"the hub cannot be reached ({problem or type(problem).__name__})")
    except OSError as problem:
        _fail(what, problem.strerror or str(problem))


def _status_sentence(status: int) -> str:
    if status in (401, 403):
        return "the hub wants a token for it; set HF_TOKEN"
    return f"the hub answered with status {status}; try again later"


def _fail(what: str, problem: str) -> NoReturn:
    raise DownloadFailed(what, problem) from None
