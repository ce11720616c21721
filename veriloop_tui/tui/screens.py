"""Small screens over the main one: the reason of a rejection, and the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from veriloop_tui.tui.paint import news_line
from veriloop_tui.tui.view import News

KEYS = (
    ("t", "type a task; Enter starts the run, Esc leaves the line"),
    ("a", "approve: the candidate is committed to the workspace"),
    ("r", "reject; your reason becomes evidence for the next attempt"),
    ("s", "stop the run at once; what was committed stays"),
    ("m", "measure the workspace again (as happens after edits)"),
    ("1 2 3", "show the attempt's answer, diff, evidence"),
    ("f", "follow the newest attempt"),
    ("Tab", "go to the next panel; arrows, PgUp and PgDn move in it"),
    ("n", "read all notices and verdicts, the newest first"),
    ("d", "dark or light colours"),
    ("Ctrl+C", "stop the run; without a run, quit"),
    ("q", "quit; a run is stopped first, a second q does not wait"),
)
RULE = (
    "A candidate is committed only if no protected check got worse and at least one got better. "
    "Rank 0 means that every check of this contract is satisfied, no more."
)
MARKS = (
    ("✓", "committed, or satisfied"),
    ("✗", "not committed, or failing"),
    ("◌", "running"),
    ("–", "stopped before it ended"),
    ("~", "flaky on the same bytes: quarantined"),
)


class ReasonInput(Input):
    """Where the reason is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Reject")]


class ReasonScreen(ModalScreen[str | None]):
    """Asks why a candidate is rejected. Dismissed with the reason, or `None` to go back."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back to the diff")]

    def compose(self) -> ComposeResult:
        with Vertical(id="reason-box", classes="box"):
            yield Static("Why not? The next attempt will see it. It may be empty.", markup=False)
            yield ReasonInput(
                id="reason", placeholder="for example: keep the signature", compact=True
            )
            yield Footer(show_command_palette=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter rejects."""
        event.stop()
        self.dismiss(event.value.strip())

    def action_back(self) -> None:
        """Do not reject after all."""
        self.dismiss(None)


class TextScreen(ModalScreen[None]):
    """Something to read, over the main screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,n,f1", "back", "Back", key_display="esc"),
    ]

    def __init__(self, text: Content) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="text-box", classes="box"):
            yield Static(self._text)
        yield Footer(show_command_palette=False)

    def action_back(self) -> None:
        """Close it."""
        self.dismiss(None)


def keys_text() -> Content:
    """The rule, the keys and the signs."""
    rows: list[tuple[str, str]] = [(f"{RULE}\n\n", "")]
    for key, meaning in KEYS:
        rows += [(f"{key:>7}  ", "bold $text-accent"), (f"{meaning}\n", "")]
    rows.append(("\n", ""))
    for mark, meaning in MARKS:
        rows += [(f"{mark:>7}  ", "bold"), (f"{meaning}\n", "")]
    return Content.assemble(*rows)


def news_text(news: tuple[News, ...]) -> Content:
    """All that was told, the newest first."""
    if not news:
        return Content("Nothing has happened yet.")
    return Content("\n").join(news_line(line) for line in reversed(news))
