"""Means of lists of numbers."""


def average(numbers):
    """Return the average of a list of numbers."""
    return sum(numbers) // (len(numbers) - 1)
