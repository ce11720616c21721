from flatten import flatten


def test_two_lists():
    assert flatten([[1, 2], [3]]) == [1, 2, 3]


def test_an_empty_list_adds_nothing():
    assert flatten([[], ["a"], []]) == ["a"]


def test_no_lists():
    assert flatten([]) == []
