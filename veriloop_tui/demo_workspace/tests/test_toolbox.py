from toolbox import average, is_adult, largest, longest_word, power, sum_even


def test_a_child_is_no_adult():
    assert not is_adult(17)


def test_eighteen_is_adult():
    assert is_adult(18)


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


def test_two_to_the_third():
    assert power(2, 3) == 8


def test_anything_to_the_zeroth_is_one():
    assert power(5, 0) == 1


def test_odd_numbers_are_left_out():
    assert sum_even([1, 2, 3, 4]) == 6


def test_the_empty_list_sums_to_zero():
    assert sum_even([]) == 0


def test_longest_word_in_the_middle():
    assert longest_word(["a", "pine", "to"]) == "pine"


def test_longest_word_comes_first():
    assert longest_word(["maple", "oak", "yew"]) == "maple"
