from fizzbuzz import fizzbuzz


def test_a_plain_number_is_text():
    assert fizzbuzz(7) == "7"


def test_a_multiple_of_three():
    assert fizzbuzz(9) == "Fizz"


def test_a_multiple_of_five():
    assert fizzbuzz(20) == "Buzz"


def test_a_multiple_of_both():
    assert fizzbuzz(30) == "FizzBuzz"
