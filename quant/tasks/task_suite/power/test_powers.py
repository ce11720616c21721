from powers import power, square


def test_two_to_the_third():
    assert power(2, 3) == 8


def test_anything_to_the_zeroth_is_one():
    assert power(5, 0) == 1


def test_anything_to_the_first_stays():
    assert power(7, 1) == 7


def test_the_square_of_three():
    assert square(3) == 9


def test_the_square_of_a_negative_number():
    assert square(-4) == 16
