"""Prints a conversation above the prompt of a line editor, with messages rendered as Markdown."""

from __future__ import annotations

from markdown_it import MarkdownIt
from rich.markdown import Markdown
from rich.text import Text

from ..log.transcript import Message
from ..values.delta import Delta
from .error_report import scrubbed
from .line_editor import READY, LineEditor
from .output import Output, plain_lines
from .screen import Screen


class EditorScreen(Screen):
    """A screen whose last lines belong to a line editor. A message is shown as it arrives, and
    printed as Markdown when it is complete.
    """

    def __init__(self, out: Output, editor: LineEditor) -> None:
        super().__init__(out)
        self.editor = editor
        self._arrived: dict[str, str] = {}  # the text of each message so far

    def line(self, text: str, style: str = "") -> None:
        shown = Text(plain_lines(text), style)
        self.editor.write(lambda: self.out.console.print(shown, soft_wrap=True))

    def remark(self, text: str) -> None:
        self.editor.write(lambda: self.out.remark(*scrubbed(text).split("\n")))

    def prompt(self, text: str) -> None:
        """Show a prompt: the agent waits for input."""
        self._set(text, None)

    def working(self, activity: str) -> None:
        """Show a spinner: the agent works."""
        self._set(READY, activity)

    def entered(self, text: str) -> None:
        """Print the line that the user has entered."""
        self.line(f"{self.editor.question}{text}", "bold")
        self.editor.question = READY

    def end_line(self) -> None:
        """Do nothing: every write above the prompt ends its line."""

    def history(self, messages: list[Message]) -> None:
        """Show earlier messages, and recall those of the user with the arrow keys."""
        for message in messages:
            if message.text and message.role == "assistant":
                self._markdown(message.text)
            elif message.text:
                self.line(f"{message.role}> {message.text}", "dim")
        self.editor.remember(one.text for one in messages if one.role == "user" and one.text)

    def _set(self, question: str, activity: str | None) -> None:
        self.editor.question, self.editor.activity = question, activity
        self.editor.refresh()

    def _delta(self, delta: Delta) -> None:
        if not delta.thought:
            text = self._arrived.get(delta.message, "") + delta.text
            self._arrived[delta.message] = self.editor.streaming = text
            self.editor.refresh()

    def _rest(self, id: str, text: str) -> None:
        self._arrived.pop(id, None)
        self.editor.streaming = ""
        self.editor.refresh()
        if text:
            self._markdown(text)

    def _markdown(self, text: str) -> None:
        shown = markdown(text)
        self.editor.write(lambda: self.out.console.print(shown))


def markdown(text: str) -> Markdown:
    """Render Markdown without hiding anything: HTML is shown as text, and links with their
    addresses.
    """
    safe = plain_lines(text)
    shown = Markdown(safe, hyperlinks=False, code_theme="ansi_dark")
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    shown.parsed = parser.parse(safe)
    return shown
