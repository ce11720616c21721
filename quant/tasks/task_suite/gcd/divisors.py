"""Divisors of numbers."""


def greatest_common_divisor(a, b):
    """Return the largest number that divides both a and b."""
    while b != 0:
        a = b
        b = a % b
    return a
