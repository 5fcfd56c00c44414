"""Appends with `expected`, round after round, each time it is told to go.
`racer KIND FOLDER NAME ROUNDS LATER`; its clock is LATER ms ahead."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast import HeadMoved, NewEvent, key

from ..places import open_at
from .talk import hear, say


async def main(kind: str, folder: str, name: str, rounds: str, later: str) -> None:
    store = await open_at(kind, Path(folder), later=int(later))
    say(ready=True)
    for number in range(int(rounds)):
        hear()
        event = NewEvent.of("note.made", {"by": name}, id=f"{name}-{number}")
        try:
            done = await store.append(key("s"), [event], expected=number, create=True)
            say(won=done.seqs)
        except HeadMoved as lost:
            say(lost=[lost.expected, lost.head])
    await store.aclose()


asyncio.run(main(*sys.argv[1:]))
