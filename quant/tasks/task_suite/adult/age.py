"""Ages of people."""


def is_adult(age):
    """Return True if a person of this age is an adult: 18 or older."""
    return age > 18
