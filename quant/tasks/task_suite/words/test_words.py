from words import count_words, longest_word


def test_the_longest_in_the_middle():
    assert longest_word(["a", "pine", "to"]) == "pine"


def test_the_longest_comes_first():
    assert longest_word(["maple", "oak", "yew"]) == "maple"


def test_three_words():
    assert count_words("to be fair") == 3


def test_blanks_may_repeat():
    assert count_words("a  b") == 2


def test_no_words():
    assert count_words("") == 0
