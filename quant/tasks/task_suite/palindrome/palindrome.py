"""Words that read the same in both directions."""


def is_palindrome(text):
    """Return True if the text reads the same backwards; letters may be of any case."""
    return text == text[1:]
