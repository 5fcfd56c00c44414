"""Backs up a SQLite store that is in use, and checks the copy: `python backup.py FROM.db TO.db`."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing

from holdfast import connect


def copy(path: str, to: str) -> None:
    os.umask(0o077)  # nobody else reads the copy
    with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(to)) as backup:
        store.backup(backup)


async def main(path: str, to: str) -> int:
    await asyncio.to_thread(copy, path, to)
    async with connect(f"sqlite:{to}") as store:
        damages = [damage async for damage in store.verify()]
    for damage in damages:
        print(damage.problem, damage.detail)
    print(f"{to}: {len(damages)} problems")
    return 1 if damages else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
