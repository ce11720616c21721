from letters import count_vowels


def test_several_vowels():
    assert count_vowels("banana") == 3


def test_o_and_u_are_vowels():
    assert count_vowels("you") == 2


def test_capital_letters():
    assert count_vowels("Apple") == 2


def test_no_vowels():
    assert count_vowels("rhythm") == 0
