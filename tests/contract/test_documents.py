"""The contracts shown in the documents are contracts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from veriloop_tui.contract.schema import parse_contract

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_the_contract_shown_is_read(name: str) -> None:
    shown = re.findall(r"```toml\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    for text in shown:
        assert parse_contract(text.encode()).obligations
