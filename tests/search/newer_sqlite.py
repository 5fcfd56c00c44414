"""Removes a message from a searched store with the SQLite of `pysqlite3`, which overwrites removed
words at once. Prints the names of the files that had the word before, and have it after.

`python -m tests.search.newer_sqlite URL FOLDER delete|erase`
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pysqlite3  # type: ignore[import-untyped]
from pysqlite3 import dbapi2

sys.modules["sqlite3"], sys.modules["sqlite3.dbapi2"] = pysqlite3, dbapi2

WORD = "zyzzyva"


async def main(url: str, folder: Path, how: str) -> None:
    from holdfast import NewEvent, Sessions, connect, key  # with the SQLite from above

    def files() -> list[str]:
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        return [path.name for path in found if WORD.encode() in path.read_bytes()]

    async with connect(url) as store:
        for session, text in (("a", f"a {WORD} flew"), ("b", "a heron flew")):
            await store.append(
                key(session), [NewEvent.of("message.received", {"text": text})], create=True
            )
        search = Sessions(store).search
        found = len((await search(WORD)).hits)
        before = files()
        if how == "delete":
            receipt = await store.delete(key("a").scope)
        else:
            receipt = await store.erase(key("a"), [1], reason="asked to")
        left = [one.where for one in receipt.remains]
        hits = [hit.session for hit in (await search("flew")).hits]
        print(json.dumps([pysqlite3.sqlite_version_info, found, before, files(), left, hits]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
