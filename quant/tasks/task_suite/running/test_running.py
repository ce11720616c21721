from running import running_totals


def test_several_numbers():
    assert running_totals([1, 2, 3]) == [1, 3, 6]


def test_negative_numbers():
    assert running_totals([5, -2]) == [5, 3]


def test_no_numbers():
    assert running_totals([]) == []
