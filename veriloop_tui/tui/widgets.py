"""The panels of the main screen. Each has one `show` and paints only what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from veriloop_tui.tui import paint, rows
from veriloop_tui.tui.view import Attempt, Entry, FailingLine, Incumbent, Phase, View

Tab = str
TABS: tuple[Tab, ...] = ("answer", "diff", "evidence")


@dataclass(frozen=True, slots=True)
class CheckKey:
    """A failing check's place: obligation and name."""

    obligation: str
    name: str


class Line(Static):
    """A line of text that is painted again only when it differs."""

    def __init__(self, id: str) -> None:  # noqa: A002
        super().__init__("", id=id, classes="empty", markup=False)
        self._text = Content("")

    def show(self, text: Content) -> None:
        """Paint `text`."""
        if text.plain != self._text.plain or text.spans != self._text.spans:
            before, self._text = self._text, text
            self.update(text, layout=self._moves_others(before, text))
            self.set_class(not text.plain, "empty")

    def _moves_others(self, before: Content, now: Content) -> bool:
        return True


class Bar(Line):
    """A line of one row: laid out anew only when its length differs, so that a clock is cheap."""

    def _moves_others(self, before: Content, now: Content) -> bool:
        return before.cell_length != now.cell_length


class Stream(Static):
    """The last rows of an answer that still grows.

    Of a fixed size, so that no piece of an answer makes the whole screen be laid out anew: that
    costs CPU time that the model needs.
    """

    def __init__(self) -> None:
        super().__init__("", id="stream", markup=False)
        self._answer = ""

    def on_resize(self) -> None:
        """Paint again: what fits has changed."""
        self.show(self._answer)

    def show(self, answer: str) -> None:
        """Paint what fits of the end of `answer`."""
        self._answer = answer
        width, height = self.content_size
        if width > 0 and height > 0:
            end = answer[-width * height :].split("\n")[-height:]
            lines = Content("\n".join(end)).wrap(width)
            self.update(Content("\n").join(lines[-height:]), layout=False)


class TaskInput(Input):
    """Where the task is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Start the run"),
        Binding("escape", "leave", "Leave"),
    ]

    class Left(Message):
        """The user wants the keys of the main screen."""

    def action_leave(self) -> None:
        """Give the focus away."""
        self.post_message(self.Left())


class Checks(OptionList):
    """Rank per obligation, and each failing check."""

    def __init__(self) -> None:
        super().__init__(id="checks", markup=False)
        self.border_title = "Checks"
        self._shown: Incumbent | None = None
        self._first: int | None = None
        self._keys: list[CheckKey | None] = []

    def show(self, view: View) -> None:
        """Paint the incumbent."""
        incumbent, first = view.incumbent, view.first_total
        if incumbent is self._shown and first == self._first:
            return
        if incumbent is None:
            self.border_title = "Checks"
        elif first is None or first == incumbent.total:
            self.border_title = f"Checks · rank {incumbent.total:,}"
        else:
            self.border_title = f"Checks · rank {first:,} → {incumbent.total:,}"
        if incumbent is not self._shown:
            self._rebuild(incumbent)
        self._shown, self._first = incumbent, first

    def _rebuild(self, incumbent: Incumbent | None) -> None:
        kept = self.key
        options: list[tuple[Content, CheckKey | None]] = []
        for line in incumbent.obligations if incumbent is not None else ():
            options.append((rows.obligation_row(line), None))
            options += [(rows.failing_row(c), CheckKey(line.name, c.name)) for c in line.failing]
            if line.unsatisfied > len(line.failing):
                options.append((rows.more_row(line.unsatisfied - len(line.failing)), None))
            options += [(rows.flaky_row(name), None) for name in line.quarantined.shown]
        self._keys = [key for _, key in options]
        self.set_options([Option(text, disabled=key is None) for text, key in options])
        if kept in self._keys and kept is not None:
            self.highlighted = self._keys.index(kept)

    @property
    def key(self) -> CheckKey | None:
        """The highlighted failing check."""
        at = self.highlighted
        return self._keys[at] if at is not None and at < len(self._keys) else None


class Timeline(OptionList):
    """The attempts of this and earlier runs, the newest at the end."""

    def __init__(self) -> None:
        super().__init__(id="timeline", markup=False)
        self.border_title = "Attempts"
        self.follow_newest = False
        self._entries: tuple[Entry, ...] = ()
        self._rows: list[Content] = []
        self._current: Attempt | None = None

    def show(self, view: View) -> None:
        """Paint the timeline; stays at the newest entry if it was there.

        `follow_newest`, set by whoever wants it, goes there once.
        """
        running = () if view.current is None else (view.current,)
        entries = (*view.timeline, *running)
        at = self.highlighted
        newest = self.follow_newest or at is None or at >= self._last_attempt()
        same_start = not self._entries or (
            bool(entries) and entries[0].serial == self._entries[0].serial
        )
        if not same_start or len(entries) < len(self._entries):
            self.clear_options()
            self._entries, self._rows = (), []
        for index, entry in enumerate(entries):
            known = self._entries[index] if index < len(self._entries) else None
            if known is entry and entry is not view.current and entry is not self._current:
                continue
            row = rows.entry_row(entry, view.phase if entry is view.current else None)
            self._put(index, row, disabled=not isinstance(entry, Attempt))
        self._current = view.current
        grew = len(entries) > len(self._entries)
        self._entries = entries
        dropped = f" · {view.dropped:,} older in `veriloop log`" if view.dropped else ""
        title = f"Attempts{dropped}"
        if self.border_title != title:
            self.border_title = title
        if newest and (grew or self.follow_newest or self.highlighted is None):
            self._follow()
        self.follow_newest = False

    def _put(self, index: int, row: Content, disabled: bool) -> None:
        if index == len(self._rows):
            self._rows.append(row)
            self.add_option(Option(row, disabled=disabled))
        elif self._rows[index].plain != row.plain or self._rows[index].spans != row.spans:
            self._rows[index] = row
            self.replace_option_prompt_at_index(index, row)

    def _last_attempt(self) -> int:
        for index in range(len(self._entries) - 1, -1, -1):
            if isinstance(self._entries[index], Attempt):
                return index
        return 0

    def _follow(self) -> None:
        last = self._last_attempt()
        if self._entries and isinstance(self._entries[last], Attempt):
            self.highlighted = last

    @property
    def attempt(self) -> Attempt | None:
        """The highlighted attempt."""
        at = self.highlighted
        entry = self._entries[at] if at is not None and at < len(self._entries) else None
        return entry if isinstance(entry, Attempt) else None


class Detail(Vertical):
    """One attempt's answer, diff or evidence, or one failing check's excerpt."""

    def __init__(self) -> None:
        super().__init__(id="detail")
        self.border_title = "Detail"
        self._painted: tuple[object, object] | None = None
        self._serial = -1
        self._chosen: Tab | None = None

    def compose(self) -> ComposeResult:
        yield Line("head")
        yield Stream()
        with VerticalScroll(id="body", can_focus=True):
            yield Line("text")

    def show_attempt(self, attempt: Attempt, tab: Tab | None, phase: Phase | None) -> None:
        """Paint an attempt; without a `tab` the part that matters now."""
        chosen = tab or _telling(attempt, phase)
        if self._painted == (attempt, chosen) and not self.has_class("growing"):
            return
        self._title(chosen)
        self.query_one("#head", Line).show(rows.attempt_head(attempt))
        switched = (self._serial, self._chosen) != (attempt.serial, chosen)
        self._painted = (attempt, chosen)
        self._serial, self._chosen = attempt.serial, chosen
        streams = phase is Phase.PROPOSING and bool(attempt.answer)
        growing = streams and chosen == "answer"
        self.set_class(growing, "growing")
        if growing:
            self.query_one(Stream).show(attempt.answer)
        else:
            self._fill(_body(attempt, chosen), switched)

    def show_check(self, key: CheckKey, line: FailingLine) -> None:
        """Paint a failing check."""
        if self._painted == (key, line.excerpt):
            return
        self.border_title = "Failing check"
        self.query_one("#head", Line).show(rows.check_head(key.obligation, line))
        empty = Content.styled("The report holds no text for this check.", paint.MUTED)
        text = Content(line.excerpt) if line.excerpt else empty
        self._painted, self._serial = (key, line.excerpt), -1
        self.remove_class("growing")
        self._fill(text, switched=True)

    def show_text(self, title: str, text: Content) -> None:
        """Paint a message where there is nothing to choose from."""
        if self._painted == (title, text.plain):
            return
        self._painted, self._serial = (title, text.plain), -1
        self.border_title = title
        self.query_one("#head", Line).show(Content(""))
        self.remove_class("growing")
        self._fill(text, switched=True)

    def _title(self, chosen: Tab) -> None:
        marks = [f"[b u]{tab}[/]" if tab == chosen else tab for tab in TABS]
        self.border_title = " │ ".join(f"{at} {mark}" for at, mark in enumerate(marks, 1))

    def _fill(self, text: Content, switched: bool) -> None:
        self.query_one("#text", Line).show(text)
        if switched:
            self.query_one("#body", VerticalScroll).scroll_home(animate=False)


def _telling(attempt: Attempt, phase: Phase | None) -> Tab:
    if attempt.label is None and phase is Phase.PROPOSING:
        return "answer"
    if attempt.diff:
        return "diff"
    return "evidence" if attempt.label is not None else "answer"


def _body(attempt: Attempt, tab: Tab) -> Content:
    if attempt.forgotten:
        gone = "No longer kept here; `veriloop log` and `veriloop show` have it."
        return Content.styled(gone, paint.MUTED)
    if tab == "evidence":
        return rows.evidence(attempt)
    if tab == "diff":
        none = "No diff: the answer was not a change." if attempt.label else "No diff yet."
        return rows.diff(attempt.diff) if attempt.diff else Content.styled(none, paint.MUTED)
    waiting = "The model reads the prompt…" if attempt.label is None else "No answer."
    if not attempt.answer:
        return Content.styled(waiting, paint.MUTED)
    return Content(attempt.answer)
