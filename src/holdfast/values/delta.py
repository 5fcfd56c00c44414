"""Streaming text: the pieces of a message that is not in the log yet. Plain values."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Delta(Struct, frozen=True, tag="delta"):
    """The next piece of text of a streaming message: `text` starts at code point `offset`.
    `message` is the id of the event that will contain the whole message. If `thought` is true, the
    text is reasoning of the model and not part of the message.

    ```python
    async for item in session.stream("Hello"):
        if isinstance(item, Delta) and not item.thought:
            print(item.text, end="")
    ```
    """

    message: str
    offset: int
    text: str
    thought: bool = False


class TextPieces:
    """Text that is stored in pieces. It is immutable, but a longer text may share its pieces, so
    keeping all versions of a growing text needs no more memory than the text itself."""

    __slots__ = ("_count", "_own", "_pieces", "_whole", "length")

    def __init__(self, pieces: list[str], length: int, *, own: bool = True) -> None:
        self._pieces, self._count, self.length, self._own = pieces, len(pieces), length, own
        self._whole: str | None = None

    @classmethod
    def of(cls, text: str = "") -> TextPieces:
        return cls([text] if text else [], len(text))

    def plus(self, text: str) -> TextPieces:
        """Return this text with more text appended."""
        pieces = self._pieces
        if not self._own or len(pieces) != self._count:  # shared with a longer text
            pieces = pieces[: self._count]
        pieces.append(text)
        return TextPieces(pieces, self.length + len(text))

    def since(self, offset: int) -> str:
        """Return the text after code point `offset`. The cost is proportional to the length of the
        result."""
        left, found = self.length - offset, list[str]()
        for place in range(self._count - 1, -1, -1):
            if left <= 0:
                break
            piece = self._pieces[place]
            found.append(piece[-left:] if left < len(piece) else piece)
            left -= len(piece)
        return "".join(reversed(found))

    def __str__(self) -> str:
        if self._whole is None:
            self._whole = "".join(self._pieces[: self._count])
        return self._whole

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, TextPieces) or self.length != other.length:
            return False
        shared = self._pieces is other._pieces and self._count == other._count
        return shared or str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"TextPieces({str(self)!r})"


class Growing:
    """Text that arrives in pieces, which are joined when the text is read."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def now(self) -> TextPieces:
        """Return the current text, without copying it."""
        return TextPieces(self._pieces, self.length, own=False)
