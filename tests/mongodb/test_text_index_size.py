"""The full-text index of a store with more sessions than fit into one reply of MongoDB."""

from __future__ import annotations

import pytest

from holdfast import key
from holdfast.stores.mongodb import MongoStore
from holdfast.testing.search_contract import find, said

from .conftest import Raw

LOGS = 1_200
LONG = "x" * 14_500  # makes the names as long as those of a million logs


@pytest.mark.parametrize("kind", ["mongodb"])
async def test_any_number_of_entries_is_compared_with_the_logs(store: MongoStore, raw: Raw) -> None:
    await said(store, "a", "a heron flew")
    assert len(await find(store, "heron")) == 1
    entry = await raw["search_logs"].find_one({"session": "a"})
    assert entry is not None
    strange = [{**entry, "_id": f"{n}{LONG}", "session": "gone"} for n in range(LOGS)]
    await raw["search_logs"].insert_many(strange)
    doc = await raw["search_docs"].find_one({"session": "a"})
    assert doc is not None
    docs = [
        {
            **doc,
            "_id": f"d{n}",
            "place": doc["place"] + 1 + n,
            "log": f"{n}{LONG}",
            "session": "gone",
        }
        for n in range(LOGS)
    ]
    await raw["search_docs"].insert_many(docs)
    await raw["search_docs"].update_one({"_id": "index"}, {"$set": {"mark": "0 0"}})
    await said(store, "b", "a heron landed")
    assert {hit.session for hit in await find(store, "heron")} == {"a", "b"}
    assert await raw["search_logs"].count_documents({}) == 2
    await raw["search_docs"].insert_many(docs)
    await store.purge()
    assert await raw["search_docs"].count_documents({"session": "gone"}) == 0
    assert (await store.row(key("a"))) is not None
