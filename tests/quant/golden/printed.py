"""What llama-perplexity prints at its end, read, and our numbers in the same digits."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quant.report.data import Comparison, Estimate, QuantLoss
from veriloop_tui.engine.decoding.native import api

# A statistic by the name that it is printed with: its value, and its error where it has one.
Printed = Mapping[str, tuple[str, ...]]

_NUMBER = r"-?(?:[\d.]+|nan|inf)"
_NAME = r"(?:Mean|Cor|Maximum|Minimum|Median|RMS|Same|\d+\.\d%)[^:\n]*?"
_LINE = re.compile(
    rf"^\s*(?P<name>{_NAME})\s*:[ ]*(?P<value>{_NUMBER})[ ]*%?(?:[ ]*±[ ]*(?P<error>{_NUMBER}))?",
    re.MULTILINE,
)
_FINAL = re.compile(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)")
_SYSTEM = re.compile(r"system_info: .*?\| (.*\S)")
_NAMED = {"max": "Maximum", "median": "Median", "min": "Minimum"}
BASE = "Final estimate: PPL"


def captured(name: str) -> Any:
    """A file that `benchmarks.capture_perplexity` wrote, its printed numbers as `Printed`."""
    return _tuples(json.loads(Path(__file__).with_name(name).read_text("utf-8")))


def _tuples(value: Any) -> Any:
    match value:
        case [str(), *_]:
            return tuple(value)
        case list():
            return [_tuples(one) for one in value]
        case dict():
            return {key: _tuples(one) for key, one in value.items()}
        case _:
            return value


def read(output: str) -> Printed:
    """All statistics of the end of a `--kl-divergence` run, or of a base's run."""
    found = {
        " ".join(one["name"].split()): tuple(filter(None, (one["value"], one["error"])))
        for one in _LINE.finditer(output)
    }
    if (final := _FINAL.search(output)) is not None:
        found[BASE] = final.groups()
    return found


def system(output: str) -> str:
    """What llama.cpp says of the machine, which decides over the last bits of its numbers."""
    found = _SYSTEM.search(output)
    assert found is not None, output
    return words(found[1])


def words(told: str) -> str:
    """The features that a machine has, in one line."""
    return " ".join(re.findall(r"(\w+) = 1", told))


def ours(loss: QuantLoss) -> Printed:
    """The same statistics of our own, in the same digits."""
    return dict(_ours(loss))


def ours_of_base(comparison: Comparison) -> Printed:
    """The base's perplexity as its own run prints it."""
    return {BASE: _with_error(comparison.base_ppl, 4, 5)}


def here() -> str:
    """The features of this machine as llama.cpp uses them."""
    return words(api.llama_print_system_info().decode())


def unlike(found: Printed, wanted: Printed, same: bool) -> dict[str, tuple[tuple[str, ...], ...]]:
    """What differs between two printings, by name.

    On the `same` kind of machine every digit must be the same. Elsewhere llama.cpp adds up in
    another order, and its own output would differ: there a hundredth of the value, or of the
    largest of the kind for those near zero, is let pass.
    """
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    return {
        name: (found[name], wanted[name])
        for name in wanted
        if found[name] != wanted[name]
        and (same or not _near(found[name], wanted[name], _scale(name, wanted)))
    }


def _near(found: tuple[str, ...], wanted: tuple[str, ...], scale: float) -> bool:
    return all(
        abs(float(one) - float(other)) <= 0.01 * scale
        for one, other in zip(found, wanted, strict=True)
    )


def _scale(name: str, wanted: Printed) -> float:
    """The largest number of a kind: KLD, Δp, or perplexities."""
    kind = name.split()[-1]
    return max(abs(float(values[0])) for other, values in wanted.items() if other.endswith(kind))


def _ours(loss: QuantLoss) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "Mean PPL(Q)", _with_error(loss.ppl)
    yield "Mean PPL(base)", _with_error(loss.base_ppl)
    yield "Cor(ln(PPL(Q)), ln(PPL(base)))", (f"{100 * loss.correlation:.2f}",)
    yield "Mean ln(PPL(Q)/PPL(base))", _with_error(loss.ln_ratio)
    yield "Mean PPL(Q)/PPL(base)", _with_error(loss.ppl_ratio)
    yield "Mean PPL(Q)-PPL(base)", _with_error(loss.ppl_difference)
    yield "Mean KLD", _with_error(loss.kld)
    for label, value in loss.kld_percentiles:
        yield f"{_percentile(label)} KLD", (f"{value:.6f}",)
    yield "Mean Δp", _in_percent(loss.delta_p)
    for label, value in loss.delta_p_percentiles:
        yield f"{_percentile(label)} Δp", (f"{100 * value:.3f}",)
    yield "RMS Δp", _in_percent(loss.rms_delta_p)
    yield "Same top p", _in_percent(loss.same_top)


def _percentile(label: str) -> str:
    if label in _NAMED:
        return _NAMED[label]
    return f"{float(label.removesuffix(' %')):.1f}%"


def _with_error(estimate: Estimate, digits: int = 6, error_digits: int = 6) -> tuple[str, str]:
    return f"{estimate.value:.{digits}f}", f"{estimate.error:.{error_digits}f}"


def _in_percent(estimate: Estimate) -> tuple[str, str]:
    assert estimate.error is not None
    return f"{100 * estimate.value:.3f}", f"{100 * estimate.error:.3f}"
