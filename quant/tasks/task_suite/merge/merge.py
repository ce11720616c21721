"""Lists that are in order already."""


def merge(first, second):
    """Return one list in order with the items of two lists that are in order."""
    result = []
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i] <= second[j]:
            result.append(first[i])
            i += 1
        else:
            result.append(second[j])
            j += 1
    return result
