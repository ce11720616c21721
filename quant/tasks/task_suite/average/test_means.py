from means import average


def test_two_numbers():
    assert average([4, 8]) == 6


def test_a_single_number():
    assert average([5]) == 5


def test_the_average_can_be_a_fraction():
    assert average([1, 2, 2, 5]) == 2.5
