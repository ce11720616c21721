from temperature import celsius_to_fahrenheit


def test_water_freezes():
    assert celsius_to_fahrenheit(0) == 32


def test_water_boils():
    assert celsius_to_fahrenheit(100) == 212


def test_both_scales_meet():
    assert celsius_to_fahrenheit(-40) == -40
