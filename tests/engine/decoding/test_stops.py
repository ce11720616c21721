from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.engine.decoding.stops import StopScanner

texts = st.text(alphabet="abé🐍\n", max_size=40)
stops = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=3)


def scan(pieces: list[bytes], stop: list[str]) -> tuple[str, bool]:
    scanner = StopScanner(stop)
    out = "".join(scanner.push(piece) for piece in pieces)
    return out + scanner.finish(), scanner.stopped


def test_text_before_a_stop_string_is_kept_and_the_stop_string_is_not() -> None:
    assert scan([b"one EN", b"D two"], ["END"]) == ("one ", True)


def test_a_part_of_a_stop_string_is_held_back_until_it_is_decided() -> None:
    scanner = StopScanner(["END"])

    assert scanner.push(b"x E") == "x "
    assert scanner.push(b"N") == ""
    assert scanner.push(b"X") == "ENX"


def test_a_part_of_a_stop_string_at_the_very_end_is_text() -> None:
    assert scan([b"the EN"], ["END"]) == ("the EN", False)


def test_a_character_cut_by_a_token_border_comes_out_whole() -> None:
    first, second = "🐍".encode()[:2], "🐍".encode()[2:]
    scanner = StopScanner([])

    assert scanner.push(first) == ""
    assert scanner.push(second) == "🐍"


def test_an_unfinished_character_becomes_a_replacement_character() -> None:
    assert scan(["é".encode()[:1]], []) == ("\ufffd", False)


@given(texts, stops, st.data())
def test_the_result_does_not_depend_on_where_the_bytes_are_cut(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    raw = text.encode()
    pieces, rest = [], raw
    while rest:
        n = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:n])
        rest = rest[n:]

    assert scan(pieces, stop) == scan([raw], stop)


@given(texts, stops)
def test_no_stop_string_is_ever_emitted(text: str, stop: list[str]) -> None:
    out, stopped = scan([text.encode()], stop)

    assert text.startswith(out)
    assert not any(one in out for one in stop)
    assert stopped == any(one in text for one in stop)
    assert stopped or out == text
