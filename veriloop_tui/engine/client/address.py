"""The address of another server: what of a URL may be asked for, and whom it names. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from veriloop_tui.errors import UsageError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    `base` is what paths are put behind, `origin` scheme, host and port: whom one talks to.
    `loopback` says that this is the machine itself.
    """

    base: str
    origin: str
    encrypted: bool
    loopback: bool


def parse_address(url: str) -> Address:
    """The address that `url` means. Raises `UsageError`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("ascii")
    except ValueError:
        raise _wrong(url, "is not one that can be read; write the host in ASCII") from None
    if not url.isprintable() or " " in url:
        raise _wrong(url, "holds blanks or control characters")
    if parts.scheme not in _PORTS or not host:
        raise _wrong(url, "must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        # Not shown: what stands there is a password.
        raise UsageError("A server's URL must hold no name or key; set VERILOOP_SERVER_KEY.")
    if parts.query or parts.fragment:
        raise _wrong(url, "must end before any '?' or '#'")
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}:{port or _PORTS[parts.scheme]}"
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(origin + path, origin, parts.scheme == "https", is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its address or as `localhost`."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _wrong(url: str, problem: str) -> UsageError:
    return UsageError(f"The server's URL '{url}' {problem}, such as http://127.0.0.1:8001.")
