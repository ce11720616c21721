"""Sums of some of the numbers in a list."""


def sum_even(numbers):
    """Return the sum of the even numbers in a list."""
    total = 0
    for number in numbers:
        if number % 2:
            total += number
    return total


def sum_positive(numbers):
    """Return the sum of the numbers above zero in a list."""
    total = 0
    for number in numbers:
        if number < 0:
            total += number
    return total
