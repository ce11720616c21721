import os
import subprocess
import sys
from pathlib import Path

import pytest

_ASK = "from veriloop_tui.tui.quant_lab_browser import browse_beside as b; print(b('file:///a'))"


@pytest.mark.parametrize(("ending", "opened"), [("", "False"), (" &", "True")])
def test_only_a_browser_that_leaves_the_terminal_alone_is_opened(
    tmp_path: Path, ending: str, opened: str
) -> None:
    browser = tmp_path / "browser"
    browser.write_text("#!/bin/sh\nexit 0\n", "utf-8")
    browser.chmod(0o755)
    told = subprocess.run(
        [sys.executable, "-c", _ASK],
        env={**os.environ, "BROWSER": f"{browser} %s{ending}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == opened
