"""What a quant's name promises, and whether its bytes keep it: names are labels, not sizes."""

from __future__ import annotations

import re
from typing import Final

from quant.inspecting.inspect import Inspection
from quant.making.target import FILE_TYPES

_LABELS: Final = "|".join(sorted(FILE_TYPES, key=len, reverse=True))
_LABEL: Final = re.compile(rf"(?<![A-Za-z0-9])(?:{_LABELS})(?![A-Za-z0-9_])", re.IGNORECASE)
_TOLERANCE: Final = 0.10

# Bits per weight of llama.cpp's own quants of Llama-3.1-8B, from its tools/quantize/README.md;
# for the types that are missing there, the bits of the type itself.
NOMINAL_BPW: Final = {
    "IQ1_S": 2.0042,
    "IQ1_M": 2.1460,
    "IQ2_XXS": 2.3824,
    "IQ2_XS": 2.5882,
    "IQ2_S": 2.7403,
    "IQ2_M": 2.9294,
    "IQ3_XXS": 3.2548,
    "IQ3_XS": 3.4977,
    "IQ3_S": 3.6606,
    "IQ3_M": 3.7628,
    "IQ4_XS": 4.4597,
    "IQ4_NL": 4.6818,
    "Q2_K_S": 2.9697,
    "Q2_K": 3.1593,
    "Q3_K_S": 3.6429,
    "Q3_K_M": 3.9960,
    "Q3_K_L": 4.2979,
    "Q4_K_S": 4.6672,
    "Q4_K_M": 4.8944,
    "Q5_K_S": 5.5704,
    "Q5_K_M": 5.7036,
    "Q6_K": 6.5633,
    "Q8_0": 8.5008,
    "F16": 16.0005,
    "BF16": 16.0005,
    "F32": 32.0,
    "Q4_0": 4.5,
    "Q4_1": 5.0,
    "Q5_0": 5.5,
    "Q5_1": 6.0,
    "TQ1_0": 1.6875,
    "TQ2_0": 2.0625,
    "MXFP4_MOE": 4.25,
    "Q1_0": 1.125,
    "Q2_0": 2.25,
}


def label_in(name: str) -> str:
    """The file type that a name names, such as `Q4_K_M`; empty if it names none, or several."""
    found = {label.upper() for label in _LABEL.findall(name)}
    return found.pop() if len(found) == 1 else ""


def broken_promises(found: Inspection) -> tuple[str, ...]:
    """One sentence for each way in which the bytes are not what the name says."""
    label = label_in(found.name)
    problems: list[str] = []
    if label and found.stated and label != found.stated:
        problems.append(f"Its name says {label}, its header {found.stated}.")
    promised = NOMINAL_BPW.get(label or found.stated, 0.0)
    if promised and abs(found.bpw_trunk / promised - 1) > _TOLERANCE:
        more = "more" if found.bpw_trunk > promised else "less"
        problems.append(
            f"{label or found.stated} promises about {promised:.2f} BPW and it has "
            f"{found.bpw_trunk:.2f}, {abs(found.bpw_trunk / promised - 1):.0%} {more}."
        )
    return tuple(problems)
