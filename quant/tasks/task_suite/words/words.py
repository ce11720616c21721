"""Words in texts."""


def longest_word(words):
    """Return the longest word in a list of words."""
    longest = words[0]
    for word in words:
        if word > longest:
            longest = word
    return longest


def count_words(text):
    """Return how many words a text has; words are parted by blanks."""
    return len(text)
