"""A stack: what was put on last is taken off first."""


class Stack:
    """Items on top of each other."""

    def __init__(self):
        self.items = []

    def push(self, item):
        """Put an item on top."""
        self.items.insert(0, item)

    def pop(self):
        """Take the top item off and return it."""
        return self.items.pop()

    def is_empty(self):
        """Return True if there are no items."""
        return len(self.items) > 0
