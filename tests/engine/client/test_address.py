"""Which URLs name a server, and which of them is this machine."""

from __future__ import annotations

import pytest

from veriloop_tui.engine.client.address import Address, parse_address
from veriloop_tui.errors import UsageError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (
            "http://127.0.0.1:8001",
            Address("http://127.0.0.1:8001", "http://127.0.0.1:8001", False, True),
        ),
        (
            "HTTPS://GPU.Example/v1/",
            Address("https://gpu.example:443", "https://gpu.example:443", True, False),
        ),
        (
            "https://gpu.example/llm/v1",
            Address("https://gpu.example:443/llm", "https://gpu.example:443", True, False),
        ),
        ("http://[::1]:80", Address("http://[::1]:80", "http://[::1]:80", False, True)),
    ],
)
def test_an_address_names_whom_one_talks_to(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.9.9.9", True),
        ("localhost", True),
        ("[::ffff:127.0.0.1]", True),
        ("0.0.0.0", False),
        ("192.168.1.5", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("[2001:db8::1]", False),
        ("localhost.", False),
        ("127.1", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert parse_address(f"http://{host}:1").loopback is loopback


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8001",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://host:x",
        "http://[::1",
        "http://host/?q=1",
        "http://host/#a",
        "http://ho st/",
        "http://host/\x1b[31m",
        "http://hôst/",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_address(url)


def test_a_key_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("https://me:sesame@host")
    assert "sesame" not in str(caught.value)
    assert "VERILOOP_SERVER_KEY" in str(caught.value)
