from merge import merge


def test_lists_that_interleave():
    assert merge([1, 4], [2, 3]) == [1, 2, 3, 4]


def test_the_rest_of_the_first_list():
    assert merge([1, 5, 9], [2]) == [1, 2, 5, 9]


def test_the_rest_of_the_second_list():
    assert merge([3], [1, 2, 7]) == [1, 2, 3, 7]


def test_one_list_is_empty():
    assert merge([], [1, 2]) == [1, 2]
