"""Prices with a discount."""


def discounted(price, percent):
    """Return the price after a discount of so many percent has been taken off."""
    return price - percent
