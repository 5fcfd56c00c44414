"""A deleted session on a server: nothing of it is in any table or collection, and the receipt
says what the server's own files may still hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import Query, Store, connect
from holdfast.testing.faults import Fail, FaultyStore
from tests import servers
from tests.crash.scene import BYSTANDERS, Scene, listed, plant, view
from tests.servers.faults import schema_of

KINDS = ("postgres", "mongodb")


def marks_of(scene: Scene) -> list[str]:
    marks = scene.marks
    return [marks.shared, marks.own, marks.erased, marks.far, marks.session]


async def raw(kind: str, url: str) -> list[bytes]:
    """All that the database holds, record by record."""
    return await (_tables(url) if kind == "postgres" else _collections(url))


async def _tables(url: str) -> list[bytes]:
    import asyncpg

    schema = schema_of(url)
    conn = await asyncpg.connect(url.partition("?")[0])
    try:
        names = await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        found: list[bytes] = []
        for (name,) in names:
            for record in await conn.fetch(f'SELECT * FROM {schema}."{name}"'):
                values = [v if isinstance(v, bytes) else str(v).encode() for v in record.values()]
                found.append(b"\0".join(values))
        return found
    finally:
        await conn.close()


async def _collections(url: str) -> list[bytes]:
    import bson
    from pymongo import AsyncMongoClient

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    async with client:
        database = client[urlsplit(url).path.lstrip("/")]
        return [
            bson.encode(document)
            for name in await database.list_collection_names()
            async for document in database[name].find({})
        ]


def holding(records: list[bytes], mark: str) -> int:
    return sum(mark.encode() in record for record in records)


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_of_a_deleted_session_is_in_any_record(kind: str, tmp_path: Path) -> None:
    url = servers.url(kind, tmp_path)
    async with connect(url) as store:
        scene = await plant(store)
        before = await raw(kind, url)
        assert all(holding(before, mark) for mark in marks_of(scene)), "the scan sees what is there"
        beside = [await view(store, scope, scene) for scope in BYSTANDERS]
        receipt = await store.delete(scene.doomed)
        assert min(receipt.removed[sort] for sort in ("logs", "events", "blobs", "drafts")) > 0
        for left in receipt.remains:
            assert all((left.where, left.what, left.remedy))
        assert [holding(await raw(kind, url), mark) for mark in marks_of(scene)] == [0] * 5
        for mark in marks_of(scene):
            assert await listed(store, scene, mark) == []
        assert (await store.find(Query(session=scene.doomed.session))).items == []
        assert [await view(store, scope, scene) for scope in BYSTANDERS] == beside


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_delete_whose_answer_was_lost_is_repeated(kind: str, tmp_path: Path) -> None:
    url = servers.url(kind, tmp_path)
    async with connect(url) as inner:
        scene = await plant(inner)
        store: Store = FaultyStore(inner, [Fail(method="delete", call=1, after=True)])
        with pytest.raises(Exception, match="a planned fault"):
            await store.delete(scene.doomed)
        await store.delete(scene.doomed)
        await store.purge()
        assert [holding(await raw(kind, url), mark) for mark in marks_of(scene)] == [0] * 5
        assert [damage async for damage in store.verify()] == []
