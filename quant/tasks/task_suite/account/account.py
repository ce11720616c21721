"""A bank account that never goes below zero."""


class Account:
    """An account with a balance in whole cents."""

    def __init__(self, balance):
        self.balance = balance

    def deposit(self, amount):
        """Add the amount to the balance."""
        self.balance = amount

    def withdraw(self, amount):
        """Take the amount from the balance if it is covered; return whether it was."""
        if amount < self.balance:
            self.balance -= amount
            return True
        return False
