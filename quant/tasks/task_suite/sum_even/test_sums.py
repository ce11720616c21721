from sums import sum_even, sum_positive


def test_odd_numbers_are_left_out():
    assert sum_even([1, 2, 3, 4]) == 6


def test_no_even_numbers():
    assert sum_even([7, 9]) == 0


def test_negative_numbers_are_left_out():
    assert sum_positive([5, -2, 1]) == 6


def test_no_positive_numbers():
    assert sum_positive([-1]) == 0
