"""Sends a message when told, without a lease. `sender KIND FOLDER`."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from holdfast import NewEvent, key

from ..places import open_at
from .talk import hear, say


async def main(kind: str, folder: str) -> None:
    store = await open_at(kind, Path(folder))
    while True:
        told = hear()
        await asyncio.sleep(random.uniform(0, 0.006))
        message = NewEvent.of("message.received", {"text": "hello"}, id=told["id"])
        await store.append(key("s"), [message])
        say(accepted=told["id"])


asyncio.run(main(*sys.argv[1:]))
