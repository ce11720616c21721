from divisors import greatest_common_divisor


def test_numbers_with_a_common_divisor():
    assert greatest_common_divisor(12, 18) == 6


def test_numbers_without_one():
    assert greatest_common_divisor(9, 28) == 1


def test_one_divides_the_other():
    assert greatest_common_divisor(5, 20) == 5


def test_zero():
    assert greatest_common_divisor(7, 0) == 7
