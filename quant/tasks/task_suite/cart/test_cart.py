from cart import total
from prices import price_of


def test_a_price_by_its_name():
    assert price_of("tea") == 250


def test_a_price_in_capital_letters():
    assert price_of("Bread") == 320


def test_an_empty_cart_costs_nothing():
    assert total({}) == 0


def test_two_of_one_thing():
    assert total({"tea": 2}) == 500


def test_several_things():
    assert total({"tea": 1, "honey": 3}) == 2590
