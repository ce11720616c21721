from discount import discounted


def test_ten_percent():
    assert discounted(200, 10) == 180


def test_no_discount():
    assert discounted(80, 0) == 80


def test_everything_off():
    assert discounted(80, 100) == 0
