from texts import reverse


def test_a_word():
    assert reverse("pine") == "enip"


def test_a_single_letter():
    assert reverse("a") == "a"


def test_the_empty_text():
    assert reverse("") == ""
