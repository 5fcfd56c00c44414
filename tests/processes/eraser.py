"""A process that erases: again and again until it is told to stop, or once, killed behind the
commit before what it replaced is removed."""

from __future__ import annotations

import asyncio
import os
import sys

import holdfast
from holdfast import key
from holdfast.stores.file.folder import StoreFolder

KEY = key("s")


async def erase(url: str, times: int) -> None:
    async with holdfast.connect(url) as store:
        for n in range(times):
            await store.erase(KEY, [1 + n % 20], reason=f"asked {'x' * (n % 40)}")
            if n == 0:
                print("begun", flush=True)


if __name__ == "__main__":
    url, how = sys.argv[1:]
    if how == "killed":
        StoreFolder.done = lambda self: os._exit(9)  # type: ignore[method-assign]
    asyncio.run(erase(url, 1 if how == "killed" else int(how)))
