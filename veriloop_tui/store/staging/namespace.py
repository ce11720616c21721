"""Commands started in a private mount namespace, without privileges, with the user's own id."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

_TOOLS = ("unshare", "mount", "sh")


@dataclass(frozen=True, slots=True)
class MountNamespace:
    """The programs that make one, by absolute path, and who the commands run as."""

    unshare: str
    mount: str
    shell: str
    uid: int
    gid: int

    def enter(
        self, mount_line: str, operands: Sequence[str], root: str, argv: Sequence[str]
    ) -> tuple[str, ...]:
        """The argv that mounts, goes to `root` and becomes `argv`.

        `mount_line` is a line of shell of ours; in it `$mount` is the program and `$1`, `$2`, ...
        are the operands. If the mount fails, `argv` does not run.
        """
        script = (
            f"mount={self.mount}\n({mount_line}) || exit 125\nshift {len(operands)}\n"
            'cd "$1" || exit 125\nshift\nunset mount OLDPWD\nexec "$@"'
        )
        inner = tuple(argv)
        if self.uid:
            # Inside, the user looks like root, which changes what tests see: map the id back.
            ids = (f"--map-user={self.uid}", f"--map-group={self.gid}")
            inner = (self.unshare, "--user", *ids, "--", *inner)
        outer = (self.unshare, "-Urm", "--propagation", "private", "--", self.shell, "-c")
        return (*outer, script, "stage", *operands, root, *inner)


def find_namespace() -> MountNamespace | None:
    """The programs of this machine, or `None` where one is missing."""
    unshare, mount, shell = (shutil.which(tool, path=_SYSTEM_PATH) for tool in _TOOLS)
    if unshare is None or mount is None or shell is None:
        return None
    return MountNamespace(unshare, mount, shell, os.geteuid(), os.getegid())


_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
