"""The largest and the smallest of numbers."""


def largest(numbers):
    """Return the largest number in a list."""
    best = 0
    for number in numbers[1:]:
        if number > best:
            best = number
    return best


def smallest(numbers):
    """Return the smallest number in a list."""
    return max(numbers)
