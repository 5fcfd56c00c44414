"""Somebody who can write to the database, and has no key.

They use the store that is under the vault, which gives each event a hash and a link, so that only
the encryption stands in their way; and where that gives out no bytes, the bytes themselves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec
from pymongo import AsyncMongoClient

from holdfast import Key, LogDamaged, Store, Vault
from holdfast.events import Event
from holdfast.stores import OPENERS
from holdfast.stores.vault.store import VaultStore
from holdfast.testing.samples import given
from tests.contract.test_stores import url_of
from tests.servers.faults import schema_of

KINDS = ("sqlite", "file", "postgres", "mongodb")

Doc = dict[str, Any]


class Hands:
    """A database, what is under the vault, and what is behind it."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self.kind = kind
        self.url = url
        self.folder = folder
        self.vault = Vault([Vault.new_key("first")])

    @asynccontextmanager
    async def under(self) -> AsyncGenerator[Store, None]:
        """The store without its vault, which `connect` does not give to anybody."""
        store = await OPENERS[self.url.partition(":")[0]](self.url)
        try:
            yield store
        finally:
            await store.aclose()

    @asynccontextmanager
    async def behind(self, vault: Vault | None = None) -> AsyncGenerator[VaultStore, None]:
        """The encrypted store, as another process opens it."""
        async with self.under() as store:
            yield VaultStore(store, vault or self.vault)

    async def edit_row(self, session: str, change: Callable[[Doc], Doc]) -> None:
        """Have the row of a session say something else. Nobody has the store open."""
        if self.kind == "mongodb":
            client: AsyncMongoClient[Doc] = AsyncMongoClient(self.url)
            async with client:
                logs = client[urlsplit(self.url).path.lstrip("/")].logs
                where = {"session": session, "thread": "main"}
                found = await logs.find_one(where)
                assert found is not None
                await logs.update_one(where, {"$set": {"doc": _changed(found["doc"], change)}})
        elif self.kind == "postgres":
            await self._edit_in_postgres(session, change)
        else:
            path = self.folder / ("holdfast.db" if self.kind == "sqlite" else "holdfast/index.db")
            where_sql = "session = ? AND thread = 'main'"
            with closing(sqlite3.connect(path)) as conn, conn:
                ask = f"SELECT doc FROM logs WHERE {where_sql}"
                (doc,) = conn.execute(ask, (session,)).fetchone()
                set_doc = f"UPDATE logs SET doc = ? WHERE {where_sql}"
                conn.execute(set_doc, (_changed(doc, change), session))

    async def _edit_in_postgres(self, session: str, change: Callable[[Doc], Doc]) -> None:
        conn = await asyncpg.connect(self.url.partition("?")[0])
        try:
            logs = f"{schema_of(self.url)}.logs"
            where = "session = $1 AND thread = 'main'"
            doc = await conn.fetchval(f"SELECT doc FROM {logs} WHERE {where}", session)
            set_doc = f"UPDATE {logs} SET doc = $2 WHERE {where}"
            await conn.execute(set_doc, session, _changed(doc, change))
        finally:
            await conn.close()

    async def doc_of(self, session: str) -> Doc:
        """The row of a session as it is stored."""
        found: list[Doc] = []

        def keep(doc: Doc) -> Doc:
            found.append(doc)
            return doc

        await self.edit_row(session, keep)
        return found[0]


def _changed(doc: bytes, change: Callable[[Doc], Doc]) -> bytes:
    return msgspec.json.encode(change(msgspec.json.decode(bytes(doc))))


@asynccontextmanager
async def hands_on(kind: str, folder: Path) -> AsyncGenerator[Hands, None]:
    async with url_of(kind, folder) as url:
        yield Hands(kind, url, folder)


async def all_of(store: Store, key: Key) -> list[Event]:
    return [event async for event in store.read(key)]


async def rewrite(under: Store, key: Key, events: Sequence[Event]) -> None:
    """Put these in place of a log, with hashes, links and a row that agree with them."""
    await under.delete(key)
    await under.restore(key, given(events))


async def readable(store: Store, key: Key, head: int) -> tuple[list[int], list[int]]:
    """The numbers of the events that can be read, and of those that are refused; reading goes on
    behind each."""
    good: list[int] = []
    bad: list[int] = []
    seq = 0
    while seq < head:
        try:
            async for event in store.read(key, after=seq):
                seq = event.seq
                good.append(seq)
        except LogDamaged as error:
            seq = error.seq
            bad.append(seq)
            if len(bad) > head:
                raise
        else:
            break
    return good, bad


async def outcome(doing: Awaitable[Any]) -> Any:
    """What something came to: its value, or the name of the error that it raised."""
    try:
        return await doing
    except Exception as error:
        return type(error).__name__
