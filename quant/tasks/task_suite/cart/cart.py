"""A shopping cart."""

from prices import price_of


def total(cart):
    """Return the sum for a cart, a dictionary from the name of a thing to how many of it."""
    cents = 0
    for name in cart:
        cents += price_of(name)
    return cents
