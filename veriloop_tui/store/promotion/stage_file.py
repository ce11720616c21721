"""Writes one staged file, complete with all that its place in the workspace will show of it."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass

from veriloop_tui.store.promotion.hold import Hold, Identity


@dataclass(frozen=True, slots=True)
class Attributes:
    """Permission bits, times in ns since the epoch, owner and group of a staged file."""

    mode: int
    atime_ns: int
    mtime_ns: int
    owner: int
    group: int


def write_staged(
    stage: int, slot: str, content: bytes, attributes: Attributes, like: Hold | None
) -> Identity:
    """Write `stage/slot`, durably, with the extended attributes of `like`; raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(slot, flags, 0o600, dir_fd=stage)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (attributes.owner, attributes.group):
            os.fchown(fd, attributes.owner, attributes.group)
        if like is not None:
            _copy_extended_attributes(like.fd, fd)
        # After owner and access list, since setting either may change permission bits.
        os.fchmod(fd, attributes.mode)
        os.utime(fd, ns=(attributes.atime_ns, attributes.mtime_ns))
        os.fsync(fd)
        # Read back: the file system may keep fewer digits of the time than it was given.
        kept = os.fstat(fd).st_mtime_ns
    return Identity(attributes.mode, len(content), hashlib.sha256(content).hexdigest(), kept)


def _copy_extended_attributes(source: int, target: int) -> None:
    if sys.platform != "linux":
        return
    have = set(os.listxattr(target))
    for name in os.listxattr(source):
        value = os.getxattr(source, name)
        if name not in have or os.getxattr(target, name) != value:
            os.setxattr(target, name, value)
