"""Lists with every number doubled."""


def double_all(numbers):
    """Return a new list with every number doubled."""
    return [number + 2 for number in numbers]
