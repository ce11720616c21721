import json
from dataclasses import replace

import pytest

from veriloop_tui.bench.prompts import PROMPTS
from veriloop_tui.bench.report import Sample, compare, document, ratio_of, speeds

PLAIN = Sample("plain", "write", 0, 10.0, 1000.0, 20, 0, 100, 0, 0)
HEAD = replace(PLAIN, way="head", predicted_ms=500.0, drafted_tokens=80, accepted_tokens=60)
SETTINGS = {"model": "m", "threads": 2}


def run(*samples: Sample, **settings: object) -> dict[str, object]:
    written: dict[str, object] = json.loads(json.dumps(document({**SETTINGS, **settings}, samples)))
    return written


def test_a_gain_is_the_ratio_to_plain_decoding_in_the_same_run() -> None:
    plain, head = speeds([PLAIN, HEAD])

    assert plain.tokens_per_second.median == 100.0
    assert (head.gain, head.acceptance) == (2.0, 0.75)


def test_long_answers_weigh_more_and_rounds_give_the_spread() -> None:
    slow = replace(PLAIN, prompt="json", completion_tokens=300, predicted_ms=9000.0)
    again = replace(PLAIN, round=1)

    (speed,) = speeds([PLAIN, slow, again])

    assert (speed.tokens_per_second.low, speed.tokens_per_second.high) == (40.0, 100.0)


def test_reuse_is_told_as_the_share_of_the_cold_time() -> None:
    cold = replace(PLAIN, way="cold", prompt_ms=2000.0)
    reused = replace(PLAIN, way="reused", prompt_ms=50.0)

    assert ratio_of([cold, reused], "reused", "cold", "prompt_ms") == 0.025
    assert ratio_of([cold], "reused", "cold", "prompt_ms") == 0.0


def test_two_runs_are_compared_figure_by_figure() -> None:
    faster = replace(HEAD, predicted_ms=250.0)

    found = {one.name: one for one in compare(run(PLAIN, HEAD), run(PLAIN, faster))}

    assert (found["head"].ratio, found["head"].clear) == (2.0, True)
    assert (found["plain"].ratio, found["plain"].clear) == (1.0, False)


def test_runs_with_unequal_settings_are_not_compared() -> None:
    with pytest.raises(ValueError, match="threads"):
        compare(run(PLAIN), run(PLAIN, threads=4))


def test_names_and_texts_of_prompts_are_all_different() -> None:
    assert len({one.name for one in PROMPTS}) == len(PROMPTS) == len({one.text for one in PROMPTS})
    assert any(one.copies for one in PROMPTS)
