"""The text and the reasoning of messages, as parts that are opened, extended and closed. Each
character is sent once, whether it was streamed, came with the complete message, or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from ...values.delta import Delta

Chunk: TypeAlias = dict[str, Any]
Sort: TypeAlias = Literal["text", "reasoning"]
Part: TypeAlias = tuple[Sort, str]  # the sort, and the id of the message


class TextParts:
    """Base class of translations: a protocol defines the chunks for a part."""

    def __init__(self) -> None:
        self._open: Part | None = None
        self._sent: dict[Part, str] = {}
        self._over: set[str] = set()  # messages that are complete

    def part_start(self, part: Part) -> Iterator[Chunk]:
        """Return the chunks that open a part."""
        raise NotImplementedError

    def part_delta(self, part: Part, text: str) -> Iterator[Chunk]:
        """Return the chunks for more text."""
        raise NotImplementedError

    def part_end(self, part: Part) -> Iterator[Chunk]:
        """Return the chunks that close a part."""
        raise NotImplementedError

    def streamed(self, message: str) -> bool:
        """Return whether some of a message was sent."""
        return bool(self._sent.get(("text", message)) or self._sent.get(("reasoning", message)))

    def delta(self, delta: Delta) -> Iterator[Chunk]:
        """Return the chunks for streaming text. Text that was sent is left out; text that is
        missing comes with the message."""
        if delta.message in self._over:
            return
        if delta.thought:
            yield from self._more(("reasoning", delta.message), delta.text)
            return
        part: Part = ("text", delta.message)
        known = len(self._sent.get(part, ""))
        text = delta.text[max(0, known - delta.offset) :]
        if delta.offset <= known and text:
            yield from self._more(part, text)

    def complete(self, message: str, text: str, thought: str = "") -> Iterator[Chunk]:
        """Return the chunks for the rest of a message that is complete now."""
        self._over.add(message)
        if ("text", message) not in self._sent:
            yield from self._rest(("reasoning", message), thought)
        yield from self._rest(("text", message), text)
        yield from self.close()
        for sort in ("text", "reasoning"):
            self._sent.pop((sort, message), None)

    def close(self) -> Iterator[Chunk]:
        """Return the chunks that close the open part."""
        if self._open is not None:
            part, self._open = self._open, None
            yield from self.part_end(part)

    def _more(self, part: Part, text: str) -> Iterator[Chunk]:
        if self._open != part:
            yield from self.close()
            self._open = part
            yield from self.part_start(part)
        self._sent[part] = self._sent.get(part, "") + text
        yield from self.part_delta(part, text)

    def _rest(self, part: Part, text: str) -> Iterator[Chunk]:
        sent = self._sent.get(part, "")
        if text.startswith(sent) and len(text) > len(sent) and (not sent or self._open == part):
            yield from self._more(part, text[len(sent) :])
