"""Even and odd numbers."""


def is_even(number):
    """Return True if the number is even."""
    return number % 2 == 1
