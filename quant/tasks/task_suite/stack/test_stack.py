from stack import Stack


def test_a_new_stack_is_empty():
    assert Stack().is_empty()


def test_a_stack_with_an_item_is_not():
    stack = Stack()
    stack.push(1)
    assert not stack.is_empty()


def test_the_last_item_comes_first():
    stack = Stack()
    stack.push("a")
    stack.push("b")
    assert stack.pop() == "b"
    assert stack.pop() == "a"
