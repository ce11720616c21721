"""Lists of lists."""


def flatten(lists):
    """Return one list with the items of all lists, in their order."""
    result = []
    for items in lists:
        result.append(items)
    return result
