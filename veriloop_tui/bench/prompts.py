"""The prompts of the benchmark. They never change without a new `SET`: runs are compared by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SET: Final = 1

_MODULE: Final = '''"""A little bank that keeps its balances in memory."""


class NotEnough(Exception):
    """The account holds less than was asked for."""


class Account:
    """An account with a balance in cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        """Put cents in."""
        if amount <= 0:
            raise ValueError("the amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount):
        """Take cents out."""
        if amount <= 0:
            raise ValueError("the amount must be positive")
        if amount > self.balance:
            raise NotEnough(self.owner)
        self.balance -= amount
        self.history.append(("withdraw", amount))


class Bank:
    """Accounts by owner."""

    def __init__(self):
        self.accounts = {}

    def open(self, owner):
        """Open an account, or return the one that is there."""
        return self.accounts.setdefault(owner, Account(owner))

    def transfer(self, source, target, amount):
        """Move cents from one account to another."""
        self.accounts[source].withdraw(amount)
        self.accounts[target].deposit(amount)

    def total(self):
        """The cents of all accounts."""
        return sum(account.balance for account in self.accounts.values())
'''

_BROKEN: Final = '''def median(values):
    """The middle value; of an even number of values, the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 0:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
'''


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. `copies` says that a good answer repeats much of it."""

    name: str
    text: str
    copies: bool = False


PROMPTS: Final = (
    Prompt("write", "Write a Python function that merges two sorted lists into one sorted list."),
    Prompt(
        "rewrite",
        "Rename the method `total` to `sum_of_balances` in this module and write the whole module "
        f"again, unchanged otherwise.\n\n```python\n{_MODULE}```",
        copies=True,
    ),
    Prompt(
        "add",
        "Add a method `close(owner)` to the class `Bank` that removes an account whose balance is "
        f"zero, and write the whole module again.\n\n```python\n{_MODULE}```",
        copies=True,
    ),
    Prompt(
        "repair",
        f"This function is wrong. Write it again, repaired.\n\n```python\n{_BROKEN}```",
        copies=True,
    ),
    Prompt("explain", f"Explain in a few sentences what this does.\n\n```python\n{_MODULE}```"),
    Prompt(
        "tests",
        f"Write three pytest tests for the class `Account`.\n\n```python\n{_MODULE}```",
    ),
    Prompt(
        "json",
        "List the public methods of this module as a JSON array of objects with the keys "
        f"'class', 'method' and 'purpose'.\n\n```python\n{_MODULE}```",
    ),
    Prompt(
        "shell", "Write a shell script that counts the lines of all Python files below a folder."
    ),
)
