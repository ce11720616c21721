"""Sums that grow."""


def running_totals(numbers):
    """Return a list of the sums of all numbers up to and including each one."""
    totals = []
    total = 0
    for number in numbers:
        totals.append(total)
        total = number
    return totals
