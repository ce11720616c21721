from shapes import rectangle_area


def test_a_rectangle():
    assert rectangle_area(3, 4) == 12


def test_a_square():
    assert rectangle_area(5, 5) == 25


def test_a_line_has_no_area():
    assert rectangle_area(7, 0) == 0
