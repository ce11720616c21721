"""`python -m quant`."""

import sys

from veriloop_tui.cli import main

sys.argv.insert(1, "quant")
main()
