"""The digits of whole numbers."""


def sum_of_digits(number):
    """Return the sum of the digits of a whole number that is zero or more."""
    total = 0
    while number > 10:
        total += number % 10
        number = number / 10
    return total
