"""From failing tests to the functions behind them, and to the files that matter."""

from __future__ import annotations

from tests.proposer.fakes import failing, workspace
from veriloop_tui.proposer.target import find_targets
from veriloop_tui.proposer.workspace import imported_files, relevant_files

FILES = {
    "src/shop/__init__.py": b"from .cart import Cart\n",
    "src/shop/cart.py": b"""\
from shop.price import rounded


class Cart:
    def __init__(self):
        self.items = []

    def total(self):
        return rounded(sum(self.items))
""",
    "src/shop/price.py": b"def rounded(x):\n    return x\n\n\ndef unused():\n    pass\n",
    "other.py": b"def total():\n    pass\n",
    "README.md": b"# Shop\n",
    "tests/test_cart.py": b"""\
from shop import Cart

class TestCart:
    def test_total(self):
        cart = Cart()
        assert cart.total() == 0

def test_rounding():
    from shop.price import rounded
    assert rounded(1.2) == 1
""",
}
SHOP = workspace(FILES)


def _targets(*names: str, excerpt: str = "") -> list[str]:
    return [str(target) for target in find_targets(SHOP, tuple(failing(n, excerpt) for n in names))]


def test_a_test_leads_to_the_method_it_calls_and_then_to_what_that_calls() -> None:
    assert _targets("tests/test_cart.py::TestCart::test_total") == [
        "src/shop/cart.py::Cart.__init__",
        "src/shop/cart.py::Cart.total",
        "src/shop/price.py::rounded",
    ]


def test_a_parametrised_test_and_a_dotted_name_are_found() -> None:
    assert _targets("tests/test_cart.py::test_rounding[1::2]") == ["src/shop/price.py::rounded"]
    assert _targets("tests.test_cart::test_rounding") == ["src/shop/price.py::rounded"]


def test_a_traceback_leads_to_the_function_it_runs_through() -> None:
    excerpt = "tests/test_cart.py:6: in test_total\nsrc/shop/price.py:6: ValueError"
    assert _targets("no/such/file.py::test_x", excerpt=excerpt) == ["src/shop/price.py::unused"]


def test_a_test_that_is_not_in_the_workspace_leads_nowhere() -> None:
    assert _targets("test_gone", "tests/gone.py::test_x") == []


def test_a_name_defined_twice_in_what_is_imported_leads_nowhere() -> None:
    files = {
        "a.py": b"def f():\n    pass\n",
        "b.py": b"def f():\n    pass\n",
        "tests/test_x.py": b"import a\nimport b\n\ndef test_f():\n    assert a.f()\n",
    }
    assert find_targets(workspace(files), (failing("tests/test_x.py::test_f"),)) == ()


def test_imports_are_followed_through_packages_but_not_into_strangers() -> None:
    assert imported_files(SHOP, ["tests/test_cart.py"]) == (
        "src/shop/__init__.py",
        "src/shop/price.py",
        "src/shop/cart.py",
    )


def test_files_named_by_task_and_traceback_come_first_and_protected_ones_last() -> None:
    outcome = failing("tests/test_cart.py::test_rounding", "src/shop/price.py:2: in rounded")
    assert relevant_files(SHOP, "See README.md, please.", (outcome,)) == (
        "README.md",
        "src/shop/price.py",
        "src/shop/__init__.py",
        "src/shop/cart.py",
        "tests/test_cart.py",
    )


def test_hostile_failure_text_names_only_workspace_files() -> None:
    text = '../../etc/passwd.txt:1 /src/shop/price.py:99999999999 File "x.py", line 3'
    assert _targets("t", excerpt=text) == []
