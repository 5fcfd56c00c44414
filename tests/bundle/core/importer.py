"""A process that imports a bundle when it is told to, and may fail after some events:
`python -m tests.bundle.core.importer URL FILE EVENTS`, where no EVENTS is 0."""

from __future__ import annotations

import asyncio
import sys

from holdfast import connect, import_bundle


class Full:
    """A disk that takes this many events; 0: any number."""

    def __init__(self, events: int) -> None:
        self.left = events or -1

    def __call__(self, events: int) -> None:
        self.left -= events
        if self.left == 0:
            raise OSError("the disk is full")


async def main(url: str, file: str, events: int) -> None:
    async with connect(url) as store:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            done = await import_bundle(store, file, progress=Full(events))
        except OSError as error:
            print(error)
        else:
            print(f"fresh {done.fresh}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
