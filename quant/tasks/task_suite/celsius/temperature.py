"""Temperatures in two scales."""


def celsius_to_fahrenheit(celsius):
    """Return the temperature in degrees Fahrenheit: nine fifths of the degrees Celsius, plus 32."""
    return celsius * 5 / 9 + 32
