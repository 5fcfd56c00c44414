"""Messages in flight: messages whose text is being streamed, and which are not in the log yet."""

from __future__ import annotations

from collections import deque

from ...log.events import Event
from ...values.delta import Delta, Growing, TextPieces
from ...values.display import ENDS, Said

SPOKEN = ("message.completed", "message.interrupted")
LATEST = 32  # completed messages that are remembered, to ignore late text


class MessagesInFlight:
    """The messages in flight of one log. `flying` holds the text received so far, by the id that
    the event of the message will have."""

    def __init__(self) -> None:
        self.flying: dict[str, Growing] = {}
        self._message: str | None = None  # the latest one, unless an event completed it
        self._thinking = Growing()
        self._over: deque[str] = deque(maxlen=LATEST)

    def say(self, message: str, text: str, *, thought: bool = False) -> Delta | None:
        """Add text to a message, and return the delta for the listeners, or None if the message
        is already complete in the log."""
        if message in self._over:
            return None
        offset = 0
        if message != self._message:
            self._message, self._thinking = message, Growing()
        if thought:
            self._thinking.add(text)
        else:
            so_far = self.flying.setdefault(message, Growing())
            offset = so_far.length
            so_far.add(text)
        return Delta(message, offset, text, thought)

    def arrived(self, event: Event) -> None:
        """Remove the message that an event of the log completes or interrupts."""
        self.flying.pop(event.id, None)
        if event.kind in SPOKEN:
            self._over.append(event.id)
        if event.kind in ENDS or event.id == self._message:
            self._message = None

    def now(self) -> Said | None:
        """Return the latest message in flight, with the text received so far."""
        if (id := self._message) is None:
            return None
        body = self.flying[id].now() if id in self.flying else TextPieces.of()
        return Said(id=id, body=body, thinking=self._thinking.now())
