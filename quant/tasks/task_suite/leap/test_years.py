from years import is_leap_year


def test_a_common_year():
    assert not is_leap_year(2023)


def test_a_leap_year():
    assert is_leap_year(2024)


def test_a_century_is_none():
    assert not is_leap_year(1900)


def test_every_fourth_century_is_one():
    assert is_leap_year(2000)
