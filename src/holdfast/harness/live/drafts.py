"""What is being said: the text of messages that are not in the log yet."""

from __future__ import annotations

from collections import deque

from ...log.events import Event
from ...values.delta import Delta, Growing, TextPieces
from ...values.display import ENDS, Said

SPOKEN = ("message.completed", "message.interrupted")
LATEST = 32  # messages of which text that comes late is known to be late


class Speech:
    """The messages in flight of one log. `flying` has their texts so far, by the ids of the
    events that will hold them."""

    def __init__(self) -> None:
        self.flying: dict[str, Growing] = {}
        self._message: str | None = None  # the latest, unless what came ended it
        self._thinking = Growing()
        self._over: deque[str] = deque(maxlen=LATEST)

    def say(self, message: str, text: str, *, thought: bool = False) -> Delta | None:
        """Some more text of a message; what listeners are told of it. None: the message is in
        the log already, with all of its text."""
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
        """Forget what an event holds, or has ended."""
        self.flying.pop(event.id, None)
        if event.kind in SPOKEN:
            self._over.append(event.id)
        if event.kind in ENDS or event.id == self._message:
            self._message = None

    def now(self) -> Said | None:
        """The latest message in flight, as far as it has come."""
        if (id := self._message) is None:
            return None
        body = self.flying[id].now() if id in self.flying else TextPieces.of()
        return Said(id=id, body=body, thinking=self._thinking.now())
