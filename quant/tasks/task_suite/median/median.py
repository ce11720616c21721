"""The middle of a list of numbers."""


def median(numbers):
    """Return the middle number in order, or the mean of the two middle ones."""
    middle = len(numbers) // 2
    return numbers[middle]
