from account import Account


def test_a_deposit_is_added():
    account = Account(100)
    account.deposit(50)
    assert account.balance == 150


def test_a_covered_amount_is_taken():
    account = Account(100)
    assert account.withdraw(30)
    assert account.balance == 70


def test_the_whole_balance_can_be_taken():
    account = Account(100)
    assert account.withdraw(100)
    assert account.balance == 0


def test_what_is_not_covered_stays():
    account = Account(100)
    assert not account.withdraw(101)
    assert account.balance == 100
