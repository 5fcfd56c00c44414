"""A process that is killed between two calls: `openai_writer URL STOP`. It makes the calls of
`steps` one by one and prints a line after each, until it has made `STOP` of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator

from holdfast.adapters.openai import HoldfastSession

USER = {"content": "Hello.", "role": "user"}
ANSWER = {"content": "Hi.", "role": "assistant"}
CALL = {"arguments": "{}", "call_id": "c", "name": "f", "type": "function_call"}


async def steps(session: HoldfastSession) -> AsyncGenerator[None, None]:
    """Make one call before each yield."""
    await session.add_items([USER])
    yield
    await session.add_items([ANSWER, CALL])
    yield
    await session.pop_item()
    yield
    await session.clear_session()
    yield
    await session.add_items([USER, ANSWER])
    yield


EXPECTED = [[USER], [USER, ANSWER, CALL], [USER, ANSWER], [], [USER, ANSWER]]


async def main(url: str, stop: str) -> None:
    made = 0
    async for _ in steps(HoldfastSession("s", url)):
        made += 1
        if made == int(stop):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
