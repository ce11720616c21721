from doubling import double_all


def test_several_numbers():
    assert double_all([1, 2, 3]) == [2, 4, 6]


def test_negative_numbers():
    assert double_all([-4]) == [-8]


def test_the_list_itself_stays():
    numbers = [1, 5]
    double_all(numbers)
    assert numbers == [1, 5]
