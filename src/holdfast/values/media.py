"""Message content that is not text."""

from __future__ import annotations

from msgspec import Struct


class Media(Struct, frozen=True, tag="media"):
    """An image, a sound or a document: its bytes, type and name.

    ```python
    photo = Media(open("lamp.jpg", "rb").read(), "image/jpeg")
    await session.send(["It arrived like this.", photo])
    ```
    """

    data: bytes
    media_type: str
    name: str | None = None
