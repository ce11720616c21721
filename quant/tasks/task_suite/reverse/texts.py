"""Texts turned around."""


def reverse(text):
    """Return the text with its letters in reverse order."""
    return text[1:]
