from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.chat import Sampling
from veriloop_tui.engine.decoding.transcript import NOTHING, Transcript
from veriloop_tui.engine.job import Job

SPECIAL = 999  # the token of "<|end|>", the only special one of this made-up vocabulary
END = "<|end|>"


def parse(text: str) -> list[int]:
    """One token a character, except for the special one."""
    ids: list[int] = []
    while text:
        if text.startswith(END):
            ids.append(SPECIAL)
            text = text.removeprefix(END)
        else:
            ids.append(ord(text[0]))
            text = text[1:]
    return ids


def is_special(token: int) -> bool:
    return token == SPECIAL


def job(text: str) -> Job:
    return Job(tuple(parse(text)), text, Sampling(), 1, 10)


def respelled(transcript: Transcript, text: str) -> tuple[int, ...]:
    return transcript.respell(job(text), parse, is_special).prompt


def answered(
    text: str, answer: Sequence[tuple[int, bytes]], after: Transcript = NOTHING
) -> Transcript:
    return after.then(after.respell(job(text), parse, is_special), answer)


def test_an_answer_is_spelled_as_it_was_drawn() -> None:
    transcript = answered("ask", [(7001, b"to"), (7002, b"get")])

    tokens = respelled(transcript, f"asktoget{END}next")

    assert tokens == (*parse("ask"), 7001, 7002, *parse(f"{END}next"))


def test_a_text_that_goes_on_without_a_special_token_is_spelled_anew() -> None:
    transcript = answered("ask", [(7001, b"to"), (7002, b"get")])

    assert respelled(transcript, "asktogether") == tuple(parse("asktogether"))


def test_an_answer_that_was_cut_short_is_kept_up_to_the_cut() -> None:
    transcript = answered("ask", [(7001, b"to"), (7002, b"get"), (7003, b"STOP")])

    tokens = respelled(transcript, f"asktoget{END}next")

    assert tokens[3:6] == (7001, 7002, SPECIAL)


def test_earlier_answers_stay_as_they_were_drawn_when_the_last_question_changes() -> None:
    first = answered("ask", [(7001, b"one")])
    second = answered(f"askone{END}more?{END}", [(7002, b"two")], after=first)

    tokens = respelled(second, f"askone{END}less?{END}")

    assert tokens == (*parse("ask"), 7001, *parse(f"{END}less?{END}"))


def test_there_is_no_border_inside_a_character() -> None:
    halves = ("é".encode()[:1], "é".encode()[1:])
    transcript = answered("ask", [(7001, b"x"), (7002, halves[0]), (7003, halves[1]), (7004, b"y")])

    tokens = respelled(transcript, f"askxéy{END}")

    assert tokens == (*parse("ask"), 7001, 7002, 7003, 7004, SPECIAL)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3z", b"\xe6\x95", b"\x80"])
def test_bytes_that_are_no_characters_end_what_is_kept(bad: bytes) -> None:
    transcript = answered("ask", [(7001, b"x"), (7002, bad), (7003, b"y")])

    assert respelled(transcript, f"askxé{END}") == tuple(parse(f"askxé{END}"))
    assert respelled(transcript, f"askx{END}") == (*parse("ask"), 7001, SPECIAL)


def test_tokens_that_stand_for_no_text_are_not_put_before_others() -> None:
    transcript = NOTHING.then(Job((5, 6), "", Sampling(), 1, 10), [(7001, b"x")])

    assert respelled(transcript, f"{END}ask") == tuple(parse(f"{END}ask"))


def test_another_conversation_is_left_alone() -> None:
    transcript = answered("ask", [(7001, b"to")])

    assert respelled(transcript, f"bskto{END}") == tuple(parse(f"bskto{END}"))


@given(
    st.text("ab", max_size=5),
    st.lists(st.sampled_from([(7001, b"a"), (7002, b"ab"), (7003, b"b")]), max_size=6),
    st.text("ab", max_size=8),
)
def test_what_is_respelled_still_says_the_text(
    text: str, answer: list[tuple[int, bytes]], goes_on: str
) -> None:
    pieces = {7001: "a", 7002: "ab", 7003: "b", SPECIAL: END}
    transcript = answered(text, answer)
    said = text + "".join(piece.decode() for _, piece in answer)

    for wanted in (said + END + goes_on, said[:-1] + END, goes_on + END):
        tokens = respelled(transcript, wanted)
        assert "".join(pieces.get(token) or chr(token) for token in tokens) == wanted
