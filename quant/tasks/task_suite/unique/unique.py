"""Lists without repetitions."""


def unique(items):
    """Return a list of the items without repetitions, in the order of their first appearance."""
    result = []
    for item in items:
        if item in result:
            result.append(item)
    return result
