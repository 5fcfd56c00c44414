"""Content of messages that is not text."""

from __future__ import annotations

from msgspec import Struct


class Media(Struct, frozen=True, tag="media"):
    """An image, a sound, a document: its bytes, and what they are."""

    data: bytes
    media_type: str
    name: str | None = None
