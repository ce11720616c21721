"""Chooses the best rung of the staging ladder that works here, by trying each end to end."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from veriloop_tui.core.ports import Stager
from veriloop_tui.core.snapshot import Delete, Write
from veriloop_tui.errors import StagingUnavailable
from veriloop_tui.store.staging.area import is_private, stage_area, sweep
from veriloop_tui.store.staging.copying import CopyStager
from veriloop_tui.store.staging.namespace import MountNamespace, find_namespace
from veriloop_tui.store.staging.overlay import OverlayStager

WantedRung = Literal["auto", "overlay", "copy"]

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - used only through a private folder in it
_PROBE_TIMEOUT = 20.0
_PROBE_VIEW = (
    'test ! -e gone && test "$(cat kept)" = new && test "$(cat made/deep)" = made'
    ' && rm -r folder && mkdir folder && test -z "$(ls folder)" && : >written'
)


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """Why a rung does not work here, as the end of a sentence."""

    problem: str


def choose_stager(
    root: Path, scratch_dir: Path, wanted: WantedRung = "auto"
) -> tuple[Stager, tuple[str, ...]]:
    """The best stager for the workspace, and notices for the user where it is not the first rung.

    `scratch_dir` is a private folder outside the workspace; what killed runs left there is
    removed. Raises `StagingUnavailable` where the wanted rung does not work.
    """
    root = root.resolve()
    namespace = find_namespace()
    scratch_dir = scratch_dir.resolve()
    memory = _SHARED_MEMORY / f"veriloop-{os.geteuid()}"
    sweep(scratch_dir)
    if memory.is_dir() and is_private(memory):
        sweep(memory)
    failed = ProbeFailed("the rung 'copy' was asked for")
    if wanted != "copy":
        found = _overlay(root, scratch_dir, memory, namespace)
        if not isinstance(found, ProbeFailed):
            return found
        failed = found
        if wanted == "overlay":
            raise StagingUnavailable("overlay", failed.problem)
    return _copy(root, scratch_dir, namespace, failed)


def _overlay(
    root: Path, scratch_dir: Path, memory: Path, namespace: MountNamespace | None
) -> tuple[Stager, tuple[str, ...]] | ProbeFailed:
    if namespace is None:
        return ProbeFailed("the programs 'unshare' and 'mount' (util-linux) are not installed")
    unfit = _unfit_for_overlay(root)
    if unfit is not None:
        return unfit
    on_disk = OverlayStager(root, scratch_dir, namespace)
    failed = probe(on_disk)
    if failed is None:
        return on_disk, ()
    # An overlay's upper folder cannot lie on an overlay itself, as disks of containers do.
    in_memory = OverlayStager(root, memory, namespace)
    if not _make_private(memory) or probe(in_memory) is not None:
        return failed
    return in_memory, (
        f"Staging writes to memory ({memory}), because the disk of {scratch_dir} "
        f"cannot hold an overlay: {failed.problem}.",
    )


def _unfit_for_overlay(root: Path) -> ProbeFailed | None:
    for mount_point in _mount_points():
        if root in mount_point.parents:
            return ProbeFailed(f"another file system is mounted inside it, at {mount_point}")
    if os.geteuid() == 0:
        # Root in a namespace holds no power over other users' files, root outside does.
        owners = {entry.lstat().st_uid for entry in (root, *root.iterdir())}
        if owners != {0}:
            return ProbeFailed("it holds files of other users than root, who runs this")
    return None


def _mount_points() -> list[Path]:
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    return [Path(os.fsdecode(_unescape(line.split()[4]))) for line in lines]


def _unescape(field: bytes) -> bytes:
    for code, byte in ((rb"\040", b" "), (rb"\011", b"\t"), (rb"\012", b"\n"), (rb"\134", b"\\")):
        field = field.replace(code, byte)
    return field


def _make_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        return is_private(folder)
    except OSError:
        return False


def _copy(
    root: Path, scratch_dir: Path, namespace: MountNamespace | None, overlay: ProbeFailed
) -> tuple[Stager, tuple[str, ...]]:
    slower = (
        f"Each candidate is staged as a full copy of the workspace, because {overlay.problem}: "
        "slower than an overlay, with the same results."
    )
    if namespace is not None and probe(CopyStager(root, scratch_dir, namespace)) is None:
        return CopyStager(root, scratch_dir, namespace), (slower,)
    elsewhere = CopyStager(root, scratch_dir, None)
    failed = probe(elsewhere)
    if failed is not None:
        raise StagingUnavailable("copy", failed.problem)
    return elsewhere, (
        slower,
        "The copy lies at another path than the workspace, since mount namespaces are not to be "
        "had here: absolute paths to the workspace lead to the live files.",
    )


def probe(stager: OverlayStager | CopyStager) -> ProbeFailed | None:
    """Try the rung on a small workspace of its own, then an overlay on the real one too.

    Nothing but a listing runs over the real workspace.
    """
    try:
        stager.scratch_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An area of its own, so that what a killed probe leaves is swept as a stage is.
        with stage_area(stager.scratch_dir, stager.rung) as area:
            failed = _probe_small(replace(stager, root=area.resolve() / "workspace"))
        if failed is not None or isinstance(stager, CopyStager):
            return failed
        with stager.stage(()) as stage:
            return _run(stage.enter(("ls", "-a", ".")), stage.root)
    except (OSError, StagingUnavailable) as error:
        return ProbeFailed(str(error))


def _probe_small(stager: OverlayStager | CopyStager) -> ProbeFailed | None:
    live = stager.root
    (live / "folder").mkdir(parents=True)
    for name in ("gone", "kept", "folder/file"):
        (live / name).write_text("old")
    changes = (Delete("gone"), Write("kept", b"new"), Write("made/deep", b"made"))
    with stager.stage(changes) as stage:
        failed = _run(stage.enter(("sh", "-c", _PROBE_VIEW)), stage.root)
    if failed is None and sorted(p.name for p in live.rglob("*")) != [
        "file", "folder", "gone", "kept"
    ]:  # fmt: skip
        return ProbeFailed("writes in the stage reached the files below it")
    return failed


def _run(argv: tuple[str, ...], folder: Path) -> ProbeFailed | None:
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_PROBE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ProbeFailed("a trial run in it did not end")
    if done.returncode == 0:
        return None
    words = " ".join(done.stderr.decode(errors="replace").split())
    return ProbeFailed(words[-200:] or f"a trial run in it ended with {done.returncode}")
