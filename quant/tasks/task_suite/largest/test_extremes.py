from extremes import largest, smallest


def test_the_largest_in_the_middle():
    assert largest([3, 9, 4]) == 9


def test_the_largest_comes_first():
    assert largest([7, 2, 5]) == 7


def test_the_largest_of_negative_numbers():
    assert largest([-5, -2, -8]) == -2


def test_the_smallest_in_the_middle():
    assert smallest([3, 1, 4]) == 1


def test_the_smallest_of_negative_numbers():
    assert smallest([-5, -2]) == -5
