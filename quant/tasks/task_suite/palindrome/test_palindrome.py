from palindrome import is_palindrome


def test_a_palindrome():
    assert is_palindrome("level")


def test_another_word():
    assert not is_palindrome("table")


def test_letters_of_any_case():
    assert is_palindrome("Anna")


def test_the_empty_text():
    assert is_palindrome("")
