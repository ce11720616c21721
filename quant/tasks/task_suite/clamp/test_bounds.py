from bounds import clamp


def test_a_number_inside_stays():
    assert clamp(5, 0, 10) == 5


def test_a_number_below_is_raised():
    assert clamp(-3, 0, 10) == 0


def test_a_number_above_is_lowered():
    assert clamp(12, 0, 10) == 10
