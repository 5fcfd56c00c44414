"""Sessions in several stores of one server: a person is reached in all of them, lists go over all
of them, and there are no others than those that the server was given."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import PendingQuery, Query, Store, StoreUnavailable, connect
from holdfast.client import Client
from holdfast.events import Event, Key, Scope
from holdfast.harness.live.decisions import settle_pending
from holdfast.server import MemoryAudit
from holdfast.server.app import service_of
from holdfast.stores.copy import copy_session
from holdfast.stores.memory import MemoryStore
from holdfast.stores.registry import StoreRegistry
from holdfast.testing.faults import Fail, FaultyStore

from .scene import PATIENCE, Api, serving, settings

OFFICER = "dpo@acme+sessions:all,people:erase"
BOSS = "boss@acme+sessions:all"
ARCHIVE = {"store": {"kind": "archive"}}
ERASE = "/people/ann?reason=gdpr"


def two(url: str, folder: Path) -> dict[str, str]:
    """A default store, and another."""
    return {"main": url, "archive": f"sqlite:{folder / 'archive.db'}"}


async def begin(api: Api, id: str, about: Any = None, *, by: str = "ann@acme") -> None:
    await api("PUT", f"/sessions/{id}", about or {}, by=by, status=201)


async def told(api: Api, path: str = "/people/ann", by: str = OFFICER) -> list[dict[str, Any]]:
    answer = await api.ask("GET", path, by=by)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def listed(api: Api, path: str, by: str = "ann@acme") -> list[list[str]]:
    """The ids of sessions, page by page."""
    found, cursor = [], ""
    while True:
        page = await api("GET", f"{path}{cursor}", by=by)
        found.append([item["session"] for item in page["items"]])
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


# A person


async def test_a_person_is_given_out_and_erased_in_every_store(url: str, tmp_path: Path) -> None:
    async with serving(settings(two(url, tmp_path))) as api:
        await begin(api, "here")
        await begin(api, "there", ARCHIVE)
        await api.ask_for_refund("there")
        await begin(api, "bobs", ARCHIVE, by="bob@acme")
        said = {"content": "Psst"}
        await api("POST", "/sessions/bobs/messages?wait=true", said, by="ann@acme+sessions:all")
        await begin(api, "theirs", ARCHIVE, by="ann@other")
        own = await told(api, by="ann@acme")
        assert {one["session"] for one in own} == {"here", "there"}
        assert {one["session"] for one in await told(api, "/people/ann?store=main")} == {"here"}
        shared = await told(api, "/people/ann?shared=true")
        assert {one["session"] for one in shared} == {"here", "there", "bobs"}

        would = await api("DELETE", f"{ERASE}&dry_run=true", by=OFFICER)
        assert (would["sessions"], would["events"]) == (["here", "there"], {"bobs": 1})
        await api("GET", "/sessions/there")
        done = await api("DELETE", ERASE, by=OFFICER)
        assert (done["sessions"], done["events"]) == (["here", "there"], {"bobs": 1})
        assert [(one["store"], one["sessions"]) for one in done["stores"]] == [
            ("main", ["here"]),
            ("archive", ["there"]),
        ]
        assert done["removed"]["logs"] == sum(one["removed"]["logs"] for one in done["stores"])
        for id in ("here", "there"):
            await api.fails("session_not_found", "GET", f"/sessions/{id}")
        events = await api.ask("GET", "/sessions/bobs/events", by="bob@acme")
        assert "Psst" not in events.text
        await api("GET", "/sessions/theirs", by="ann@other")
        assert await told(api) == []
        again = await api("DELETE", ERASE, by=OFFICER)
        assert (again["sessions"], again["events"], again["refused"]) == ([], {}, {})
        await begin(api, "there")  # nothing keeps the id any more


async def test_a_person_is_erased_in_one_store_where_one_is_asked_for(tmp_path: Path) -> None:
    async with serving(settings(two("memory:", tmp_path))) as api:
        await begin(api, "here")
        await begin(api, "there", ARCHIVE)
        done = await api("DELETE", f"{ERASE}&store=archive", by=OFFICER)
        assert done["sessions"] == ["there"]
        assert [one["store"] for one in done["stores"]] == ["archive"]
        await api("GET", "/sessions/here")
        fields = await api.fails("unknown_store", "DELETE", f"{ERASE}&store=x", by=OFFICER)
        assert fields == {"kind": "x", "available": ["archive", "main"]}


async def test_a_person_is_reached_in_stores_with_options_of_their_own() -> None:
    registry = StoreRegistry({"main": "memory:"})
    registry.register("boxes", lambda options: MemoryStore(), allow={"box": ["a", "b", "c"]})

    def wish(box: str) -> Any:
        return {"store": {"kind": "boxes", "options": {"box": box}}}

    async with serving(settings(registry, default_store="main")) as api:
        for id in ("one", "two"):
            await begin(api, id, wish("a"))
        await begin(api, "bobs", wish("b"), by="bob@acme")
        await begin(api, "theirs", wish("c"), by="ann@other")
        assert {one["session"] for one in await told(api)} == {"one", "two"}
        done = await api("DELETE", ERASE, by=OFFICER)
        assert sorted(done["sessions"]) == ["one", "two"]
        named = [(one["store"], one["options"]) for one in done["stores"]]
        box = [("boxes", {"box": "a"}), ("boxes", {"box": "b"})]
        assert named == [("main", {}), ("boxes", {}), *box]
        await api("GET", "/sessions/bobs", by="bob@acme")
        await api("GET", "/sessions/theirs", by="ann@other")


async def test_a_kind_with_options_is_several_stores_also_where_it_is_the_only_one() -> None:
    registry = StoreRegistry()
    registry.register("boxes", lambda options: MemoryStore(), allow={"box": ["a"]})
    wish = {"store": {"kind": "boxes", "options": {"box": "a"}}}
    async with serving(settings(registry)) as api:
        await begin(api, "one", wish)
        await api("GET", "/sessions/one")
        assert await listed(api, "/sessions?limit=9") == [[]]
        await api.fails("session_exists", "POST", "/sessions", {"id": "one"})
        await api("DELETE", "/sessions/one")
        await api("POST", "/sessions", {"id": "one"}, status=201)


async def test_a_store_that_is_reached_by_two_ways_is_one(tmp_path: Path) -> None:
    """An option may say how a store is used, and not which it is."""
    registry = StoreRegistry()
    durability = {"durability": ["machine", "process"]}
    registry.register("sqlite", f"sqlite:{tmp_path / 'one.db'}", allow=durability)
    async with serving(settings(registry)) as api:
        wish = {"store": {"kind": "sqlite", "options": {"durability": "process"}}}
        await begin(api, "one", wish)
        records = await told(api)
        assert len([one for one in records if one["row"] is not None]) == 1
        done = await api("DELETE", ERASE, by=OFFICER)
        assert (done["sessions"], len(done["stores"])) == (["one"], 1)
        await begin(api, "one")


async def raising(options: Any) -> Store:
    raise StoreUnavailable(problem="down")


@pytest.mark.parametrize("how", ["closed", "failing", "gone"])
async def test_nothing_is_claimed_of_a_store_that_fails(how: str, tmp_path: Path) -> None:
    """The others are done, it is told, and the next time goes on."""
    stores = two(f"sqlite:{tmp_path / 'main.db'}", tmp_path)

    async def failing(options: Any) -> Store:
        plan = [Fail(method="find", call=n) for n in range(1, 9)]
        return FaultyStore(await connect(stores["archive"]), plan)

    async with serving(settings(stores)) as api:
        await begin(api, "here")
        await begin(api, "there", ARCHIVE)
    broken: dict[str, Any] = {**stores, "archive": raising if how == "closed" else failing}
    if how == "gone":
        del broken["archive"]
    code = "unknown_store" if how == "gone" else "store_unavailable"
    async with serving(settings(broken)) as api:
        if how != "failing":
            await api.fails(code, "GET", "/people/ann", by=OFFICER)
        await api.fails(code, "DELETE", f"{ERASE}&store=archive", by=OFFICER)
        done = await api("DELETE", ERASE, by=OFFICER)
        assert done["sessions"] == ["here"]
        main, archive = done["stores"]
        assert (main["failed"], archive["failed"]) == (None, code)
        assert (archive["sessions"], archive["removed"]) == ([], {})
        assert "the archive store" in [one["where"] for one in done["remains"]]
    async with serving(settings(stores)) as api:
        done = await api("DELETE", ERASE, by=OFFICER)
        assert done["sessions"] == ["there"]
        assert [one["failed"] for one in done["stores"]] == [None, None]
        await api.fails("session_not_found", "GET", "/sessions/there")


async def test_what_is_gone_before_a_store_fails_leaves_no_trace_beside_it() -> None:
    archive = FaultyStore(MemoryStore(), [Fail(method="delete", call=2)])
    stores = {"main": "memory:", "archive": lambda options: archive}
    async with serving(settings(stores)) as api:
        for id in ("one", "two"):
            await begin(api, id, ARCHIVE)
        done = await api("DELETE", ERASE, by=OFFICER)
        assert [one["failed"] for one in done["stores"]] == [None, "store_unavailable"]
        await api.fails("session_not_found", "GET", "/sessions/one")
        await api("GET", "/sessions/two")
        await begin(api, "one")
        assert (await api("DELETE", ERASE, by=OFFICER))["sessions"] == ["one", "two"]


async def test_a_session_that_only_its_store_knows_is_erased_too(tmp_path: Path) -> None:
    """One that was copied there, say, and waits for a person."""
    stores = two(f"sqlite:{tmp_path / 'main.db'}", tmp_path)
    async with serving(settings(stores["archive"])) as api:
        await api.ask_for_refund("there")
    async with serving(settings(stores)) as api:
        assert (await api("GET", "/sessions/there"))["store"] == "archive"
        assert (await api("DELETE", ERASE, by=OFFICER))["sessions"] == ["there"]


# Moves


async def test_a_session_that_was_moved_between_stores_of_a_server_goes_on(tmp_path: Path) -> None:
    stores = two(f"sqlite:{tmp_path / 'main.db'}", tmp_path)
    async with serving(settings(stores)) as api:
        item = await api.ask_for_refund("mover")
    async with connect(stores["main"]) as here, connect(stores["archive"]) as there:
        await copy_session(here, there, Scope("acme", "mover"), move=True)
    async with serving(settings(stores)) as api:
        (waits,) = (await api("GET", "/pending"))["items"]
        assert waits["id"] == item
        assert (await api("GET", "/sessions/mover"))["store"] == "archive"
        await api.fails("session_not_found", "GET", "/sessions/mover", by="bob@acme")
        await api("POST", f"/sessions/mover/pending/{item}/approve", by=BOSS)
        await api.until("/sessions/mover/transcript", lambda found: "Refunded." in str(found))
        assert await listed(api, "/sessions?limit=9") == [["mover"]]
    async with connect(stores["main"]) as here:
        await here.delete(Scope("acme", "mover"))
    async with serving(settings(stores)) as api:
        assert (await api("PUT", "/sessions/mover", {}))["created"] is False
        assert await listed(api, "/sessions?limit=9") == [["mover"]]


# Lists


async def test_lists_go_over_all_stores_and_their_cursors_say_where_they_are(
    url: str, tmp_path: Path
) -> None:
    async with serving(settings(two(url, tmp_path))) as api:
        for n in range(3):
            await begin(api, f"m{n}")
            await begin(api, f"a{n}", ARCHIVE)
        await begin(api, "bobs", ARCHIVE, by="bob@acme")
        path = "/sessions?order=created&newest_first=false&total=true"
        assert await listed(api, f"{path}&limit=2") == [["m0", "m1"], ["m2", "a0"], ["a1", "a2"]]
        assert await listed(api, f"{path}&limit=3") == [["m0", "m1", "m2"], ["a0", "a1", "a2"]]
        assert await listed(api, f"{path}&limit=2&store=archive") == [["a0", "a1"], ["a2"]]
        every = await api("GET", f"{path}&limit=1", by=BOSS)
        assert every["total"] == 7
        first = await api("GET", f"{path}&limit=4")
        assert first["total"] == 6
        last = await api("GET", f"{path}&limit=4&cursor={first['cursor']}")
        assert ([row["session"] for row in last["items"]], last["total"]) == (["a1", "a2"], 6)

        other = f"&cursor={first['cursor']}"
        for wrong in (f"{path}&label=x", f"{path}&store=archive", "/sessions?order=created"):
            fields = await api.fails("invalid_value", "GET", wrong + other)
            assert fields["field"] == "cursor"
        await api.fails("invalid_value", "GET", path + other, by="bob@acme")
        await api.fails("invalid_value", "GET", path + other, by="ann@other")

        store = await service_of(api.app).places.store()
        order: Any = {"order": "created", "newest_first": False, "total": True}
        before = await store.find(Query(tenant="acme", user="ann", **order), limit=2)
        page = await api("GET", f"{path}&cursor={before.cursor}")
        assert [row["session"] for row in page["items"]] == ["m2", "a0", "a1", "a2"]


async def test_the_inbox_is_that_of_all_stores(url: str, tmp_path: Path) -> None:
    async with serving(settings(two(url, tmp_path))) as api:
        for id in ("a0", "a1"):
            await begin(api, id, ARCHIVE)
            await api.ask_for_refund(id)
        await api.ask_for_refund("m0")
        await begin(api, "bobs", ARCHIVE, by="bob@acme")
        await api.ask_for_refund("bobs", by="bob@acme")
        assert await listed(api, "/pending?limit=2") == [["m0", "a0"], ["a1"]]
        assert await listed(api, "/pending?limit=1") == [["m0"], ["a0"], ["a1"]]
        assert await listed(api, "/pending?store=main&limit=2") == [["m0"]]
        assert await listed(api, "/pending?session=a1&limit=2") == [["a1"]]
        assert await listed(api, "/pending?limit=9", by=BOSS) == [["m0", "a0", "a1", "bobs"]]
        assert await listed(api, "/pending?user=bob&limit=9", by=BOSS) == [["bobs"]]
        cursor = (await api("GET", "/pending?limit=1"))["cursor"]
        await api.fails("invalid_value", "GET", f"/pending?cursor={cursor}", by="bob@acme")
        store = await service_of(api.app).places.store()
        await api.ask_for_refund("m1")
        before = await store.pending(PendingQuery(tenant="acme", user="ann"), limit=1)
        assert await listed(api, f"/pending?cursor={before.cursor}&limit=9") == [["m1", "a0", "a1"]]


async def test_whoever_waits_is_told_of_another_store_as_well(tmp_path: Path) -> None:
    async with serving(settings(two("memory:", tmp_path))) as api, asyncio.timeout(PATIENCE):
        await api.ask_for_refund("here")
        tag = (await api("GET", "/pending"))["tag"]
        await begin(api, "there", ARCHIVE)
        waiting = asyncio.create_task(api("GET", f"/pending?wait=20&tag={tag}"))
        await api.ask_for_refund("there")
        assert [item["session"] for item in (await waiting)["items"]] == ["here", "there"]


async def test_a_page_is_one_query_of_each_store_that_it_comes_to() -> None:
    known = {kind: FaultyStore(MemoryStore()) for kind in ("main", "archive", "other")}
    stores = {kind: (lambda options, kind=kind: known[kind]) for kind in known}
    async with serving(settings(stores)) as api:
        for n in range(2):
            await api.ask_for_refund(f"m{n}")
            await begin(api, f"a{n}", ARCHIVE)
            await api.ask_for_refund(f"a{n}")

        async def cost(path: str, method: str) -> list[int]:
            before = {kind: store.calls[method] for kind, store in known.items()}
            await api("GET", path)
            return [store.calls[method] - before[kind] for kind, store in known.items()]

        assert await cost("/pending", "pending") == [1, 1, 1]
        assert await cost("/pending?limit=3", "pending") == [1, 1, 0]
        assert await cost("/pending?limit=1", "pending") == [1, 0, 0]
        assert await cost("/pending?store=other", "pending") == [0, 0, 1]
        assert await cost("/sessions?limit=3&total=true", "find") == [1, 1, 1]
        for path in ("/pending", "/sessions"):
            assert await cost(path, "row") == [0, 0, 0]


# Which there are


async def test_a_store_that_the_server_was_not_given_is_not_to_be_had(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'main.db'}"
    wish = {"store": {"kind": "memory"}}
    for stores in (url, {"sqlite": url}, StoreRegistry({"sqlite": url})):
        async with serving(settings(stores)) as api:
            fields = await api.fails("unknown_store", "PUT", "/sessions/one", wish)
            assert fields == {"kind": "memory", "available": ["sqlite"]}
            await api.fails("unknown_store", "GET", "/sessions?store=memory")
            await api.fails("session_not_found", "GET", "/sessions/one")
            assert (await api.ask("GET", "/health", by=None)).json()["stores"] == ["sqlite"]
    async with serving(settings({"sqlite": url, "memory": "memory:"})) as api:
        await begin(api, "one", wish)
    async with serving(settings({"sqlite": url}, default_store="memory")) as api:
        await begin(api, "two")
        assert (await api("GET", "/sessions/two"))["store"] == "memory"


async def test_what_was_in_memory_is_gone_with_its_process(tmp_path: Path) -> None:
    stores = two(f"sqlite:{tmp_path / 'main.db'}", tmp_path)
    async with serving(settings({**stores, "memory": "memory:"})) as api:
        for id in ("one", "two"):
            await begin(api, id, {"store": {"kind": "memory"}})
    async with serving(settings(stores)) as api:
        await api.fails("session_not_found", "GET", "/sessions/one")
        assert await told(api) == []
        await begin(api, "one", ARCHIVE)
        assert (await api("GET", "/sessions/one"))["store"] == "archive"
        await begin(api, "two")
        assert (await api("DELETE", ERASE, by=OFFICER))["sessions"] == ["two", "one"]


async def test_a_client_that_keeps_its_sessions_elsewhere_finds_them(tmp_path: Path) -> None:
    stores = {"main": "memory:", "file": f"file:{tmp_path / 'files'}"}
    made = settings(stores, audit=MemoryAudit())
    async with serving(made) as api, asyncio.timeout(PATIENCE):
        wish = {"kind": "file"}
        async with Client(api.url, "ann@acme+people:erase", session_store=wish) as client:
            session = await client.get_or_create("one")
            assert (await session.about()).store == "file"
            await session.send("Refund it.")
            assert [row.session for row in (await client.list()).items] == ["one"]
            assert (await client.list(store="main")).items == []
            assert [item.session for item in (await client.pending()).items] == ["one"]
            assert (await client.pending(store="main")).items == []
            of_main = [record async for record in client.people.export("ann", store="main")]
            assert of_main == []
            found = [record async for record in client.people.export("ann")]
            assert {record.session for record in found} == {"one"}
            done = await client.people.erase("ann", reason="gdpr")
            assert [(one.store, one.sessions) for one in done.stores] == [
                ("main", []),
                ("file", ["one"]),
            ]
            assert (await client.list()).items == []


# Work


async def test_what_was_left_undone_in_another_store_is_taken_up(tmp_path: Path) -> None:
    stores = two(f"sqlite:{tmp_path / 'main.db'}", tmp_path)
    async with serving(settings(stores, tenants=["acme"])) as api:
        await begin(api, "there", ARCHIVE)
        said = {"content": "Refund it."}
        asked = await api("POST", "/sessions/there/messages?wait=true", said)
    where = Key("acme", "there", "main")
    async with connect(stores["archive"]) as store:
        await settle_pending(store, where, asked["pending"][0]["id"], "approved", actor="boss")
        async with serving(settings(stores, tenants=["acme"])):
            async with asyncio.timeout(PATIENCE):
                async for item in store.follow(where):
                    if isinstance(item, Event) and item.kind == "run.finished":
                        return


async def test_a_message_goes_to_the_session_of_its_surface_in_any_store(tmp_path: Path) -> None:
    async with serving(settings(two(f"sqlite:{tmp_path / 'main.db'}", tmp_path))) as api:
        await begin(api, "there", ARCHIVE)
        surface = {"surface": "mail", "address": "ann@example.com"}
        await api("POST", "/sessions/there/surfaces", surface)
        found = await api("POST", "/resolve", surface)
        assert (found["id"], found["store"]) == ("there", "archive")
        other = await api("POST", "/resolve", {**surface, "address": "new@example.com"})
        assert other["store"] == "main"


async def test_whose_surface_it_is_in_the_default_store_comes_first(tmp_path: Path) -> None:
    async with serving(settings(two(f"sqlite:{tmp_path / 'main.db'}", tmp_path))) as api:
        surface = {"surface": "chat", "address": "C1"}
        await begin(api, "anns")
        await api("POST", "/sessions/anns/surfaces", surface)
        await begin(api, "bobs", ARCHIVE, by="bob@acme")
        await api("POST", "/sessions/bobs/surfaces", surface, by="bob@acme")
        assert (await api("POST", "/resolve", surface))["id"] == "anns"


async def test_a_session_that_was_moved_away_has_no_surface_any_more(tmp_path: Path) -> None:
    async with serving(settings(two(f"sqlite:{tmp_path / 'main.db'}", tmp_path))) as api:
        surface = {"surface": "mail", "address": "ann@example.com"}
        await begin(api, "there", ARCHIVE)
        await api("POST", "/sessions/there/surfaces", surface)
        await api.ask("POST", "/sessions/there/bundle/move?to=elsewhere")
        made = await api("POST", "/resolve", surface)
        assert made["id"] != "there"
        assert (await api("GET", f"/sessions/{made['id']}"))["store"] == made["store"]


async def test_a_store_that_is_away_is_logged_in_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = {"main": f"sqlite:{tmp_path / 'm.db'}", "away": "postgresql://127.0.0.1:1/x?patience=1"}
    async with serving(settings(made)) as api:
        await api.fails("store_unavailable", "GET", "/sessions?store=away")
    (record,) = [one for one in caplog.records if "GET /v1/sessions" in one.getMessage()]
    assert "127.0.0.1:1" in record.getMessage()
    assert "\n" not in record.getMessage()
