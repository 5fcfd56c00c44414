"""Tests for the guarantees of a store about difficult input: unusual values and names, races, and
other tenants. Every store either stores a value and returns an equal value, or rejects it with
`InvalidValue` before anything is written.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ..errors import BlobNotFound, InvalidValue, LeaseLost, SessionNotFound
from ..log.catalog import PendingQuery, Query
from ..log.codec import LIMITS
from ..log.events import Key, NewEvent, Scope, key
from ..stores.port import BlobRef, Lease, Store
from .samples import (
    KEY,
    SIDE,
    accepted,
    begin,
    begin_driven,
    contents,
    given,
    ids,
    note,
    notes,
    past,
    plant,
    read_all,
    rejected,
    row_of,
    seqs,
    snapshot,
    take,
    uses,
)


def nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


PAYLOADS: dict[str, Any] = {
    "NUL": "a\0b",
    "emoji": "👩\u200d👩\u200d👧 🏳️\u200d🌈 \U0010ffff",
    "combining and right to left": "e\u0301 é \u202eabc\u202c \ufeff",
    "line and paragraph separators": "a\r\nb\tc\u2028d\u2029e\x1b\x7f",
    "quotes and markup": "'; DROP TABLE events; -- \" ` \\ $1 %s {} ${x} <script>",
    "64-bit integers": [2**63 - 1, -(2**63), 2**64 - 1],
    "integers past 64 bits": [2**64, -(2**200), 10**40],
    "integers past a double": [2**53 + 1, -(2**53) - 1],
    "floats": [0.1, 1e308, 5e-324, -0.0, 1e-7, 1.0, 123456789.12345679],
    "empty values": [{}, [], "", None, True, False, 0],
    "key order": {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    "odd keys": {"": 1, "$set": 2, "a.b": 3, "\0": 4, "__proto__": 5, "_id": 6, "é": 7},
    "our own words": {"apart": {"size": 1, "sha256": "0" * 64}, "erased": "no", "seq": 9},
    "depth 128": nested(128),
    "brackets in strings": ['[{"' * 500, "\\" * 501 + '"'],
    "a bare string": "text",
    "null": Raw(b"null"),
}

UNWRITABLE: dict[str, Any] = {
    "a lone surrogate": "\ud800",
    "a lone surrogate in a key": {"\udfff": 1},
    "NaN": [float("nan")],
    "infinity": {"a": float("-inf")},
    "depth 5000": nested(5000),
    "no JSON value": object(),
}

BAD_DATA: dict[str, bytes] = {
    "depth 129": msgspec.json.encode(nested(129)),
    "no JSON": b"{",
    "nothing": b"",
    "two values": b"{} {}",
    "a line break": b'{"a":\n1}',
    "NaN": b"NaN",
    "a float past the range": b"1e999",
    "an escaped lone surrogate": b'"\\ud800"',
    "no UTF-8": b'"\xff"',
}

NAMES = [
    "a/b", "../../etc/passwd", "..", ".", "a:b", "'\"`", "a\\b", "CON", "~", "-rf", " ", "a ",
    "a\nb", "a\tb", "%00", "%2e", "*", "?x=1", "#", "$ne", "a", "A", "é", "e\u0301", "ß", "SS",
    "👩\u200d👧", "\u202e", "\x7f", "main", "null", "0", "0.0", "x" * 512, "é" * 256, "/" * 512,
]  # fmt: skip

BAD_NAMES = ["", "x" * 513, "é" * 257, "a\0b", "\0", "\ud800", "a\udfffb"]


def uses_of_name(store: Store, name: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a call of every method that takes a name, with `name` as that argument. The log `KEY`
    exists.
    """
    lease = Lease(key=KEY, log="l", token=1, owner="o", since=1, until=2, ttl=1)

    def append(**fields: Any) -> Callable[[], Awaitable[object]]:
        return lambda: store.append(KEY, [note(1, **fields)])

    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "claim": lambda: store.claim("main", name * 4 if len(name) > 200 else name, KEY.scope),
        "claim for": lambda: store.claim("main", "n", Scope("main", name)),
        "owner": lambda: store.acquire(KEY, name),
        "reason to steal": lambda: store.acquire(KEY, "o", steal=name),
        "fork": lambda: store.fork(KEY, name, at=1, first=note("fork")),
        "reason to erase": lambda: store.erase(KEY, [1], reason=name),
        "draft": lambda: store.put_draft(KEY, name, 0, "text", fence=lease),
        "runnable": lambda: store.runnable(name, agents=["a"]),
        "due_tenants": lambda: store.due_tenants(agents=[name]),
    }
    for field in ("id", "run", "actor", "cause", "kind"):
        calls[field] = append(**{field: name}) if field != "kind" else _of_kind(store, name)
    for at, bad in enumerate([(name, "s", "main"), ("main", name, "main"), ("main", "s", name)]):
        where, part = Key(*bad), ("tenant", "session", "thread")[at]
        calls[f"append, {part}"] = _bind(store.append, where, [note(1)], create=True)
        calls[f"read, {part}"] = _bind(read_all, store, where)
        calls[f"row, {part}"] = _bind(store.row, where)
        calls[f"delete, {part}"] = _bind(store.delete, where)
        if part != "thread":
            calls[f"put_blob, {part}"] = _bind(store.put_blob, where.scope, b"x")
            calls[f"delete session, {part}"] = _bind(store.delete, where.scope)
    return calls


def _bind(call: Callable[..., Awaitable[object]], *args: Any, **more: Any) -> Callable[[], Any]:
    return lambda: call(*args, **more)


def _of_kind(store: Store, kind: str) -> Callable[[], Awaitable[object]]:
    return lambda: store.append(KEY, [NewEvent(kind=kind, data=Raw(b"{}"))])


def glued_alike() -> list[Key]:
    """Return different keys whose components yield the same string when they are joined by a
    separator.
    """
    keys = set()
    for glue in (":", "/", "|", ",", ".", "-", "_", "\n", '","', "::", "\x1f", "%2F"):
        parts = ["a", "b", "c", "d", "e"]
        for one, two in itertools.combinations(range(1, 5), 2):
            keys.add(Key(*(glue.join(p) for p in (parts[:one], parts[one:two], parts[two:]))))
    return sorted(keys)


class HostileContract:
    """Tests for the guarantees of a store about difficult input: no value is altered, confused with
    another value, or shown to another tenant.
    """

    pytestmark = pytest.mark.asyncio

    # Values

    @pytest.mark.parametrize("what", PAYLOADS)
    async def test_a_nasty_payload_reads_back_equal(self, store: Store, what: str) -> None:
        event = NewEvent.of("comet.seen", PAYLOADS[what])
        await store.append(KEY, [event], create=True)
        await store.restore(SIDE, store.read(KEY))
        for log in (KEY, SIDE):
            (got,) = await read_all(store, log)
            assert got.data == event.data
        if not isinstance(PAYLOADS[what], Raw):
            assert got.json() == PAYLOADS[what]

    @pytest.mark.parametrize("what", PAYLOADS)
    async def test_a_nasty_value_reads_back_equal_from_the_row(
        self, store: Store, what: str
    ) -> None:
        value = PAYLOADS[what] if what != "depth 128" else nested(100)
        changed = NewEvent.of("metadata.changed", {"set": {"k": value, "other": 1}})
        await store.append(KEY, [changed], create=True)
        expected = msgspec.json.decode(changed.data)["set"]["k"]
        assert (await row_of(store)).metadata == {"k": expected, "other": 1}
        found = await store.find(Query(metadata={"k": expected}))
        assert [row.key for row in found.items] == [KEY]

    @pytest.mark.parametrize("megabytes", [1, 20])
    async def test_a_large_payload_reads_back_equal(self, store: Store, megabytes: int) -> None:
        text = "0123456789abcdé\0" * (megabytes << 16)
        event = NewEvent.of("tool.finished", {"call": "c", "result": text})
        await store.append(KEY, [note(1), event, note(2)], create=True)
        got = await read_all(store)
        assert got[1].data == event.data
        assert (await row_of(store)).bytes == sum(len(e.data) for e in got)

    @pytest.mark.parametrize("what", UNWRITABLE)
    async def test_what_json_cannot_hold_is_refused(self, store: Store, what: str) -> None:
        with pytest.raises(InvalidValue):
            await store.append(KEY, [NewEvent.of("note.made", UNWRITABLE[what])], create=True)
        assert await store.row(KEY) is None

    @pytest.mark.parametrize("what", BAD_DATA)
    async def test_data_that_is_not_one_json_text_is_refused(self, store: Store, what: str) -> None:
        bad = NewEvent(kind="note.made", data=Raw(BAD_DATA[what]))
        await rejected(InvalidValue, store.append(KEY, [note(1), bad], create=True))
        await rejected(InvalidValue, store.append(KEY, [bad]))
        assert await store.row(KEY) is None

    async def test_what_is_above_the_limits_is_refused_whole(self, store: Store) -> None:
        most = Raw(b'"' + b"x" * (LIMITS.event_bytes - 2) + b'"')
        over = Raw(b'"' + b"x" * (LIMITS.event_bytes - 1) + b'"')
        for payloads in ([Raw(b"1"), over], [most, most, Raw(b"1")]):
            events = [NewEvent(kind="note.made", data=data) for data in payloads]
            await rejected(InvalidValue, store.append(KEY, events, create=True))
        assert await store.row(KEY) is None
        lease = await begin_driven(store)
        draft, state = "x" * (LIMITS.draft_bytes + 1), "1" * (LIMITS.snapshot_bytes + 1)
        await rejected(InvalidValue, store.put_draft(KEY, "m", 0, draft, fence=lease))
        await rejected(
            InvalidValue, store.save_snapshot(KEY, snapshot(lease.log, 1, state), fence=lease)
        )
        await rejected(InvalidValue, store.put_blob(KEY.scope, bytes(LIMITS.blob_bytes + 1)))

    @pytest.mark.parametrize("at", [-1, 2**53, 2**70, 1.5, "now", None])
    async def test_a_time_that_is_none_is_not_restored(self, store: Store, at: Any) -> None:
        await rejected(InvalidValue, store.restore(KEY, given([past(1), past(2, at=at)])))
        assert await store.row(KEY) is None

    @pytest.mark.parametrize(
        ("kind", "payload"),
        [
            ("session.created", {"user": "x" * 513}),
            ("session.created", {"agent": "a\0b"}),
            ("session.created", {"workspace": ""}),
            ("session.created", {"ttl": 2**70}),
            ("session.created", {"metadata": {"": 1}}),
            ("label.added", {"label": "a\0b"}),
            ("pending.opened", {"id": "x" * 513, "what": "plan"}),
            ("run.waiting", {"due": -1}),
        ],
    )
    async def test_what_a_row_cannot_be_found_by_is_refused(
        self, store: Store, kind: str, payload: Any
    ) -> None:
        await rejected(
            InvalidValue, store.append(KEY, [note(1), NewEvent.of(kind, payload)], create=True)
        )
        assert await store.row(KEY) is None

    @pytest.mark.parametrize(
        "query",
        [
            {"user": "\ud800"},
            {"label": "a\0b"},
            {"agent": "x" * 513},
            {"metadata": {"k": 1j}},
            {"metadata": {"k": float("nan")}},
            {"created_from": 2**70},
            {"active_until": -1},
            {"phases": ("",)},
            {"surface": ("slack", "")},
            {"order": "size"},
        ],
        ids=str,
    )
    async def test_a_question_that_has_no_answer_is_refused(
        self, store: Store, query: dict[str, Any]
    ) -> None:
        await begin(store)
        await rejected(InvalidValue, store.find(Query(**query)))

    async def test_unknown_kinds_and_fields_survive_being_copied(self, store: Store) -> None:
        odd = [
            NewEvent.of("comet.seen", {"tail": [1, {"deep": None}]}, v=41, actor="c:x"),
            NewEvent.of("message.received", {"text": "hi", "aura": {"hue": 3}}, run="r"),
            NewEvent(kind="x" * LIMITS.kind_bytes, data=Raw(b'{"b" : 1, "a":1.50e0}')),
        ]
        await store.append(KEY, odd, create=True)
        await store.restore(SIDE, store.read(KEY))
        for old, copy in zip(odd, await read_all(store, SIDE), strict=True):
            assert copy == msgspec.structs.replace(copy, **msgspec.structs.asdict(old))

    # Names

    async def test_odd_names_are_all_different_and_read_back_equal(self, store: Store) -> None:
        places = [
            Key(*where) for n in NAMES for where in ((n, "s", "t"), ("t", n, "s"), ("t", "s", n))
        ]
        for number, place in enumerate(dict.fromkeys(places)):
            event = note(number, id=place.tenant, actor=place.session, cause=place.thread)
            assert (await store.append(place, [event], create=True)).seqs == (1,)
        for number, place in enumerate(dict.fromkeys(places)):
            (event,) = await read_all(store, place)
            assert (event.json(), (await row_of(store, place)).key) == ({"n": number}, place)
            assert (event.id, event.actor, event.cause) == (
                place.tenant,
                place.session,
                place.thread,
            )

    async def test_odd_ids_are_all_different_and_known_again(self, store: Store) -> None:
        events = [note(number, id=name) for number, name in enumerate(NAMES)]
        first = await store.append(KEY, events, create=True)
        assert first.seqs == tuple(range(1, len(NAMES) + 1))
        again = await store.append(KEY, events[::-1])
        assert (again.seqs, again.fresh) == (first.seqs[::-1], 0)

    async def test_odd_names_work_beside_the_log(self, store: Store) -> None:
        await begin(store)
        lease = await store.acquire(KEY, NAMES[0], ttl=60)
        for number, name in enumerate(NAMES):
            owner = Scope("main", f"owner {number}")
            assert await store.claim("main", name, owner) == owner
            await store.put_draft(KEY, name, 0, f"text {number}", fence=lease)
            version = snapshot(lease.log, 1, f"{number}", name)
            await store.save_snapshot(KEY, version, fence=lease)
        texts = {draft.message: draft.text for draft in await store.drafts(KEY)}
        assert texts == {name: f"text {number}" for number, name in enumerate(NAMES)}
        for number, name in enumerate(NAMES):
            assert await store.claim("main", name, Scope("main", "x")) == Scope(
                "main", f"owner {number}"
            )
            version = snapshot(lease.log, 1, f"{number}", name)
            assert await store.load_snapshot(KEY, name) == version

    async def test_odd_names_are_found(self, store: Store) -> None:
        for name in NAMES:
            payload = {"user": name, "agent": name, "labels": [name], "metadata": {name: name}}
            await plant(store, key(name), ("session.created", payload), ("run.started", {}))
        for name in NAMES:
            queries = [
                Query(user=name),
                Query(agent=name),
                Query(label=name),
                Query(metadata={name: name}),
                Query(session=name),
            ]
            for query in queries:
                assert [row.session for row in (await store.find(query)).items] == [name]
            assert await store.runnable("main", agents=[name]) == [key(name)]

    @pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: ascii(name)[:12])
    async def test_a_bad_name_is_refused_wherever_it_stands(self, store: Store, name: str) -> None:
        await begin(store)
        assert await accepted(uses_of_name(store, name), InvalidValue) == []
        assert await ids(store) == notes(1)

    async def test_a_kind_has_its_own_limit(self, store: Store) -> None:
        await rejected(InvalidValue, store.append(KEY, [NewEvent.of("k" * 101)], create=True))
        assert await store.row(KEY) is None

    async def test_keys_that_look_alike_when_glued_stay_apart(self, store: Store) -> None:
        keys = glued_alike()
        for number, place in enumerate(keys):
            await store.append(place, [note(number, id="same")], create=True)
            await store.put_blob(place.scope, f"{number}".encode())
        for number, place in enumerate(keys):
            assert await contents(store, place) == [{"n": number}]
            assert (await row_of(store, place)).key == place
            page = await store.find(Query(tenant=place.tenant, session=place.session))
            assert {row.key for row in page.items} == {k for k in keys if k.scope == place.scope}
        gone = keys[0]
        await store.delete(gone.scope)
        for place in keys:
            assert (await store.row(place) is None) == (place.scope == gone.scope)

    async def test_claims_that_look_alike_when_glued_stay_apart(self, store: Store) -> None:
        claims = [
            ("a", "b:c"),
            ("a:b", "c"),
            ("a", "b/c"),
            ("a/b", "c"),
            ("a", "b\nc"),
            ("a\nb", "c"),
        ]
        for tenant, name in claims:
            owner = Scope(tenant, f"owner of {name}")
            assert await store.claim(tenant, name, owner) == owner

    async def test_a_blob_is_never_looked_up_by_path(self, store: Store) -> None:
        await begin(store)
        await store.put_blob(KEY.scope, b"bytes")
        for name in (*NAMES, "x" * 5000, "a\0b", "\ud800", "", "../" * 20 + "etc/passwd"):
            await rejected(BlobNotFound, store.get_blob(KEY.scope, BlobRef(name, 5)))

    # Races

    async def test_of_two_racing_writers_exactly_one_wins(self, store: Store) -> None:
        await begin(store)
        for head in range(1, 21):
            race = await asyncio.gather(
                store.append(KEY, [note(f"a{head}")], expected=head),
                store.append(KEY, [note(f"b{head}")], expected=head),
                return_exceptions=True,
            )
            assert sorted(type(answer).__name__ for answer in race) == ["Appended", "HeadMoved"]
        assert await seqs(store) == list(range(1, 22))

    async def test_fifty_that_begin_one_log_begin_it_once(self, store: Store) -> None:
        appends = [store.append(KEY, [note("same"), note(n)], create=True) for n in range(50)]
        answers = await asyncio.gather(*appends)
        assert {answer.seqs[0] for answer in answers} == {1}
        assert sorted(answer.seqs[1] for answer in answers) == list(range(2, 52))
        assert await seqs(store) == list(range(1, 52))
        assert len((await store.find(Query(session="s"))).items) == 1

    async def test_fifty_that_send_the_same_event_write_it_once(self, store: Store) -> None:
        answers = await asyncio.gather(
            *(store.append(KEY, [note(1)], create=True) for _ in range(50))
        )
        assert sum(answer.fresh for answer in answers) == 1
        assert {answer.seqs for answer in answers} == {(1,)}

    async def test_a_refused_append_does_not_disturb_its_neighbours(self, store: Store) -> None:
        await begin(store)
        appends = [
            store.append(KEY, [note(f"x{n}")], expected=99 if n % 2 else None) for n in range(40)
        ]
        answers = await asyncio.gather(*appends, return_exceptions=True)
        assert [type(a).__name__ for a in answers] == ["Appended", "HeadMoved"] * 20
        assert sorted(await ids(store, after=1)) == sorted(
            notes(*(f"x{n}" for n in range(0, 40, 2)))
        )

    async def test_of_fifty_claims_one_holds(self, store: Store) -> None:
        owners = [Scope("main", f"s{n}") for n in range(50)]
        answers = await asyncio.gather(*(store.claim("main", "name", o) for o in owners))
        assert len(set(answers)) == 1

    async def test_a_cancelled_append_is_whole_or_absent_and_can_be_retried(
        self, store: Store
    ) -> None:
        await begin(store)
        for n in range(20):
            pair = [note(f"{n}a"), note(f"{n}b")]
            writing = asyncio.ensure_future(store.append(KEY, pair))
            for _ in range(n % 5):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            retried = await store.append(KEY, pair)
            assert (retried.seqs, retried.fresh % 2) == ((retried.head - 1, retried.head), 0)
        assert await ids(store, after=1) == notes(*(f"{n}{x}" for n in range(20) for x in "ab"))

    # Tenants

    async def test_no_method_reaches_a_log_of_another_tenant(self, store: Store) -> None:
        lease = await begin_driven(store)
        theirs = Key("other", KEY.session, KEY.thread)
        moved = msgspec.structs.replace(lease, key=theirs)
        assert await accepted(uses(store, theirs, moved), SessionNotFound) == []
        assert await store.row(theirs) is None
        assert not any((await store.delete(theirs.scope)).removed.values())
        assert await ids(store) == notes(1)
        assert await accepted(uses(store, KEY, lease), SessionNotFound) != []

    async def test_two_tenants_use_the_same_names_and_never_meet(self, store: Store) -> None:
        ours, theirs = KEY, Key("other", KEY.session, KEY.thread)
        facts = [
            ("session.created", {"agent": "a", "user": "u", "labels": ["x"]}),
            ("run.started", {}),
            ("pending.opened", {"id": "p", "what": "approval"}),
        ]
        leases, refs = {}, {}
        for where in (ours, theirs):
            await plant(store, where, *facts, ("note.made", {"whose": where.tenant}))
            assert await store.claim(where.tenant, "name", where.scope) == where.scope
        for where in (ours, theirs):
            assert await store.runnable(where.tenant, agents=["a"]) == [where]
            leases[where] = lease = await store.acquire(where, where.tenant)
            await store.put_draft(where, "m", 0, where.tenant, fence=lease)
            state = snapshot(lease.log, 1, f'"{where.tenant}"')
            await store.save_snapshot(where, state, fence=lease)
            refs[where] = await store.put_blob(where.scope, where.tenant.encode())
        for where, foreign in ((ours, theirs), (theirs, ours)):
            assert (await read_all(store, where))[-1].json() == {"whose": where.tenant}
            for query in (Query(tenant=where.tenant), Query(tenant=where.tenant, session="s")):
                assert [row.key for row in (await store.find(query)).items] == [where]
            inbox = (await store.pending(PendingQuery(tenant=where.tenant))).items
            assert [item.tenant for item in inbox] == [where.tenant]
            assert [draft.text for draft in await store.drafts(where)] == [where.tenant]
            state = await store.load_snapshot(where, "v1") or snapshot("", 0)
            assert bytes(state.state) == f'"{where.tenant}"'.encode()
            for fence in (leases[foreign], msgspec.structs.replace(leases[foreign], key=where)):
                await rejected(LeaseLost, store.append(where, [note(1)], fence=fence))
            await rejected(BlobNotFound, store.get_blob(where.scope, refs[foreign]))
            items = await take(store.follow(where), 5)
            assert [getattr(item, "seq", 0) for item in items] == [1, 2, 3, 4, 0]
        await store.delete(theirs.scope)
        assert await seqs(store, ours) == [1, 2, 3, 4]
        assert await store.get_blob(ours.scope, refs[ours]) == b"main"
        assert await store.claim("main", "name", Scope("main", "x")) == ours.scope
        assert (await store.renew(leases[ours])).token == leases[ours].token

    async def test_a_claim_is_taken_from_no_other_tenant(self, store: Store) -> None:
        ours, theirs = Scope("main", "s"), Scope("other", "s")
        assert await store.claim("other", "name", theirs) == theirs
        assert await store.claim("main", "name", ours, instead_of=theirs) == ours
        await store.unclaim("main", "name", ours)
        assert await store.claim("other", "name", Scope("other", "x")) == theirs
