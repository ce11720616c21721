"""What each tier stops, shown by attacking it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.sandbox_ground import (
    Ground,
    alive,
    make_ground,
    marked,
    python,
    soon,
)
from tests.store.staging.stage_ground import describe
from veriloop_tui.contract.command import End, Place, run_command
from veriloop_tui.contract.job import Limits, Tier
from veriloop_tui.contract.sandbox import choose_sandbox
from veriloop_tui.errors import Cancelled, SandboxUnavailable
from veriloop_tui.store.staging.ladder import WantedRung
from veriloop_tui.wiring.clock import SystemClock

RUNGS: tuple[WantedRung, ...] = ("overlay", "copy")
TIERS: tuple[Tier, ...] = ("best", "reduced", "none")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
def shown() -> Iterator[Path]:
    """A folder where no tier hides anything by itself."""
    folder = Path(__file__).parents[2] / f".folder-of-a-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("data_in_home", [True, False])
def test_keys_and_the_ledger_cannot_be_read(
    ground: Ground, rung: WantedRung, shown: Path, data_in_home: bool
) -> None:
    if not data_in_home:
        ground = replace(ground, data=shown / "data")
    secrets = [ground.home / ".ssh" / "id", ground.home / "notes", ground.data / "ledger.db"]
    for secret in secrets:
        secret.parent.mkdir(exist_ok=True)
        secret.write_text("SECRET")
    attack = "; ".join(f"cat {secret} && echo read" for secret in secrets)
    ran = ground.run(
        f"{attack}; cat /etc/shadow* /etc/gshadow* /etc/ssh/*key;"
        f" ls -A {ground.home} {ground.data}; echo ended",
        rung=rung,
    )
    assert ran.tail.endswith("ended\n")
    assert not {"SECRET", "read", "notes", "ledger.db"} & set(ran.tail.split())
    assert "root:" not in ran.tail
    assert "PRIVATE KEY" not in ran.tail


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("tier", TIERS)
def test_the_workspace_is_as_it_was_after_a_run_that_destroys_its_stage(
    ground: Ground, rung: WantedRung, tier: Tier
) -> None:
    (ground.root / "sub").mkdir()
    for name in ("file", "sub/other"):
        (ground.root / name).write_text(name)
    (ground.root / "link").symlink_to(ground.root / "file")
    before = describe(ground.root)
    ran = ground.run(
        f"echo over >{ground.root}/file; echo via >link; chmod 777 sub; rm -rf {ground.root}/*; ls",
        tier,
        rung=rung,
    )
    assert (ran.end, ran.exit_code, ran.tail) == (End.EXITED, 0, "")
    assert describe(ground.root) == before


@pytest.mark.parametrize("rung", RUNGS)
def test_nothing_outside_the_stage_can_be_written(ground: Ground, rung: WantedRung) -> None:
    (ground.root / "way").symlink_to(ground.home)
    places = ("way/x", f"{ground.home}/x", "/etc/x", "/usr/x", "/tmp/x", "/var/tmp/x", "/x")
    ground.run("; ".join(f"echo out >{place}" for place in places), rung=rung)
    for place in (ground.home / "x", *map(Path, places[2:])):
        assert not place.exists(), place


@pytest.mark.parametrize("tier", ["best", "reduced"])
def test_a_listener_of_the_machine_cannot_be_reached(ground: Ground, tier: Tier) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attack = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "refused" in ground.run(python(attack), tier).tail
        subprocess.run((sys.executable, "-c", attack), check=True)


@pytest.mark.parametrize("where", ["home", "work", "shown"])
def test_a_unix_socket_of_the_machine_cannot_be_connected(
    ground: Ground, shown: Path, where: str
) -> None:
    path = {"home": ground.home, "work": ground.root, "shown": shown}[where] / "s"
    attack = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert ground.run(python(attack)).exit_code == 1
        subprocess.run((sys.executable, "-c", attack), check=True)


@pytest.mark.parametrize("tier", ["best", "reduced"])
def test_commands_can_talk_to_servers_that_they_start(ground: Ground, tier: Tier) -> None:
    own = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(s.getsockname())"
    )
    assert ground.run(python(own), tier).exit_code == 0


@pytest.mark.parametrize("tier", TIERS)
def test_a_daemon_does_not_outlive_its_test(ground: Ground, tier: Tier) -> None:
    with marked() as mark:
        daemon = f"setsid sh -c 'trap \"\" TERM HUP; : {mark}; sleep 300; :' >/dev/null 2>&1 &"
        ran = ground.run(f"({daemon}) ; sleep 0.3; echo done", tier)
        assert (ran.exit_code, ran.tail) == (0, "done\n")
        assert alive(mark) == []


@pytest.mark.parametrize("tier", TIERS)
def test_a_grandchild_that_holds_the_output_dies_at_the_timeout(ground: Ground, tier: Tier) -> None:
    with marked() as mark:
        line = f"setsid sh -c ': {mark}; sleep 300; :' & sleep 300; : {mark}"
        ran = ground.run(line, tier, timeout=1.0)
        assert ran.end is End.TIMEOUT
        assert alive(mark) == []


@pytest.mark.parametrize("tier", TIERS)
def test_a_stopped_run_leaves_no_process(ground: Ground, tier: Tier) -> None:
    cancel = threading.Event()
    with marked() as mark:
        watcher = threading.Thread(
            target=lambda: cancel.set() if soon(lambda: len(alive(mark)) > 1) else None
        )
        watcher.start()
        with pytest.raises(Cancelled):
            ground.run(f"setsid sh -c ': {mark}; sleep 300; :' & sleep 300; :", tier, cancel=cancel)
        watcher.join()
        assert alive(mark) == []


def test_a_fork_bomb_is_ended(ground: Ground) -> None:
    with marked() as mark:
        bomb = f"import os, time # {mark}\nfor _ in range(3000):\n  os.fork() or time.sleep(60)"
        ran = ground.run(python(bomb), limits=Limits(processes=200))
        # The kernel's limit stops a user's bomb from inside, the watch stops root's.
        assert ran.end is End.PROCESS_LIMIT or "Resource temporarily unavailable" in ran.tail
        assert alive(mark) == []


def test_too_much_memory_ends_the_run(ground: Ground) -> None:
    hog = "import time; held = bytearray(b'x') * (200 << 20); time.sleep(60)"
    ran = ground.run(python(hog), limits=Limits(memory=100 << 20))
    assert ran.end is End.MEMORY_LIMIT


def test_a_file_larger_than_the_limit_cannot_be_written(ground: Ground) -> None:
    line = "head -c 3000000 /dev/zero >big; echo ended $?; stat -c %s big"
    ran = ground.run(line, limits=Limits(file_size=1 << 20))
    assert ran.tail.endswith("1048576\n")


def test_temporary_folders_are_bounded(ground: Ground) -> None:
    line = "head -c 3000000 /dev/zero >/tmp/big || stat -c %s /tmp/big"
    ran = ground.run(line, limits=Limits(temporary=1 << 20))
    assert ran.tail.endswith("1048576\n")


@pytest.mark.parametrize("tier", TIERS)
def test_the_environment_holds_no_secrets_and_is_fixed(
    ground: Ground, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "SECRET")
    ran = ground.run("env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'", tier)
    if tier != "none":
        assert "SECRET" not in ran.tail
    own = ground.run("env", tier).tail
    assert "SECRET" not in own
    names = {line.partition("=")[0] for line in own.splitlines()}
    assert names - {"PWD", "_", "SHLVL"} == {
        *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "TERM", "NO_COLOR", "CI"),
        *("PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"),
    }


def test_no_capability_is_left_and_nothing_of_the_kernel_can_be_changed(ground: Ground) -> None:
    """Root's id alone opens some kernel files for writing; opening to append changes nothing."""
    ran = ground.run(
        "grep Cap /proc/self/status | grep -v 0000000000000000;"
        "cd /; find proc sys -not -path 'proc/[0-9]*' -not -path 'proc/*self*' -type f"
        " -perm -u+w 2>/dev/null | while read -r file;"
        " do (: >>$file) 2>/dev/null && echo opened $file; done; echo ended"
    )
    opened = [line for line in ran.tail.splitlines() if "proc/pressure/" not in line]
    assert opened == ["ended"]


def test_processes_of_the_machine_are_neither_seen_nor_signalled(ground: Ground) -> None:
    ran = ground.run(f"kill -0 {os.getpid()}; ls -d /proc/[0-9]* | wc -l")
    assert "No such process" in ran.tail
    assert int(ran.tail.split()[-1]) < 8


@pytest.mark.parametrize("tier", TIERS)
def test_commands_run_as_the_user_without_a_terminal_and_without_input(
    ground: Ground, tier: Tier
) -> None:
    ran = ground.run("id -u; id -g; cat; (: </dev/tty) 2>/dev/null || echo no terminal", tier)
    assert ran.tail == f"{os.getuid()}\n{os.getgid()}\nno terminal\n"


def test_the_users_session_keyring_is_out_of_reach(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "tests.contract.keyring", str(tmp_path)),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["outside: found", *(f"{tier}: -1" for tier in TIERS)]


def test_no_further_user_namespace_can_be_made(ground: Ground) -> None:
    assert ground.run("unshare -Ur true").exit_code != 0


@pytest.mark.parametrize("rung", RUNGS)
def test_a_workspace_in_the_home_folder_works_with_tools_from_the_home_folder(
    tmp_path: Path, rung: WantedRung
) -> None:
    home = tmp_path / "home"
    work = home / "projects" / "work"
    tool = home / ".local" / "share" / "uv" / "tools" / "t" / "bin" / "tool"
    for folder in (work, tool.parent, home / ".local" / "bin", home / "data"):
        folder.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho tool of mine\n")
    tool.chmod(0o755)
    (home / ".local" / "bin" / "tool").symlink_to(tool)
    (home / "other").write_text("SECRET")
    ground = Ground(work, home, home / "data")
    host = ground.host(f"{home}/.local/bin:/usr/bin:/bin")
    sandbox = choose_sandbox("best", host, SystemClock())
    (work / "file").write_text("here")

    with ground.stager(rung).stage(()) as stage:
        ran = run_command(
            lambda _report: ("/bin/sh", "-c", f"cat {work}/file; tool; cat {home}/other"),
            30.0,
            Place(stage.root, stage.scratch / "run", stage.enter),
            sandbox,
            Limits(),
            SystemClock(),
            threading.Event(),
        )
    assert ran.tail.startswith("heretool of mine\n")
    assert "SECRET" not in ran.tail


def test_best_is_refused_with_a_remedy_where_bubblewrap_does_not_work(ground: Ground) -> None:
    """Inside the sandbox no further one can be made, as on machines that forbid namespaces."""
    program = (
        "import sys; from pathlib import Path; from tests.contract.sandbox_ground import *; "
        "from veriloop_tui.errors import Cancelled, SandboxUnavailable\n"
        "g = make_ground(Path('/tmp'))\n"
        "try: choose_sandbox('best', g.host(), SystemClock())\n"
        "except SandboxUnavailable as error: print(error)\n"
        "s = choose_sandbox('reduced', g.host(), SystemClock()); print(s.notices)"
    )
    # The checkout itself may lie in a folder that is hidden inside.
    for package in ("veriloop_tui", "tests"):
        shutil.copytree(Path(__file__).parents[2] / package, ground.root / package)
    ran = ground.run(("env", f"PYTHONPATH={ground.root}", *python(program)))
    assert "The sandbox tier 'best' is not available" in ran.tail
    assert "user namespaces" in ran.tail
    assert "without namespaces" in ran.tail


def test_best_names_bubblewrap_where_it_is_missing(ground: Ground, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "prlimit").symlink_to(shutil.which("prlimit") or "")
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        choose_sandbox("best", replace(ground.host(), system=str(tools)), SystemClock())


@pytest.mark.parametrize("tier", ["reduced", "none"])
def test_a_lower_tier_says_what_it_does_not_stop(ground: Ground, tier: Tier) -> None:
    sandbox = ground.sandbox(tier)
    assert sandbox.tier == tier
    assert "live workspace" in sandbox.notices[0]


def test_everything_works_for_a_user_without_privileges(ground: Ground, tmp_path: Path) -> None:
    """As another user where the tests run as root, else as the same one."""
    program = Path(__file__).with_name("unprivileged.py")
    done = subprocess.run(
        (sys.executable, str(program)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{tier} {rung} as the user, ended exited 3, fork bomb stopped: {tier == 'best'}"
        for tier in ("best", "reduced", "none")
        for rung in ("overlay", "copy")
    ]
