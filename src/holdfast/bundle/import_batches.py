"""The events of a bundle's thread, some at a time and off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

from ..errors import InvalidBundle
from ..log.events import Event
from .archive import PIECE, Bundle
from .contents import opened_part
from .faults import invalid
from .format import Part, Thread, event_of


async def poured(
    bundle: Bundle, thread: Thread, *, after: int = 0, upto: int | None = None
) -> AsyncGenerator[Event, None]:
    """The events of a thread's part with after < seq ≤ upto. `InvalidBundle` at the end if the
    file was changed after it was validated."""
    listed = {part.name: part for part in bundle.document.parts}
    pieces = _pieces(bundle, listed[thread.part])
    try:
        while some := await asyncio.to_thread(next, pieces, None):
            for event in some:
                if upto is not None and event.seq > upto:
                    return
                if event.seq > after:
                    yield event
    finally:
        await asyncio.to_thread(pieces.close)


def _pieces(bundle: Bundle, part: Part) -> Generator[list[Event], None, None]:
    some: list[Event] = []
    size = 0
    with opened_part(bundle.parts, part) as file:
        while line := file.readline(-1):
            some.append(event_of(line))
            size += len(line)
            if size > PIECE:
                yield some
                some, size = [], 0
    if file.fault() is not None:
        raise changed(part.name)
    if some:
        yield some


def changed(path: str) -> InvalidBundle:
    """The error for a file that was changed after it was validated."""
    return invalid("tampered", path, "was changed while it was imported")
