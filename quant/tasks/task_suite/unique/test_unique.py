from unique import unique


def test_repetitions_go():
    assert unique([1, 2, 1, 3, 2]) == [1, 2, 3]


def test_the_order_stays():
    assert unique(["b", "a", "b"]) == ["b", "a"]


def test_the_empty_list():
    assert unique([]) == []
