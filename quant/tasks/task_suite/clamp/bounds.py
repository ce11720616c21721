"""Numbers between two bounds."""


def clamp(number, low, high):
    """Return the number, but not less than low and not more than high."""
    if number < low:
        return high
    return number
