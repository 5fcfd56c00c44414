"""Prints a conversation while it runs: text, tool calls, questions and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from ..errors import HoldfastError
from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event
from ..log.events.defaults import complete
from ..log.transcript import Message
from ..values.delta import Delta
from ..values.risk import risk
from ..values.stream_items import Item, Trouble
from .error_report import scrubbed
from .event_text import PROBED
from .output import Output, json_text, plain_lines
from .render import moment, warning

LONG = 500  # characters of a tool result that are shown


class Screen:
    """Prints the items of a session's stream. `mine` has the ids of events that this user caused,
    which are not printed again.
    """

    def __init__(self, out: Output) -> None:
        self.out = out
        self.mine: set[str] = set()
        self.terminal = out.console.is_terminal and not out.json
        self._said: dict[str, int] = {}  # characters shown of each message
        self._within = False  # whether the cursor is within a line
        self._prompted: str | None = None  # the prompt in the last line

    def show(self, item: Item) -> None:
        """Show one item of a session's stream."""
        if self.out.json:
            self._emit(item)
        elif isinstance(item, Event):
            for text, style in self._event(item):
                self.line(text, style)
        elif isinstance(item, Delta):
            self._delta(item)
        elif isinstance(item, Trouble):
            self.remark(f"problem: {item.problem} ({item.code})")

    def line(self, text: str, style: str = "") -> None:
        """Write a line, to stderr if stdout is JSON."""
        if self.out.json:
            return self.remark(text)
        self.end_line()
        self._write(text + "\n", style)

    def remark(self, text: str) -> None:
        """Write a remark to stderr."""
        self.end_line()
        self.out.remark(scrubbed(text))

    def problem(self, error: HoldfastError) -> None:
        """Show an error; the conversation continues."""
        self.remark(f"error: {error} ({error.docs})")

    def prompt(self, text: str) -> None:
        """Show a prompt on a terminal."""
        if self.terminal and text != self._prompted:
            self.end_line()
            self._write(text, "bold")
            self._within, self._prompted = True, text

    def working(self, activity: str) -> None:
        """Show that the agent works. Does nothing here: its output is shown."""

    def entered(self, text: str) -> None:
        """Record that the user has pressed Enter: the cursor is at the start of a line."""
        self._within, self._prompted = False, None

    def end_line(self) -> None:
        if self._within:
            self.out.console.print()
            self._within, self._prompted = False, None

    def history(self, messages: list[Message]) -> None:
        """Show earlier messages."""
        for message in messages if not self.out.json else ():
            who = f"{message.role}> " if message.role != "assistant" else ""
            if message.text:
                self.line(f"{who}{message.text}", "dim")

    def _emit(self, item: Item) -> None:
        name = type(item).__name__.lower()
        if name in ("event", "delta", "trouble"):
            self.out.emit({name: complete(item) if isinstance(item, Event) else item})

    def _write(self, text: str, style: str = "") -> None:
        self._prompted = None
        self.out.console.print(Text(plain_lines(text), style), end="", soft_wrap=True)

    def _delta(self, delta: Delta) -> None:
        if delta.thought:
            if self.terminal:
                self._write(delta.text, "dim italic")
                self._within = True
            return
        if self._within and delta.message not in self._said:
            self.end_line()
        self._write(delta.text)
        self._within = not delta.text.endswith("\n")
        self._said[delta.message] = delta.offset + len(delta.text)

    def _event(self, event: Event) -> Iterator[tuple[str, str]]:
        match typed(event):
            case ev.MessageReceived() as said if event.id not in self.mine:
                yield f"{event.actor or 'message'}> {said.text}", "bold"
            case ev.MessageCompleted() as said:
                self._rest(event.id, said.text)
                for call in said.calls:
                    yield f"→ {call.name}({json_text(call.arguments)})", "yellow"
            case ev.MessageInterrupted() as said:
                self._rest(event.id, said.text)
                yield f"[interrupted: {said.reason or 'no reason given'}]", "dim"
            case ev.ToolFinished() as done:
                yield f"← {_outcome(done)}", "yellow"
            case ev.ToolProbed() as probed:
                why = f": {probed.reason}" if probed.reason else ""
                yield f"… {PROBED[probed.outcome]}{why}", "dim"
            case ev.ProgressReported() as progress:
                yield f"… {json_text(progress.data)}", "dim"
            case ev.PendingOpened() as opened:
                until = f" (until {moment(opened.expires)})" if opened.expires else ""
                harm = warning(risk(opened))
                several = f" (needs {opened.approvals} approvals)" if opened.approvals > 1 else ""
                title = opened.title or opened.id
                yield f"? {opened.what}: {title}{harm}{several}{until}", "magenta"
            case ev.PendingVoted() as voted if event.id not in self.mine:
                why = f": {voted.reason}" if voted.reason else ""
                yield f"approval by {event.actor or 'someone'}{why}", "magenta"
            case ev.PendingSettled() as settled if event.id not in self.mine:
                why = f": {settled.reason}" if settled.reason else ""
                yield f"{settled.outcome} by {event.actor or 'someone'}{why}", "magenta"
            case ev.ModeChanged(mode=mode):
                yield f"mode: {mode}", "dim"
            case ev.ModelChanged(model=model):
                yield f"model: {model or 'default'}", "dim"
            case ev.RunFinished(status=status) as ended if status != "done":
                why = ": ".join(filter(None, (ended.code, ended.error)))
                yield f"[{status}{f': {why}' if why and why != status else ''}]", "red"

    def _rest(self, id: str, text: str) -> None:
        """Show the part of a message that was not streamed."""
        left = text[self._said.pop(id, 0) :]
        if left:
            if self._within and left == text:
                self.end_line()
            self._write(left)
            self._within = not left.endswith("\n")
        self.end_line()


def _outcome(done: ev.ToolFinished) -> str:
    said: Any = done.content if done.content is not None else done.result
    text = said if isinstance(said, str) else json_text(said)
    text = f"{text[:LONG]}…" if len(text) > LONG else text
    return text if done.outcome == "ok" else f"{done.outcome}: {text or done.error or ''}"
