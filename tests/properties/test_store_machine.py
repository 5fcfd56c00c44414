"""Any store, fed any sequence of calls, answers like lists and dicts in memory.

One machine runs on every store. Its model is plain: a log is a list of facts, a fork is a
copy of that list, a lease is the last one handed out. How many runs, the hypothesis profile
says.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import Raw

import holdfast
from holdfast import (
    Event,
    HeadMoved,
    HoldfastError,
    InvalidValue,
    Key,
    Lease,
    LeaseHeld,
    LeaseLost,
    LogReplaced,
    NewEvent,
    Parent,
    Query,
    Scope,
    SessionExists,
    SessionMoved,
    SessionNotFound,
)
from tests import servers
from tests.crash.places import vaulted
from tests.servers.sweep import sweep

# Few of everything, so that calls meet: one session with threads, a second, another tenant's.
MAIN = Key("a", "s", "main")
KEYS = [
    MAIN,
    Key("a", "s", "side"),
    Key("a", "s", "far"),
    Key("a", "t", "main"),
    Key("b", "s", "main"),
]
places = st.integers(0, 14)
event_ids = st.sampled_from(["", "a", "b", "c", "d", "e"])  # "" is one that never was
labels = st.sampled_from(["x", "y"])
numbers = st.integers(0, 12)
names = st.sampled_from(["n", "m"])
picks = st.integers(0, 5)
threads = st.sampled_from(["main", "side", "far"])


Batch = list[tuple[str, str | None]]
batches = st.lists(st.tuples(event_ids, st.none() | labels), min_size=1, max_size=4)


@dataclass
class Fact:
    """What an event says. Forks hold the same fact, so that an erasure reaches them all."""

    id: str
    n: int
    label: str | None = None
    kind: str = "note.made"
    erased: bool = False

    @property
    def data(self) -> dict[str, Any]:
        if self.erased:
            return {"erased": "asked"}
        more = {"label": self.label} if self.label else {"to": "there"}
        return {"n": self.n, **more}


@dataclass
class Log:
    facts: list[Fact]
    incarnation: str = ""
    shared: int = 0
    lease: Lease | None = None
    held: bool = False
    drafts: dict[str, tuple[int, dict[int, str]]] = field(default_factory=dict)

    @property
    def head(self) -> int:
        return len(self.facts)

    @property
    def own(self) -> list[Fact]:
        return self.facts[self.shared :]

    @property
    def labels(self) -> set[str]:
        return {fact.label for fact in self.own if fact.label and not fact.erased}

    @property
    def sealed(self) -> bool:
        kinds = [fact.kind for fact in self.own if fact.kind.startswith("session.")]
        return kinds[-1:] == ["session.moved"]

    def fenced_by(self, lease: Lease) -> bool:
        return self.held and lease == self.lease

    def known(self) -> dict[str, int]:
        return {fact.id: seq for seq, fact in enumerate(self.facts, 1)}


class StoreMachine(RuleBasedStateMachine):
    """Calls a store and its model in turn, and wants the same answer from both."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.runner = asyncio.Runner()
        self.store = self.runner.run(_opened(self.where(self.folder.name)))
        self.logs: dict[Key, Log] = {}
        self.claims: dict[tuple[str, str], Scope] = {}
        self.leases: list[Lease] = []
        self.incarnations: set[str] = set()
        self.count = 0

    def where(self, folder: str) -> str:
        return self.url.format(place=quote(folder))

    def teardown(self) -> None:
        self.run(self.store.aclose())
        self.runner.close()
        self.folder.cleanup()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    def answer(self, call: Coroutine[Any, Any, Any]) -> Any:
        """What a call returns, or the class of the error that it raises."""
        try:
            return self.run(call)
        except HoldfastError as error:
            return type(error)

    def fact(self, id: str = "", label: str | None = None) -> Fact:
        self.count += 1
        kind = "label.added" if label else "note.made"
        return Fact(id or f"new-{self.count}", self.count, label, kind)

    def facts(self, batch: Batch) -> list[Fact]:
        return [self.fact(id, label) for id, label in batch]

    def key(self, place: int) -> Key:
        """Mostly the key of a log that is there, so that calls have something to do."""
        there = sorted(self.logs)
        if there and place < 10:
            return there[place % len(there)]
        return KEYS[place % len(KEYS)]

    def a_lease(self, key: Key, pick: int | None) -> Lease | None:
        """The newest lease of the log (0, 1), or one of those handed out last, of any log."""
        if pick is None or not self.leases:
            return None
        log = self.logs.get(key)
        if pick < 2 and log is not None and log.lease is not None:
            return log.lease
        return self.leases[-min(pick, len(self.leases)) or -1]

    def grown(self, key: Key, log: Log) -> None:
        """A log is new: it has a row, with an incarnation that never was before."""
        log.incarnation = self.run(self.store.row(key)).log
        assert log.incarnation not in self.incarnations
        self.incarnations.add(log.incarnation)
        self.logs[key] = log

    def check_log(self, key: Key) -> None:
        log, row = self.logs.get(key), self.run(self.store.row(key))
        if log is None:
            assert row is None
            assert self.answer(_listed(self.store.read(key))) is SessionNotFound
            return
        assert (row.log, row.head, row.labels) == (
            log.incarnation,
            log.head,
            dict.fromkeys(log.labels, True),
        )
        assert (row.sealed is not None) == log.sealed
        size = sum(len(_data(fact)) for fact in log.own)
        assert row.bytes == size or (self.store.info().encrypted and row.bytes > size)
        assert self.seen(self.run(_listed(self.store.read(key)))) == self.told(log)

    def seen(self, events: list[Event]) -> list[tuple[int, str, Any]]:
        return [(event.seq, event.id, event.json()) for event in events]

    def told(self, log: Log) -> list[tuple[int, str, Any]]:
        return [(seq, fact.id, fact.data) for seq, fact in enumerate(log.facts, 1)]

    # The log

    @initialize(size=st.integers(1, 4))
    def begin(self, size: int) -> None:
        for key in (MAIN, KEYS[-1]):
            self.append_facts(key, [self.fact(id) for id in "abcd"[:size]], create=True)

    @rule(place=places, batch=batches, create=st.booleans())
    def append(self, place: int, batch: Batch, create: bool) -> None:
        self.append_facts(self.key(place), self.facts(batch), create=create)

    @rule(place=places, batch=batches, behind=st.integers(-1, 1), pick=st.none() | picks)
    def append_at_a_head(self, place: int, batch: Batch, behind: int, pick: int | None) -> None:
        key = self.key(place)
        head = self.logs[key].head if key in self.logs else 0
        lease = self.a_lease(key, pick)
        self.append_facts(key, self.facts(batch), expected=head - behind, lease=lease)

    @rule(place=places, batch=batches, pick=picks)
    def append_under_a_lease(self, place: int, batch: Batch, pick: int) -> None:
        key = self.key(place)
        self.append_facts(key, self.facts(batch), lease=self.a_lease(key, pick))

    @rule(place=places, batch=batches, create=st.booleans(), old=st.booleans())
    def append_to_an_incarnation(self, place: int, batch: Batch, create: bool, old: bool) -> None:
        key = self.key(place)
        this = self.logs[key].incarnation if key in self.logs else "never was"
        self.append_facts(key, self.facts(batch), create=create, named="old" if old else this)

    def some_lease(self, place: int, pick: int) -> Lease:
        return self.a_lease(self.key(place), pick) or self.leases[-1]

    def append_facts(
        self,
        key: Key,
        facts: list[Fact],
        *,
        create: bool = False,
        expected: int | None = None,
        lease: Lease | None = None,
        named: str | None = None,
    ) -> None:
        events = [NewEvent(kind=fact.kind, data=_data(fact), id=fact.id) for fact in facts]
        got = self.answer(
            self.store.append(key, events, create=create, expected=expected, fence=lease, log=named)
        )
        log = self.logs.get(key)
        if log is None and (not create or named is not None):
            assert got is SessionNotFound
            return
        new, log = log is None, log or Log([])
        if named is not None and named != log.incarnation:
            assert got is LogReplaced
            return
        known, fresh, seqs = log.known(), [], []
        for fact in facts:
            if fact.id not in known:
                fresh.append(fact)
                known[fact.id] = log.head + len(fresh)
            seqs.append(known[fact.id])
        reopens = fresh and fresh[0].kind == "session.reopened" and lease is not None
        if fresh and log.sealed and not reopens:
            assert got is SessionMoved
        elif fresh and lease is not None and not log.fenced_by(lease):
            assert got is LeaseLost
        elif fresh and expected not in (None, log.head):
            assert got is HeadMoved
        else:
            log.facts.extend(fresh)
            assert got == holdfast.Appended(tuple(seqs), log.head, len(fresh))
            if new:
                self.grown(key, log)
        self.check_log(key)

    @rule(
        place=places,
        kind=st.sampled_from(["session.moved", "session.reopened"]),
        fenced=st.booleans(),
    )
    def move(self, place: int, kind: str, fenced: bool) -> None:
        key = self.key(place)
        fact = self.fact()
        fact.kind = kind
        self.append_facts(key, [fact], lease=self.a_lease(key, 0) if fenced else None)

    @rule(
        place=places,
        after=numbers,
        before=st.none() | numbers,
        limit=st.none() | st.integers(1, 5),
        reverse=st.booleans(),
    )
    def read(
        self, place: int, after: int, before: int | None, limit: int | None, reverse: bool
    ) -> None:
        key = self.key(place)
        bounds: dict[str, Any] = {"after": after, "before": before}
        got = self.answer(_listed(self.store.read(key, **bounds, limit=limit, reverse=reverse)))
        if (log := self.logs.get(key)) is None:
            assert got is SessionNotFound
            return
        wanted = [row for row in self.told(log) if row[0] > after and row[0] < (before or 10**6)]
        if before == 0:
            wanted = []
        assert self.seen(got) == (wanted[::-1] if reverse else wanted)[:limit]

    @rule(place=places, to=threads, at=numbers, id=event_ids)
    def fork(self, place: int, to: str, at: int, id: str) -> None:
        key = self.key(place)
        target = Key(key.tenant, key.session, to)
        first = self.fact(id)
        event = NewEvent(kind=first.kind, data=_data(first), id=first.id)
        got = self.answer(self.store.fork(key, target.thread, at=at, first=event))
        parent, there = self.logs.get(key), self.logs.get(target)
        if parent is None:
            assert got is SessionNotFound
        elif there is not None:
            same = there.shared == at > 0 and there.facts[at].id == first.id
            assert got is (None if same else SessionExists)
        elif parent.sealed:
            assert got is SessionMoved
        elif not 1 <= at <= parent.head or parent.known().get(first.id, at + 1) <= at:
            assert got is InvalidValue
        else:
            assert got is None
            self.grown(target, Log([*parent.facts[:at], first], shared=at))
        self.check_log(target)

    @rule(place=places, size=st.integers(1, 4), of=threads, at=numbers, share=st.booleans())
    def restore(self, place: int, size: int, of: str, at: int, share: bool) -> None:
        key = KEYS[place % len(KEYS)]
        facts = [self.fact() for _ in range(size)]
        base = self.logs.get(Key(key.tenant, key.session, of))
        share = share and key not in self.logs and base is not None and 1 <= at <= base.head
        before = base.facts[:at] if share and base else []
        parent = Parent(of, at) if share else None
        events = [
            Event(kind=fact.kind, data=_data(fact), id=fact.id, seq=seq, at=1_000)
            for seq, fact in enumerate(facts, len(before) + 1)
        ]
        got = self.answer(self.store.restore(key, _given(events), parent=parent))
        if key in self.logs:
            assert got is SessionExists
        else:
            assert got is None
            self.grown(key, Log([*before, *facts], shared=len(before)))
        self.check_log(key)

    @rule(place=places, seq=numbers)
    def erase(self, place: int, seq: int) -> None:
        key = self.key(place)
        got = self.answer(self.store.erase(key, [seq], reason="asked"))
        if (log := self.logs.get(key)) is None:
            assert got is SessionNotFound
        elif not 1 <= seq <= log.head:
            assert got is InvalidValue
        else:
            assert got.removed["payloads"] == 1
            log.facts[seq - 1].erased = True
        for each in KEYS:
            self.check_log(each)

    @precondition(lambda self: len(self.logs) > 2)
    @rule(place=places, whole=st.booleans(), fence=st.none() | picks)
    def delete(self, place: int, whole: bool, fence: int | None) -> None:
        key = self.key(place)
        lease = None if whole else self.a_lease(key, fence)
        log = self.logs.get(key)
        got = self.answer(self.store.delete(key.scope if whole else key, fence=lease))
        if lease is not None and log is None:
            assert got is SessionNotFound
        elif lease is not None and log is not None and not log.fenced_by(lease):
            assert got is LeaseLost
        else:
            gone = [k for k in self.logs if k == key or (whole and k.scope == key.scope)]
            assert got.removed["logs"] == len(gone)
            for each in gone:
                del self.logs[each]
            if (whole or gone) and not any(k.scope == key.scope for k in self.logs):
                for claim in [c for c, owner in self.claims.items() if owner == key.scope]:
                    del self.claims[claim]
        for each in KEYS:
            self.check_log(each)

    @rule()
    def verify(self) -> None:
        assert self.run(_listed(self.store.verify())) == []

    # The catalog

    @rule(
        tenant=st.sampled_from("ab"),
        session=st.none() | st.sampled_from("st"),
        label=st.none() | labels,
        limit=st.integers(1, 3),
        newest_first=st.booleans(),
        order=st.sampled_from(["active", "created"]),
    )
    def find(
        self,
        *,
        tenant: str,
        session: str | None,
        label: str | None,
        limit: int,
        newest_first: bool,
        order: Any,
    ) -> None:
        query = Query(
            tenant=tenant,
            session=session,
            label=label,
            newest_first=newest_first,
            order=order,
            total=True,
        )
        wanted = [
            key
            for key, log in self.logs.items()
            if key.tenant == tenant
            and (key.thread == "main" if session is None else key.session == session)
            and (label is None or label in log.labels)
        ]
        rows, cursor = [], None
        while True:
            page = self.run(self.store.find(query, cursor=cursor, limit=limit))
            assert (page.total, len(page.items) <= limit) == (len(wanted), True)
            rows += page.items
            if (cursor := page.cursor) is None:
                break
        assert sorted(row.key for row in rows) == sorted(wanted)
        moments = [getattr(row, order) for row in rows]
        assert moments == sorted(moments, reverse=newest_first)

    @rule(place=places, name=names, instead_of=st.none() | st.sampled_from("st"))
    def claim(self, place: int, name: str, instead_of: str | None) -> None:
        key = KEYS[place % len(KEYS)]
        known = Scope(key.tenant, instead_of) if instead_of else None
        holder = self.claims.get((key.tenant, name))
        if holder is None or holder == known:
            holder = self.claims[key.tenant, name] = key.scope
        got = self.answer(self.store.claim(key.tenant, name, key.scope, instead_of=known))
        assert got == holder

    @rule(place=places, name=names)
    def unclaim(self, place: int, name: str) -> None:
        key = KEYS[place % len(KEYS)]
        self.run(self.store.unclaim(key.tenant, name, key.scope))
        if self.claims.get((key.tenant, name)) == key.scope:
            del self.claims[key.tenant, name]

    # Driving

    @rule(place=places, steal=st.booleans())
    def acquire(self, place: int, steal: bool) -> None:
        key = self.key(place)
        reason = "it hangs" if steal else None
        got = self.answer(self.store.acquire(key, "driver", ttl=3600, steal=reason))
        if (log := self.logs.get(key)) is None:
            assert got is SessionNotFound
        elif log.held and not steal:
            assert got is LeaseHeld
        else:
            assert (got.key, got.log) == (key, log.incarnation)
            assert log.lease is None or got.token > log.lease.token
            log.lease, log.held = got, True
            self.leases.append(got)

    @precondition(lambda self: self.leases)
    @rule(place=places, pick=picks)
    def renew(self, place: int, pick: int) -> None:
        lease = self.some_lease(place, pick)
        got = self.answer(self.store.renew(lease))
        if (log := self.logs.get(lease.key)) is None:
            assert got is SessionNotFound
        elif not log.fenced_by(lease):
            assert got is LeaseLost
        else:
            assert (got.token, got.until >= lease.until) == (lease.token, True)

    @precondition(lambda self: self.leases)
    @rule(place=places, pick=picks, missed=st.none() | st.integers(0, 1))
    def release(self, place: int, pick: int, missed: int | None) -> None:
        lease = self.some_lease(place, pick)
        log = self.logs.get(lease.key)
        head = None if missed is None or log is None else log.head - missed
        got = self.answer(self.store.release(lease, head=head))
        if log is None:
            assert got is SessionNotFound
        elif lease != log.lease:
            assert got is LeaseLost
        elif log.held and missed:
            assert got is HeadMoved
        else:
            assert got is None
            log.held = False

    @precondition(lambda self: self.leases)
    @rule(
        place=places,
        pick=picks,
        message=st.sampled_from("abc"),
        offset=st.integers(0, 4),
    )
    def put_draft(self, place: int, pick: int, message: str, offset: int) -> None:
        lease = self.some_lease(place, pick)
        self.count += 1
        piece = f"{self.count:03}"
        got = self.answer(self.store.put_draft(lease.key, message, offset, piece, fence=lease))
        if (log := self.logs.get(lease.key)) is None:
            assert got is SessionNotFound
        elif not log.fenced_by(lease):
            assert got is LeaseLost
        else:
            assert got is None
            token, pieces = log.drafts.get(message, (0, {}))
            kept = pieces if token == lease.token else {}
            log.drafts[message] = (lease.token, {**kept, offset: piece})

    @rule(place=places)
    def drafts(self, place: int) -> None:
        key = self.key(place)
        got = self.answer(self.store.drafts(key))
        if (log := self.logs.get(key)) is None:
            assert got is SessionNotFound
            return
        wanted = {
            (message, _joined(pieces), token)
            for message, (token, pieces) in log.drafts.items()
            if message not in log.known()
        }
        assert {(draft.message, draft.text, draft.token) for draft in got} == wanted


async def _opened(url: str) -> holdfast.Store:
    return await holdfast.connect(url)


async def _listed(stream: Any) -> list[Any]:
    return [item async for item in stream]


async def _given(events: list[Event]) -> Any:
    for event in events:
        yield event


def _data(fact: Fact) -> Raw:
    return NewEvent.of(fact.kind, fact.data).data


def _joined(pieces: dict[int, str]) -> str:
    """Each piece overwrites from its offset on; what lies behind a gap does not count."""
    text: list[str] = []
    for offset, piece in sorted(pieces.items()):
        if offset > len(text):
            break
        text[offset : offset + len(piece)] = piece
    return "".join(text)


class SqliteMachine(StoreMachine):
    url = "sqlite:{place}/holdfast.db?durability=process"


class FileMachine(StoreMachine):
    url = "file:{place}/holdfast?durability=process"


class VaultMachine(SqliteMachine):
    def where(self, folder: str) -> str:
        return vaulted(super().where(folder), Path(folder))


class ServerMachine(StoreMachine):
    def where(self, folder: str) -> str:
        return servers.url(self.url, folder)

    def teardown(self) -> None:
        super().teardown()
        sweep()


class PostgresMachine(ServerMachine):
    url = "postgres"


class PooledMachine(ServerMachine):
    url = "pooled"


class MongoMachine(ServerMachine):
    url = "mongodb"


class StandaloneMachine(ServerMachine):
    url = "standalone"


# How many runs is the profile's to say: few by default, many in `soak`. Memory costs least.
STEPS = settings(stateful_step_count=80)

TestMemory = StoreMachine.TestCase
TestMemory.settings = settings(STEPS, max_examples=2 * STEPS.max_examples)
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = STEPS
TestFile = FileMachine.TestCase
TestFile.settings = STEPS
TestVault = VaultMachine.TestCase
TestVault.settings = STEPS

# On a server every call is a way there and back.
SOME = settings(STEPS, max_examples=STEPS.max_examples // 3, stateful_step_count=50)
FEW = settings(SOME, max_examples=STEPS.max_examples // 6)

TestPostgres = pytest.mark.server(PostgresMachine.TestCase)
TestPostgres.settings = SOME
TestMongo = pytest.mark.server(MongoMachine.TestCase)
TestMongo.settings = SOME
TestPooled = pytest.mark.server(PooledMachine.TestCase)
TestPooled.settings = FEW
TestStandalone = pytest.mark.server(StandaloneMachine.TestCase)
TestStandalone.settings = FEW
