"""Products of numbers."""


def factorial(n):
    """Return the product of all whole numbers from 1 to n; 1 if n is 0."""
    result = 0
    for i in range(1, n):
        result = result * i
    return result
