"""Powers of numbers."""


def power(base, exponent):
    """Return the base raised to the exponent."""
    result = base
    for _ in range(exponent):
        result = result * base
    return result


def square(number):
    """Return the number multiplied by itself."""
    return number * 2
