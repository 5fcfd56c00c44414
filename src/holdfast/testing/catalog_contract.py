"""Tests for the guarantees of a store about lists: rows, find, the inbox, claims and runnable logs.
A test that needs logs with certain times creates them with `restore`.
"""

from __future__ import annotations

from typing import Any

import pytest

from ..environment import wall_clock
from ..errors import InvalidValue
from ..log.catalog import SURFACE_CLAIM, Page, PendingQuery, Query, Row, surface_name
from ..log.codec import LIMITS
from ..log.events import Key, NewEvent, Scope, key
from ..stores.port import Store
from .samples import (
    KEY,
    SIDE,
    begin,
    damage_in,
    given,
    lapse,
    note,
    past,
    plant,
    read_all,
    rejected,
    row_of,
    seal,
)

Facts = list[tuple[str, dict[str, Any]]]

SLACK = {"surface": "slack", "address": "D1"}
APPROVAL = {"id": "p", "what": "approval", "title": "Refund?", "assignee": "ann", "call": "c"}

SHOWN: dict[str, tuple[Facts, dict[str, Any]]] = {
    "what it was created with": (
        [("session.created", {"agent": "a", "user": "u", "workspace": "w", "ttl": 9})],
        {"agent": "a", "user": "u", "workspace": "w", "ttl": 9, "phase": "created"},
    ),
    "the newest title": (
        [("session.created", {"title": "old"}), ("thread.renamed", {"title": "new"})],
        {"title": "new"},
    ),
    "the first message": (
        [("message.received", {"text": "hi"}), ("message.received", {"text": "again"})],
        {"first_message": "hi", "phase": "active", "counts": {"messages": 2}},
    ),
    "the labels": (
        [("session.created", {"labels": ["a", "b"]}), ("label.added", {"label": "c"}),
         ("label.removed", {"label": "a"}), ("label.removed", {"label": "never there"})],
        {"labels": {"b": True, "c": True}},
    ),
    "the metadata": (
        [("session.created", {"metadata": {"a": 1, "b": [1, None]}}),
         ("metadata.changed", {"set": {"c": {"d": 1.5}, "a": 2}, "drop": ["b"]})],
        {"metadata": {"a": 2, "c": {"d": 1.5}}},
    ),
    "counts and usage, added up": (
        [("run.started", {}),
         ("message.completed", {"usage": {"in": 5, "out": 1}, "calls": [{"id": "c", "name": "f"}]}),
         ("message.completed", {"usage": {"in": 2}})],
        {"counts": {"runs": 1, "messages": 2, "calls": 1}, "usage": {"in": 7, "out": 1}},
    ),
    "the run and its due time": (
        [("run.started", {}), ("run.waiting", {"due": 77})],
        {"run": "waiting", "due": 77},
    ),
    "that the run is over": (
        [("run.started", {}), ("run.waiting", {"due": 77}), ("run.finished", {"status": "failed"})],
        {"run": "failed", "due": None},
    ),
    "nothing of kinds and versions it does not know": (
        [("comet.seen", {"title": "x", "label": "x"})],
        {"title": None, "labels": {}, "phase": "created", "counts": {}},
    ),
}  # fmt: skip

SESSIONS: dict[str, tuple[int, Facts]] = {
    "ann": (10_000, [("session.created", {
        "agent": "shop", "user": "u1", "workspace": "w1", "ttl": 60, "labels": ["vip", "x"],
        "metadata": {"tier": 1, "plan": {"b": 1, "a": [2]}, "on": True}})]),
    "bob": (20_000, [("session.created", {"agent": "shop", "user": "u2", "workspace": "w1",
        "metadata": {"tier": "1"}, "labels": ["x"]}), ("run.started", {})]),
    "cyd": (30_000, [("session.created", {"agent": "desk", "user": "u1", "ttl": 90}),
        ("surface.attached", SLACK), ("session.touched", {})]),
}  # fmt: skip

FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["cyd", "bob", "ann"]),
    ({"newest_first": False}, ["ann", "bob", "cyd"]),
    ({"order": "created"}, ["cyd", "bob", "ann"]),
    ({"order": "created", "newest_first": False}, ["ann", "bob", "cyd"]),
    ({"user": "u1"}, ["cyd", "ann"]),
    ({"workspace": "w1"}, ["bob", "ann"]),
    ({"agent": "shop"}, ["bob", "ann"]),
    ({"agent": "shop", "user": "u1"}, ["ann"]),
    ({"phases": ("active",)}, ["cyd"]),
    ({"phases": ("active", "created")}, ["cyd", "bob", "ann"]),
    ({"phases": ("expired",)}, []),
    ({"run": "running"}, ["bob"]),
    ({"label": "x"}, ["bob", "ann"]),
    ({"label": "vip"}, ["ann"]),
    ({"label": "vi"}, []),
    ({"surface": ("slack", "D1")}, ["cyd"]),
    ({"surface": ("slack", "D2")}, []),
    ({"metadata": {"tier": 1}}, ["ann"]),
    ({"metadata": {"tier": "1"}}, ["bob"]),
    ({"metadata": {"on": True, "tier": 1}}, ["ann"]),
    ({"metadata": {"on": 1}}, []),
    ({"metadata": {"plan": {"a": [2], "b": 1}}}, ["ann"]),
    ({"metadata": {"plan": {"a": [2]}}}, []),
    ({"created_from": 20_000}, ["cyd", "bob"]),
    ({"created_until": 20_000}, ["ann"]),
    ({"active_from": 10, "active_until": 30}, ["bob", "ann"]),
    ({"stale_until": 71}, ["ann"]),
    ({"stale_until": 70}, []),
    ({"stale_until": 121}, ["cyd", "ann"]),
    ({"session": "bob"}, ["bob"]),
    ({"session": "nobody"}, []),
    ({"tenant": "other"}, []),
]


async def plant_sessions(store: Store) -> None:
    for session, (at, facts) in SESSIONS.items():
        await plant(store, key(session), *facts, at=at)


async def walk(store: Store, query: Query, limit: int) -> list[Row]:
    """Return all results of a query, read in pages of `limit` rows."""
    page: Page[Row] = await store.find(query, limit=limit)
    rows = page.items
    while page.cursor is not None:
        page = await store.find(query, cursor=page.cursor, limit=limit)
        assert page.items
        rows = rows + page.items
    return rows


async def open_items(store: Store, **query: Any) -> list[tuple[str, str]]:
    page = await store.pending(PendingQuery(**query))
    return [(item.session, item.id) for item in page.items]


class CatalogContract:
    """Tests for the guarantees of a store about lists: lists are updated in the same transaction as
    the logs, for any number of sessions.
    """

    pytestmark = pytest.mark.asyncio

    # Rows

    @pytest.mark.parametrize("what", SHOWN)
    async def test_a_row_shows(self, store: Store, what: str) -> None:
        facts, shown = SHOWN[what]
        events = [NewEvent.of(kind, payload) for kind, payload in facts]
        for event in events:
            await store.append(KEY, [event], create=True)
            assert (await store.append(KEY, [event])).fresh == 0
        await store.append(SIDE, events, create=True)
        for row in (await row_of(store), await row_of(store, SIDE)):
            assert {name: getattr(row, name) for name in shown} == shown

    async def test_a_row_shows_head_size_and_times(self, store: Store) -> None:
        events = [
            past(1, "message.received", {"text": "hi"}, at=5_500),
            past(2, at=4_000),
            past(3, "label.added", {"label": "quiet: no activity"}, at=8_700),
        ]
        await store.restore(KEY, given(events))
        row = await row_of(store)
        assert (row.key, row.head, row.bytes) == (KEY, 3, sum(len(e.data) for e in events))
        assert (row.created, row.active, row.last) == (5_500, 5, 8_700)
        await store.append(KEY, [note(4)])
        row, last = await row_of(store), (await read_all(store))[-1]
        assert (row.created, row.active, row.last) == (5_500, last.at // 1000, last.at)

    async def test_a_row_shows_where_its_session_is_met(self, store: Store) -> None:
        attached = NewEvent.of("surface.attached", {**SLACK, "detail": {"team": "T"}})
        await store.append(KEY, [attached], create=True)
        surfaces = (await row_of(store)).surfaces
        assert list(surfaces) == [surface_name("slack", "D1")]
        assert surfaces[surface_name("slack", "D1")]["team"] == "T"
        await store.append(KEY, [NewEvent.of("surface.detached", SLACK)])
        assert (await row_of(store)).surfaces == {}

    async def test_a_row_shows_a_pending_item_until_it_is_settled(self, store: Store) -> None:
        await store.append(KEY, [NewEvent.of("pending.opened", APPROVAL)], create=True)
        (item,) = (await row_of(store)).pending.values()
        assert (item["what"], item["seq"], item["assignee"]) == ("approval", 1, "ann")
        await store.append(KEY, [NewEvent.of("pending.settled", {"id": "p", "outcome": "denied"})])
        row = await row_of(store)
        assert (row.pending, row.due) == ({}, row.last)

    async def test_an_event_too_new_is_kept_and_not_shown(self, store: Store) -> None:
        new = NewEvent.of("message.received", {"text": "hi", "aura": {"hue": 3}}, v=2)
        await store.append(KEY, [new], create=True)
        row = await row_of(store)
        assert (row.first_message, row.head, row.bytes) == (None, 1, len(new.data))
        assert (await read_all(store))[0].data == new.data

    async def test_an_append_that_would_outgrow_the_row_writes_nothing(self, store: Store) -> None:
        labels = [f"label-{n}" for n in range(LIMITS.map_entries)]
        await store.append(KEY, [NewEvent.of("session.created", {"labels": labels})], create=True)
        large = NewEvent.of("metadata.changed", {"set": {"k": "x" * LIMITS.map_bytes}})
        for event in (NewEvent.of("label.added", {"label": "one more"}), large):
            await rejected(InvalidValue, store.append(KEY, [note(2), event]))
        row = await row_of(store)
        assert (row.head, sorted(row.labels), row.metadata) == (1, sorted(labels), {})

    # Find

    @pytest.mark.parametrize(("query", "expected"), FOUND, ids=str)
    async def test_find_gives_the_sessions_that_answer(
        self, store: Store, query: dict[str, Any], expected: list[str]
    ) -> None:
        await plant_sessions(store)
        page = await store.find(Query(**query, total=True))
        assert ([row.session for row in page.items], page.total) == (expected, len(expected))
        assert page.cursor is None
        assert page.items == [await store.row(key(session)) for session in expected]

    async def test_find_follows_every_change_of_a_row(self, store: Store) -> None:
        await plant_sessions(store)
        for kind, payload in (
            ("label.removed", {"label": "x"}),
            ("metadata.changed", {"set": {"tier": 2}, "drop": ["on"]}),
            ("surface.attached", SLACK),
            ("message.received", {"text": "hi"}),
        ):
            await store.append(key("ann"), [NewEvent.of(kind, payload)])
        found = {
            "label": Query(label="x"),
            "old value": Query(metadata={"tier": 1}),
            "dropped": Query(metadata={"on": True}),
            "stale": Query(stale_until=10**9),
            "new value": Query(metadata={"tier": 2}),
            "surface": Query(surface=("slack", "D1"), order="created"),
            "active": Query(phases=("active",), newest_first=True),
        }
        answers = {name: await walk(store, query, 50) for name, query in found.items()}
        assert {name: [row.session for row in rows] for name, rows in answers.items()} == {
            "label": ["bob"],
            "old value": [],
            "dropped": [],
            "stale": ["cyd"],
            "new value": ["ann"],
            "surface": ["cyd", "ann"],
            "active": ["ann", "cyd"],
        }

    async def test_find_lists_sessions_once_and_the_threads_of_one(self, store: Store) -> None:
        await begin(store)
        await begin(store, SIDE)
        await begin(store, key("t", "only a thread"))
        assert [row.key for row in await walk(store, Query(), 50)] == [KEY]
        threads = await walk(store, Query(session="s"), 50)
        assert {row.key for row in threads} == {KEY, SIDE}
        assert [row.session for row in await walk(store, Query(session="t"), 50)] == ["t"]

    @pytest.mark.parametrize("newest_first", [True, False])
    @pytest.mark.parametrize("order", ["active", "created"])
    async def test_pages_give_every_row_once_also_those_of_one_moment(
        self, store: Store, order: Any, newest_first: bool
    ) -> None:
        for n in range(7):
            await plant(store, key(f"s{n}"), ("note.made", {}), at=1_000 if n < 5 else 9_000)
        query = Query(order=order, newest_first=newest_first)
        rows = await walk(store, query, 2)
        assert rows == (await store.find(query)).items
        assert {row.session for row in rows} == {f"s{n}" for n in range(7)}
        moments = [row.active for row in rows]
        assert moments == sorted(moments, reverse=newest_first)
        page = await store.find(Query(total=True), limit=2)
        assert (len(page.items), page.total) == (2, 7)

    async def test_a_walk_oldest_first_misses_nothing_that_is_touched_meanwhile(
        self, store: Store
    ) -> None:
        for n in range(6):
            await plant(store, key(f"s{n}"), ("note.made", {}), at=n * 1_000)
        query = Query(newest_first=False)
        page = await store.find(query, limit=2)
        seen = [row.session for row in page.items]
        for touched in ("s0", "s3", "new"):
            await store.append(key(touched), [note("touch")], create=True)
        while page.cursor is not None:
            page = await store.find(query, cursor=page.cursor, limit=2)
            seen += [row.session for row in page.items]
        assert seen[:5] == ["s0", "s1", "s2", "s4", "s5"]
        assert sorted(seen[5:]) == ["new", "s0", "s3"]

    async def test_a_cursor_of_another_query_is_refused(self, store: Store) -> None:
        await plant_sessions(store)
        cursor = (await store.find(Query(), limit=1)).cursor
        assert cursor is not None
        for query, wrong in ((Query(user="u1"), cursor), (Query(), "rubbish"), (Query(), "")):
            await rejected(InvalidValue, store.find(query, cursor=wrong))
        await rejected(InvalidValue, store.pending(PendingQuery(), cursor=cursor))

    async def test_empty_names_and_bad_limits_are_refused_not_taken_for_all(
        self, store: Store
    ) -> None:
        await begin(store)
        empty: dict[str, Any]
        for name in ("tenant", "session", "user", "workspace", "agent", "run", "label"):
            empty = {name: ""}
            await rejected(InvalidValue, store.find(Query(**empty)))
        for name in ("tenant", "session", "what", "assignee", "user"):
            empty = {name: ""}
            await rejected(InvalidValue, store.pending(PendingQuery(**empty)))
        for limit in (0, -1, LIMITS.page + 1):
            await rejected(InvalidValue, store.find(Query(), limit=limit))
            await rejected(InvalidValue, store.pending(PendingQuery(), limit=limit))

    # The inbox

    async def test_the_inbox_gives_every_open_item_oldest_first(self, store: Store) -> None:
        question = {"id": "q", "what": "question", "expires": 99}
        await plant(store, key("t"), ("pending.opened", question), at=2_000)
        await plant(store, KEY, ("pending.opened", APPROVAL), at=3_000)
        await plant(store, SIDE, ("pending.opened", {**APPROVAL, "assignee": "bob"}), at=1_000)
        page = await store.pending(PendingQuery())
        assert [(i.thread, i.session, i.at) for i in page.items] == [
            ("side", "s", 1_000),
            ("main", "t", 2_000),
            ("main", "s", 3_000),
        ]
        asked, approval = page.items[1:]
        assert (asked.id, asked.what, asked.expires, asked.seq) == ("q", "question", 99, 1)
        assert (approval.title, approval.assignee, approval.call) == ("Refund?", "ann", "c")
        assert await open_items(store, what="question") == [("t", "q")]
        assert await open_items(store, assignee="ann") == [("s", "p")]
        assert await open_items(store, session="s") == [("s", "p"), ("s", "p")]
        assert await open_items(store, session="s", what="question") == []

    async def test_the_inbox_of_a_user_has_all_threads_of_their_sessions(
        self, store: Store
    ) -> None:
        asked = ("pending.opened", APPROVAL)
        for where, user in ((KEY, "ann"), (key("t"), "bob"), (key("u"), None)):
            created = ("session.created", {} if user is None else {"user": user})
            await plant(store, where, created, asked)
        await plant(store, SIDE, asked)
        await plant(store, key("s", tenant="other"), ("session.created", {"user": "bob"}), asked)
        assert await open_items(store, user="ann") == [("s", "p"), ("s", "p")]
        assert await open_items(store, user="bob") == [("t", "p")]
        assert await open_items(store, user="ann", session="t") == []
        assert await open_items(store, user="nobody") == []
        assert len(await open_items(store)) == 4
        first = await store.pending(PendingQuery(user="ann"), limit=1)
        rest = await store.pending(PendingQuery(user="ann"), cursor=first.cursor, limit=1)
        assert {i.thread for i in (*first.items, *rest.items)} == {"main", "side"}
        assert rest.cursor is None

    async def test_an_open_item_keeps_its_first_wording(self, store: Store) -> None:
        await plant(store, KEY, ("pending.opened", APPROVAL))
        changed = {**APPROVAL, "title": "Never mind"}
        await store.append(KEY, [NewEvent.of("pending.opened", changed)])
        assert [i.title for i in (await store.pending(PendingQuery())).items] == ["Refund?"]

    async def test_items_of_one_append_are_listed_in_the_order_of_their_numbers(
        self, store: Store
    ) -> None:
        opened = [NewEvent.of("pending.opened", {"id": i, "what": "plan"}) for i in "zma"]
        await store.append(KEY, opened, create=True)
        assert [i.id for i in (await store.pending(PendingQuery())).items] == ["z", "m", "a"]

    async def test_the_inbox_is_paged(self, store: Store) -> None:
        opened = [("pending.opened", {"id": f"p{n}", "what": "plan"}) for n in range(5)]
        await plant(store, KEY, *opened)
        await plant(store, SIDE, *opened)
        seen: list[tuple[str, str]] = []
        page = await store.pending(PendingQuery(), limit=3)
        while True:
            seen += [(item.thread, item.id) for item in page.items]
            if page.cursor is None:
                break
            page = await store.pending(PendingQuery(), cursor=page.cursor, limit=3)
        assert sorted(seen) == [(t, f"p{n}") for t in ("main", "side") for n in range(5)]

    async def test_what_is_settled_or_deleted_leaves_the_inbox(self, store: Store) -> None:
        for log in (KEY, SIDE, key("t")):
            await plant(store, log, ("pending.opened", APPROVAL))
        await store.append(KEY, [NewEvent.of("pending.settled", {"id": "p", "outcome": "expired"})])
        assert await open_items(store) == [("s", "p"), ("t", "p")]
        await store.delete(SIDE)
        await store.erase(key("t"), [1], reason="asked")
        assert await open_items(store) == []

    async def test_what_waits_in_a_log_that_was_moved_waits_there_no_more(
        self, store: Store
    ) -> None:
        await store.append(KEY, [NewEvent.of("pending.opened", APPROVAL)], create=True)
        lease = await seal(store)
        assert await open_items(store) == []
        assert list((await row_of(store)).pending) == ["p"]
        assert await damage_in(store) == []
        await store.append(KEY, [NewEvent.of("session.reopened")], fence=lease)
        assert await open_items(store) == [("s", "p")]
        assert await damage_in(store) == []

    # Claims

    async def test_a_name_is_claimed_by_one_session(self, store: Store) -> None:
        ann, bob = Scope("main", "ann"), Scope("main", "bob")
        assert await store.claim("main", "name", ann) == ann
        assert await store.claim("main", "name", ann) == ann
        assert await store.claim("main", "name", bob) == ann
        assert await store.claim("main", "another", bob) == bob
        assert await store.claim("main", "a third", bob) == bob
        assert await store.claims(ann) == ["name"]
        assert await store.claims(bob) == ["a third", "another"]
        assert await store.claims(Scope("other", "bob")) == []

    async def test_a_claim_is_taken_over_only_from_its_holder(self, store: Store) -> None:
        ann, bob, cyd = (Scope("main", name) for name in ("ann", "bob", "cyd"))
        await store.claim("main", "name", ann)
        assert await store.claim("main", "name", cyd, instead_of=bob) == ann
        assert await store.claim("main", "name", cyd, instead_of=ann) == cyd
        assert await store.claim("main", "name", bob, instead_of=ann) == cyd
        assert await store.claim("main", "free", cyd, instead_of=ann) == cyd

    async def test_a_claim_is_given_up_only_by_its_holder(self, store: Store) -> None:
        ann, bob = Scope("main", "ann"), Scope("main", "bob")
        await store.claim("main", "name", ann)
        await store.unclaim("main", "name", bob)
        assert await store.claim("main", "name", bob) == ann
        await store.unclaim("main", "name", ann)
        await store.unclaim("main", "name", ann)
        assert await store.claim("main", "name", bob) == bob

    async def test_a_claim_for_another_tenants_session_is_refused(self, store: Store) -> None:
        await rejected(InvalidValue, store.claim("main", "name", Scope("other", "ann")))
        assert await store.claim("main", "name", Scope("main", "bob")) == Scope("main", "bob")

    async def test_a_surface_that_is_not_claimed_is_reported(self, store: Store) -> None:
        await plant(store, KEY, ("surface.attached", SLACK))
        (damage,) = await damage_in(store)
        assert (damage.problem, damage.key) == ("claim", KEY)
        await store.claim("main", SURFACE_CLAIM + surface_name("slack", "D1"), KEY.scope)
        assert await damage_in(store) == []

    # Runnable logs

    async def test_runnable_gives_what_wants_a_driver_longest_due_first(self, store: Store) -> None:
        created, said = ("session.created", {"agent": "a"}), ("message.received", {"text": "hi"})
        later = ("run.waiting", {"due": wall_clock() + 3_600_000})
        logs: dict[Key, Facts] = {
            key("idle"): [created],
            key("said"): [created, said],
            SIDE: [("thread.created", {"agent": "b"}), ("run.waiting", {"due": 500})],
            key("running"): [created, ("run.started", {})],
            key("not yet"): [created, said, later],
            key("done"): [created, said, ("run.finished", {})],
            key("whose"): [said],
        }
        for log, facts in logs.items():
            await plant(store, log, *facts, at=1_000)
        everything = [key("running"), SIDE, key("said")]
        assert await store.runnable("main", agents=["a", "b"]) == everything
        assert await store.runnable("main", agents=["a", "b"], limit=2) == everything[:2]
        assert await store.runnable("main", agents=["b"]) == [SIDE]
        assert await store.runnable("main", agents=[]) == []
        for agents, limit in ((["\ud800"], 1), ([""], 1), (["a"], 0), (["a"], -1)):
            await rejected(InvalidValue, store.runnable("main", agents=agents, limit=limit))

    async def test_due_tenants_gives_the_tenants_with_due_logs_in_order(self, store: Store) -> None:
        created, said = ("session.created", {"agent": "a"}), ("message.received", {"text": "hi"})
        later = ("run.waiting", {"due": wall_clock() + 3_600_000})
        ahead = wall_clock() + 2 * 86_400_000
        for tenant, at, facts in (
            ("zebra", 1_000, [created, said]),
            ("Zebra", 1_000, [created, said]),
            ("älter", 1_000, [created, said]),
            ("idle", 1_000, [created]),
            ("later", 1_000, [created, said, later]),
            ("other", 1_000, [("session.created", {"agent": "b"}), said]),
            ("set back", ahead, [created, said]),
        ):
            for session in ("one", "two"):
                await plant(store, Key(tenant, session, "main"), *facts, at=at)
        found = ["Zebra", "set back", "zebra", "älter"]
        assert await store.due_tenants(agents=["a"]) == found
        assert await store.due_tenants(agents=["a"], limit=2) == found[:2]
        assert await store.due_tenants(agents=["a"], after="set back") == found[2:]
        assert await store.due_tenants(agents=["a", "b"], after="a") == ["other", *found[1:]]
        assert await store.due_tenants(agents=[]) == []
        for agents, limit in ((["\ud800"], 1), ([""], 1), (["a"], 0), (["a"], -1)):
            await rejected(InvalidValue, store.due_tenants(agents=agents, limit=limit))

    async def test_what_was_due_before_the_clock_was_set_back_is_runnable(
        self, store: Store
    ) -> None:
        created, said = ("session.created", {"agent": "a"}), ("message.received", {"text": "hi"})
        then = wall_clock() + 2 * 86_400_000
        later = ("run.waiting", {"due": then + 3_600_000})
        await plant(store, key("said"), created, said, at=then)
        await plant(store, key("not yet"), created, said, later, at=then)
        await plant(store, key("now"), created, said, at=1_000)
        assert await store.runnable("main", agents=["a"]) == [key("now"), key("said")]
        assert await store.runnable("main", agents=["a"], limit=1) == [key("now")]
        await store.acquire(key("said"), "driver")
        assert await store.runnable("main", agents=["a"]) == [key("now")]

    async def test_what_is_driven_or_moved_is_not_runnable(self, store: Store) -> None:
        await plant(store, KEY, ("session.created", {"agent": "a"}), ("run.started", {}))
        lease = await store.acquire(KEY, "driver")
        assert await store.runnable("main", agents=["a"]) == []
        await store.release(lease)
        assert await store.runnable("main", agents=["a"]) == [KEY]
        await store.acquire(KEY, "driver", ttl=0.01)
        await lapse(store, KEY, "a")
        await store.release(await seal(store))
        assert await store.runnable("main", agents=["a"]) == []
