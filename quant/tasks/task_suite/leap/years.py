"""Years of the calendar."""


def is_leap_year(year):
    """Return True if the year is a leap year.

    A year is one if 4 divides it, except if 100 divides it, unless 400 divides it.
    """
    return year % 4 == 0
