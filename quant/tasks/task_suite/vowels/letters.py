"""Letters in texts."""


def count_vowels(text):
    """Return how many of the letters of a text are vowels: a, e, i, o, u, in any case."""
    count = 0
    for letter in text:
        if letter in "aei":
            count = 1
    return count
