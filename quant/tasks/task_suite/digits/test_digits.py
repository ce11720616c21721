from digits import sum_of_digits


def test_zero():
    assert sum_of_digits(0) == 0


def test_one_digit():
    assert sum_of_digits(7) == 7


def test_ten():
    assert sum_of_digits(10) == 1


def test_many_digits():
    assert sum_of_digits(9301) == 13
