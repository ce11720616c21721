from parity import is_even


def test_two_is_even():
    assert is_even(2)


def test_three_is_not():
    assert not is_even(3)


def test_zero_is_even():
    assert is_even(0)
