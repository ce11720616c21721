"""Distances on a line."""


def absolute(number):
    """Return the number without its sign."""
    if number > 0:
        return -number
    return number
