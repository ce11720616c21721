from measures import average, celsius_to_fahrenheit, factorial, is_adult, largest, sum_even


def test_a_child_is_no_adult():
    assert not is_adult(17)


def test_eighteen_is_adult():
    assert is_adult(18)


def test_water_freezes_at_32_fahrenheit():
    assert celsius_to_fahrenheit(0) == 32


def test_water_boils_at_212_fahrenheit():
    assert celsius_to_fahrenheit(100) == 212


def test_average_of_two_numbers():
    assert average([4, 8]) == 6


def test_average_can_be_a_fraction():
    assert average([1, 2, 2, 5]) == 2.5


def test_largest_in_the_middle():
    assert largest([3, 9, 4]) == 9


def test_largest_comes_first():
    assert largest([7, 2, 5]) == 7


def test_largest_of_negative_numbers():
    assert largest([-5, -2, -8]) == -2


def test_factorial_of_zero_is_one():
    assert factorial(0) == 1


def test_factorial_of_five():
    assert factorial(5) == 120


def test_sum_even_leaves_out_odd_numbers():
    assert sum_even([1, 2, 3, 4]) == 6


def test_sum_even_of_an_empty_list():
    assert sum_even([]) == 0
