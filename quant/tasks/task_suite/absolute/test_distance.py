from distance import absolute


def test_a_negative_number_loses_its_sign():
    assert absolute(-3) == 3


def test_a_positive_number_stays():
    assert absolute(5) == 5


def test_zero_stays():
    assert absolute(0) == 0
