"""The scan of a live workspace, on real files."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from veriloop_tui.core.snapshot import Entry
from veriloop_tui.errors import SnapshotRefused
from veriloop_tui.store.reader import hash_file
from veriloop_tui.store.scan import ScanLimits, Scanner, refuse_unfit_root

LATER = 10_000_000_000


class Clock:
    """Nanoseconds since the epoch, as far after the files' times as the test says."""

    def __init__(self, ahead: int = 0) -> None:
        self.ahead = ahead

    def __call__(self) -> int:
        return time.time_ns() + self.ahead


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    return made


def scanner(root: Path, ahead: int = LATER, limits: ScanLimits | None = None) -> Scanner:
    return Scanner(root, limits or ScanLimits(), Clock(ahead), {})


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def files(found: dict[str, Entry] | object) -> set[str]:
    assert isinstance(found, dict)
    return {path for path, entry in found.items() if entry.kind != "directory"}


def test_files_links_modes_and_empty_directories_are_all_seen(root: Path) -> None:
    write(root, {"a.py": "x", "d/run": "y"})
    (root / "d/run").chmod(0o4750)
    (root / "d/link").symlink_to("../nowhere")
    (root / "empty").mkdir(mode=0o700)
    entries = scanner(root).scan().entries
    assert set(entries) == {"a.py", "d", "d/run", "d/link", "empty"}
    assert (entries["d/run"].kind, entries["d/run"].mode) == ("file", 0o4750)
    assert (entries["d/link"].kind, entries["d/link"].size) == ("symlink", 10)
    assert (entries["empty"].kind, entries["empty"].mode) == ("directory", 0o700)


def test_names_that_are_not_utf8_come_back_as_they_are(root: Path) -> None:
    raw = os.fsencode(root) + b"/\xff\xfe.txt"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    (path,) = scanner(root).scan().entries
    assert os.fsencode(path) == b"\xff\xfe.txt"


def test_an_unchanged_file_is_not_read_again(root: Path) -> None:
    write(root, {"a": "1", "b": "2"})
    scan = scanner(root)
    assert set(scan.scan().hashed) == {"a", "b"}
    assert scan.scan().hashed == ()
    write(root, {"b": "3"})
    assert scan.scan().hashed == ("b",)


def test_a_file_changed_just_before_the_scan_is_read_again_next_time(root: Path) -> None:
    write(root, {"a": "1"})
    scan = scanner(root, ahead=0)
    assert scan.scan().hashed == ("a",)
    assert scan.scan().hashed == ("a",)


def test_a_same_size_edit_with_its_mtime_put_back_is_seen(root: Path) -> None:
    write(root, {"a": "old"})
    scan = scanner(root)
    before = scan.scan().entries["a"]
    times = (root / "a").stat()
    with (root / "a").open("r+") as out:
        out.write("new")
    os.utime(root / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert scan.scan().entries["a"].digest != before.digest


def test_a_change_of_mode_alone_is_seen(root: Path) -> None:
    write(root, {"a": "x"})
    scan = scanner(root)
    before = scan.scan().entries["a"]
    (root / "a").chmod(0o755)
    after = scan.scan().entries["a"]
    assert (before.digest, stat.S_IMODE(after.mode)) == (after.digest, 0o755)


def test_a_file_that_becomes_a_directory_a_link_or_nothing_is_seen(root: Path) -> None:
    write(root, {"a": "x", "b": "x", "c": "x"})
    scan = scanner(root)
    scan.scan()
    for name in "abc":
        (root / name).unlink()
    write(root, {"a/inner": "x"})
    (root / "b").symlink_to("a")
    entries = scan.scan().entries
    assert {p: e.kind for p, e in entries.items()} == {
        "a": "directory",
        "a/inner": "file",
        "b": "symlink",
    }


def test_ignore_files_count_at_every_level_and_the_nearest_decides(root: Path) -> None:
    write(
        root,
        {
            ".gitignore": "*.log\n/top\nbuild/\n",
            "a.log": "",
            "top": "",
            "keep/top": "",
            "deep/.gitignore": "!b.log\nown\r\n",
            "deep/b.log": "",
            "deep/own": "",
            "own": "",
            "build/x": "",
            "deep/build/x": "",
        },
    )
    assert files(scanner(root).scan().entries) == {
        ".gitignore",
        "keep/top",
        "deep/.gitignore",
        "deep/b.log",
        "own",
    }


def test_a_changed_ignore_file_counts_at_once(root: Path) -> None:
    write(root, {".gitignore": "", "a.log": "x", "d/b.log": "x"})
    scan = scanner(root)
    assert "d/b.log" in scan.scan().entries
    write(root, {".gitignore": "*.log"})
    assert files(scan.scan().entries) == {".gitignore"}
    write(root, {".gitignore": ""})
    assert "d/b.log" in scan.scan().entries


def test_an_ignore_line_that_is_no_pattern_does_not_stop_the_others(root: Path) -> None:
    write(root, {".gitignore": "!\nx\\\n*.log\n", "a.log": "", "b": ""})
    assert files(scanner(root).scan().entries) == {".gitignore", "b"}


def test_git_and_promotion_folders_are_never_part_of_it(root: Path) -> None:
    write(
        root,
        {
            ".gitignore": "!.git\n!.veriloop-stage-1",
            ".git/config": "",
            "nested/.git/config": "",
            "file/.git": "gitdir: x",
            ".veriloop-stage-1/x": "",
            "d/.veriloop-stage-2/x": "",
            "nested/code": "",
        },
    )
    assert files(scanner(root).scan().entries) == {".gitignore", "nested/code"}


def test_what_tools_derive_is_left_out_unless_taken_back_in(root: Path) -> None:
    write(root, {"p/__pycache__/a.pyc": "", "node_modules/m/i.js": "", "p/a.py": ""})
    assert files(scanner(root).scan().entries) == {"p/a.py"}
    write(root, {".gitignore": "!node_modules/\n"})
    assert "node_modules/m/i.js" in scanner(root).scan().entries


def test_a_directory_of_ignored_things_only_is_left_out(root: Path) -> None:
    write(root, {"cache/.gitignore": "*", "cache/deep/x": ""})
    assert scanner(root).scan().entries == {}


def test_an_ignore_file_that_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("*")
    (root / ".gitignore").symlink_to(tmp_path / "outside")
    write(root, {"a": ""})
    assert "a" in scanner(root).scan().entries


def test_pipes_and_sockets_are_listed_and_never_opened(root: Path) -> None:
    write(root, {"a": ""})
    os.mkfifo(root / "pipe")
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(root)
    server.bind("socket")
    os.chdir(here)
    scan = scanner(root).scan()
    server.close()
    assert set(scan.entries) == {"a"}
    assert {(s.path, s.kind) for s in scan.skipped} == {("pipe", "pipe"), ("socket", "socket")}


def test_links_are_not_followed_out_of_the_workspace(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("x")
    (root / "out").symlink_to(tmp_path / "secret")
    assert set(scanner(root).scan().entries) == {"out"}


def test_a_file_that_changes_while_it_is_read_is_read_again(root: Path) -> None:
    write(root, {"a": "old"})
    times = iter(range(1))

    def absorb(fd: int, size: int) -> tuple[str, int]:
        found = hash_file(fd, size)
        for _ in times:
            write(root, {"a": "newer"})
        return found

    entry = scanner(root).scan(absorb).entries["a"]
    assert entry.size == 5


def test_a_file_that_never_stops_changing_is_named(root: Path) -> None:
    write(root, {"growing.log": ""})

    def absorb(fd: int, size: int) -> tuple[str, int]:
        found = hash_file(fd, size)
        with (root / "growing.log").open("a") as out:
            out.write("more")
        return found

    with pytest.raises(SnapshotRefused, match=r"growing\.log keeps changing"):
        scanner(root).scan(absorb)


def test_a_file_that_vanishes_while_others_are_read_is_gone(root: Path) -> None:
    write(root, {"a": "", "b": ""})

    def absorb(fd: int, size: int) -> tuple[str, int]:
        for name in "ab":
            if os.fstat(fd).st_ino != (root / name).stat().st_ino:
                (root / name).unlink()
                break
        return hash_file(fd, size)

    assert len(scanner(root).scan(absorb).entries) == 1


def test_too_many_files_or_bytes_are_refused_with_the_numbers(root: Path) -> None:
    write(root, {"a": "12345", "b": "12345", "c": "12345"})
    with pytest.raises(SnapshotRefused, match="more than 2 files"):
        scanner(root, limits=ScanLimits(files=2)).scan()
    with pytest.raises(SnapshotRefused, match=r"12 bytes \(3 and 15 bytes"):
        scanner(root, limits=ScanLimits(bytes=12)).scan()
    assert len(scanner(root, limits=ScanLimits(3, 15)).scan().entries) == 3


def test_nothing_is_read_of_a_workspace_that_is_too_large(root: Path) -> None:
    write(root, {"a": "1", "b": "2"})

    def absorb(fd: int, size: int) -> tuple[str, int]:
        raise AssertionError("read")

    with pytest.raises(SnapshotRefused):
        scanner(root, limits=ScanLimits(files=1)).scan(absorb)


def test_directories_deeper_than_any_project_are_refused(root: Path) -> None:
    (root / "/".join(["d"] * 140)).mkdir(parents=True)
    with pytest.raises(SnapshotRefused, match="directories deep"):
        scanner(root).scan()


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A workspace that any user can enter, so that one without root's powers can be tried."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("locked", ["d/secret", "d"])
def test_what_cannot_be_read_is_named(open_root: Path, locked: str) -> None:
    write(open_root, {"d/secret": "x", "a": ""})
    (open_root / locked).chmod(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setuid(65534)
        try:
            scanner(open_root).scan()
        except SnapshotRefused as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        text = said.read()
    assert f" {locked}" in text
    assert "cannot be read (Permission denied)" in text
    (open_root / locked).chmod(0o700)


def test_home_what_is_above_it_and_the_programs_own_data_are_no_workspaces(
    tmp_path: Path,
) -> None:
    home, data = tmp_path / "home", tmp_path / "home/.local/share/veriloop"
    (data / "inner").mkdir(parents=True)
    project = home / "project"
    project.mkdir()
    (tmp_path / "link").symlink_to(home)
    for unfit in (home, tmp_path, Path("/"), data, data / "inner", tmp_path / "link"):
        with pytest.raises(SnapshotRefused):
            refuse_unfit_root(unfit, home, data)
    with pytest.raises(SnapshotRefused, match="lie in each other"):
        refuse_unfit_root(home / ".local/share", home, data)
    with pytest.raises(SnapshotRefused):
        refuse_unfit_root(tmp_path / "missing", home, data)
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotRefused, match="not a directory"):
        refuse_unfit_root(tmp_path / "file", home, data)
    refuse_unfit_root(project, home, data)


def test_ignore_rules_agree_with_git(root: Path) -> None:
    write(
        root,
        {
            ".gitignore": "# c\n*.o\n!keep.o\n/only-top\n**/deep/*.txt\nfoo/*\n!foo/bar\n a b \n"
            "x[0-9].c\n\\!bang\ndir/\n*.t?p\n",
            "sub/.gitignore": "*.md\n!r.md\n/z\n",
            **dict.fromkeys(
                (
                    *("a.o", "keep.o", "sub/keep.o", "only-top", "sub/only-top", "deep/n.txt"),
                    *("q/deep/n.txt", "foo/bar/x", "foo/qux", "x1.c", "xa.c", "!bang", "dir"),
                    *("sub/dir/y", "sub/r.md", "sub/q.md", "sub/s/q.md", "sub/z", "sub/s/z"),
                    *("l.tmp", "m.top"),
                ),
                "",
            ),
        },
    )
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    said = subprocess.run(
        ["git", "-c", "core.excludesFile=", "ls-files", "-zco", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    expected = {os.fsdecode(name) for name in said.stdout.split(b"\0") if name}
    assert files(scanner(root).scan().entries) == expected


def test_the_scanner_loads_without_any_other_part() -> None:
    script = (
        "import sys, veriloop_tui.store.scan;"
        "print([m for m in sys.modules if m.startswith('veriloop_tui.')"
        " and m.split('.')[1] not in ('store', 'core', 'errors')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
