"""Opening: once made, by any number of processes; what cannot be used is refused."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import AsyncMongoClient

from holdfast import InvalidValue, NewEvent, Query, StoreTooNew, StoreUnavailable
from holdfast.log.catalog import PendingQuery
from holdfast.stores.mongodb import MongoStore, queries, schema
from holdfast.stores.mongodb.address import MongoAddress
from holdfast.testing.samples import KEY, begin, seqs
from tests import forks

from .conftest import Raw
from .test_tails import Commands

OPENER = """
import asyncio, sys
import holdfast

async def main(url, who):
    async with holdfast.connect(url) as store:
        event = holdfast.NewEvent.of("note.made", id=who)
        print((await store.append(holdfast.key("s"), [event], create=True)).fresh)

asyncio.run(main(*sys.argv[1:]))
"""


def open_in_eight(url: str) -> list[bytes]:
    children = [forks.popen("-c", OPENER, url, f"id-{n}", stdout=subprocess.PIPE) for n in range(8)]
    return [child.communicate(timeout=120)[0].strip() for child in children]


async def test_eight_processes_make_it_at_once(url: str) -> None:
    assert await asyncio.to_thread(open_in_eight, url) == [b"1"] * 8
    store = await MongoStore.open(url)
    assert await seqs(store) == list(range(1, 9))
    await store.aclose()


async def test_what_is_made_is_not_made_again(url: str, store: MongoStore) -> None:
    heard = Commands()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[heard])
    again = await MongoStore.open(url, client=client)
    await again.aclose()
    assert set(heard.counts) == {"hello", "find"}
    assert await client.admin.command("ping")  # the caller's client is open yet
    await client.close()


async def test_a_newer_schema_is_refused(url: str, raw: Raw) -> None:
    await raw.meta.update_one({"_id": "holdfast"}, {"$set": {"version": schema.VERSION + 1}})
    with pytest.raises(StoreTooNew) as refused:
        await MongoStore.open(url)
    assert (refused.value.found, refused.value.known) == (schema.VERSION + 1, schema.VERSION)


@pytest.mark.parity("user-demand", 49)
async def test_a_half_made_database_is_finished(url: str, raw: Raw) -> None:
    await raw.meta.update_one({"_id": "holdfast"}, {"$set": {"version": 0}})
    await raw.logs.drop_index("key")
    store = await MongoStore.open(url)
    await begin(store)
    assert "key" in await raw.logs.index_information()
    await store.aclose()


async def test_collections_of_another_program_are_left_alone(url: str) -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    theirs = client[urlsplit(url).path.lstrip("/")]
    await theirs.logs.insert_one({"level": "info"})
    for _ in range(2):
        with pytest.raises(InvalidValue):
            await MongoStore.open(url)
    assert await theirs.list_collection_names() in (["logs"], ["logs", "meta"], ["meta", "logs"])
    assert list(await theirs.logs.index_information()) == ["_id_"]
    await client.close()


async def test_a_server_that_is_too_old_is_refused() -> None:
    with pytest.raises(InvalidValue):
        schema.check_server({"maxWireVersion": 13, "setName": "rs"})
    assert schema.check_server({"maxWireVersion": 17, "setName": "rs"})
    assert schema.check_server({"maxWireVersion": 17, "msg": "isdbgrid"})
    assert not schema.check_server({"maxWireVersion": 17})


def test_a_member_of_no_set_yet_is_no_standalone() -> None:
    with pytest.raises(StoreUnavailable, match="replica set is not initiated"):
        schema.check_server({"maxWireVersion": 17, "isreplicaset": True})


@pytest.mark.parametrize(
    ("url", "location", "database", "patience"),
    [
        ("mongodb://h", "h:27017/holdfast", "holdfast", 15.0),
        ("mongodb://u:p@h:1,i:2/db?patience=3", "h:1,i:2/db", "db", 3.0),
        ("mongodb://u:p@h/?w=1&patience=1.5&ssl=false", "h:27017/holdfast", "holdfast", 1.5),
        ("mongodb+srv://u:p@c.example.net/db", "c.example.net/db", "db", 15.0),
        ("mongodb://[::1]/db", "[::1]:27017/db", "db", 15.0),
    ],
)
def test_an_address_is_shown_without_its_user(
    url: str, location: str, database: str, patience: float
) -> None:
    address = MongoAddress.of(url)
    assert (address.location, address.database) == (location, database)
    assert address.patience == patience
    assert "u:p" not in repr(address)
    assert "patience" not in address.url


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://u:p/SECRET@h/db",
        "mongodb://u:p?SECRET@h/db",
        "mongodb://u:p?patience=SECRET@h/db",
        "mongodb://h/?patience=0.5",
        "mongodb://h/?patience=3601",
        "mongodb://h/?patience=x",
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        MongoAddress.of(url)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parity("user-demand", 45)
@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(order="created", newest_first=False),
        Query(user="u"),
        Query(workspace="w", phases=("active",)),
        Query(agent="a"),
        Query(label="x"),
        Query(label="x", metadata={"k": 1}),
        Query(session="s"),
    ],
    ids=str,
)
async def test_a_page_comes_from_its_index_in_order(
    store: MongoStore, raw: Raw, query: Query
) -> None:
    # Several labels, so that the index knows that there may be.
    created = NewEvent.of("session.created", {"labels": ["x", "y"], "metadata": {"k": 1}})
    await store.append(KEY, [created], create=True)
    where, index = queries.conditions(query)
    plan = await _plan(raw, where, [(query.order, -1), ("_id", -1)], index)
    assert sorted(plan) == ["FETCH", "IXSCAN", "LIMIT", "PROJECTION_SIMPLE"]


@pytest.mark.parametrize("query", [PendingQuery(), PendingQuery(assignee="ann")], ids=str)
async def test_the_inbox_comes_from_its_index_in_order(
    store: MongoStore, raw: Raw, query: PendingQuery
) -> None:
    await begin(store, KEY)
    where, index = queries.inbox_conditions(query)
    plan = await _plan(raw, where, [("waits", 1), ("waits_to", 1), ("_id", 1)], index)
    assert sorted(plan) == ["FETCH", "IXSCAN", "LIMIT", "PROJECTION_SIMPLE"]


async def _plan(
    raw: Raw, where: dict[str, Any], order: list[tuple[str, int]], index: str
) -> list[str]:
    """The stages by which the server answers, and no other index than the one named."""
    found = raw.logs.find(where, {"doc": 1}).sort(order).limit(51).hint(index)
    plan = (await found.explain())["queryPlanner"]["winningPlan"]
    stages = []
    while plan:
        stages.append(plan["stage"])
        assert plan.get("indexName", index) == index
        plan = plan.get("inputStage")
    return stages
