from median import median


def test_an_odd_count():
    assert median([1, 2, 9]) == 2


def test_numbers_out_of_order():
    assert median([9, 1, 2]) == 2


def test_an_even_count():
    assert median([4, 1, 3, 2]) == 2.5


def test_a_single_number():
    assert median([6]) == 6
