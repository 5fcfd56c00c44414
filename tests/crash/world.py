"""A model of what a store should hold, the operations that change it, and a look at the real one.

An operation is one call of the store. A process that dies in the middle of it, or a disk that
refuses it, leaves the session as it was before or as it is after: `Session` values are compared,
so a third state shows.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import AsyncGenerator, Sequence

from msgspec import Raw, Struct, field

from holdfast import BlobNotFound, BlobRef, Event, Key, Query, Scope, Snapshot, Store, key

from . import facts
from .facts import fact
from .outcome import Outcome

TENANT = "main"
NOBODY = Scope(TENANT, "nobody")


class Op(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call: what to do, to which log, with which ids."""

    do: str
    session: str
    thread: str = "main"
    ids: list[str] = []
    at: int = 0
    to: str = ""
    name: str = ""

    @property
    def key(self) -> Key:
        return key(self.session, self.thread)


class Session(Struct):
    """What a session holds: the ids of each thread, and what stands beside them."""

    threads: dict[str, list[str]] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    blobs: set[str] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)
    drafts: dict[str, str] = field(default_factory=dict)


World = dict[str, Session]  # by name; no two tasks share a session


def after(world: World, op: Op) -> Session:
    """What the operation makes of its session."""
    session = copy.deepcopy(world.get(op.session, Session()))
    threads = session.threads
    if op.do in ("append", "create", "restore"):
        threads.setdefault(op.thread, []).extend(op.ids)
    elif op.do == "fork":
        threads[op.to] = [*threads[op.thread][: op.at], *op.ids]
    elif op.do == "erase":
        session.erased.update(op.ids)
    elif op.do == "delete thread":
        del threads[op.thread]
    elif op.do == "delete":
        threads.clear()
    elif op.do == "blob":
        session.blobs.add(op.name)
    elif op.do == "claim":
        session.claims.add(op.name)
    elif op.do == "draft":
        session.drafts[op.thread] = facts.text_of(op.name)  # a new lease begins it anew
    if not threads:
        return Session()
    session.drafts = {name: text for name, text in session.drafts.items() if name in threads}
    kept = {id for ids in threads.values() for id in ids}
    session.erased &= kept
    return session


async def perform(store: Store, world: World, op: Op) -> int:
    """Carry out the operation; returns the lease's token, if it took one."""
    if op.do in ("append", "create"):
        head = len(world[op.session].threads[op.thread]) if op.do == "append" else 0
        done = await store.append(op.key, [fact(id) for id in op.ids], create=op.do == "create")
        assert done.seqs == tuple(range(head + 1, head + len(op.ids) + 1)), (op, done)
    elif op.do == "restore":
        await store.restore(op.key, given(facts.past(op.ids)))
    elif op.do == "fork":
        await store.fork(op.key, op.to, at=op.at, first=fact(op.ids[0]))
    elif op.do == "erase":
        ids = world[op.session].threads[op.thread]
        await store.erase(op.key, [ids.index(id) + 1 for id in op.ids], reason="asked")
    elif op.do == "delete thread":
        await store.delete(op.key)
    elif op.do == "delete":
        await store.delete(op.key.scope)
    elif op.do == "blob":
        await store.put_blob(op.key.scope, facts.blob(op.name))
    elif op.do == "purge":
        await store.purge()
    elif op.do == "claim":
        assert await store.claim(TENANT, op.name, op.key.scope) == op.key.scope
    else:
        lease = await store.acquire(op.key, "driver", steal="a new process drives")
        if op.do == "draft":
            await store.put_draft(op.key, "draft", 0, facts.text_of(op.name), fence=lease)
        elif op.do == "snapshot":
            head = len(world[op.session].threads[op.thread])
            state = Raw(f'{{"at":{head}}}')
            saved = Snapshot(log=lease.log, seq=head, version="v1", state=state)
            await store.save_snapshot(op.key, saved, fence=lease)
        return lease.token
    return 0


async def given(events: Sequence[Event]) -> AsyncGenerator[Event, None]:
    for event in events:
        yield event


def invent(rng: random.Random, world: World, prefix: str, *, lasting: bool = False) -> Op:
    """A random operation that is possible in this world; `prefix` makes its ids unique. A
    `lasting` one changes what a store keeps at its declared level of durability, and may use a
    name again whose session was deleted."""
    sessions = [name for name, session in world.items() if session.threads]
    if not sessions or (len(sessions) < 3 and rng.random() < 0.1):
        do = rng.choice(["create", "create", "restore"])
        free = [name for name in world if lasting and name not in sessions]
        name = rng.choice(free) if free and rng.random() < 0.5 else f"s{prefix}"
        return Op(do=do, session=name, ids=batch(rng, prefix))
    name = rng.choice(sessions)
    session = world[name]
    thread = rng.choice(list(session.threads))
    ids = session.threads[thread]
    crowded = len(sessions) > 2 or sum(map(len, session.threads.values())) > 250
    weights = {
        "append": 60,
        "fork": 6 if len(session.threads) < 4 else 0,
        "erase": 5,
        "delete thread": 2,
        "delete": 12 if crowded else 2,
        "blob": 6 if len(session.blobs) < 6 else 0,
        "claim": 4,
        "draft": 6,
        "snapshot": 4,
        "acquire": 2,
        "purge": 0,
    }
    if lasting:
        weights.update({"draft": 0, "snapshot": 0, "acquire": 0, "purge": 2})
    (do,) = rng.choices(list(weights), list(weights.values()))
    if do == "append":
        return Op(do=do, session=name, thread=thread, ids=batch(rng, prefix))
    if do == "fork":
        at = rng.randint(1, len(ids))
        return Op(
            do=do, session=name, thread=thread, at=at, to=f"t{prefix}", ids=[f"{prefix}-first-s"]
        )
    if do == "erase":
        some = rng.sample(ids, min(len(ids), rng.randint(1, 3)))
        return Op(do=do, session=name, thread=thread, ids=some)
    return Op(do=do, session=name, thread=thread, name=f"{prefix}-{rng.choice('sssml')}")


def batch(rng: random.Random, prefix: str) -> list[str]:
    """The ids of one append: from one small event to forty that fill megabytes."""
    count = rng.choice([1, 1, 2, 4, 10, 40])
    sizes = rng.choice(["s", "s", "s", "sm", "sssssl", "m"])
    return [f"{prefix}-{n}-{rng.choice(sizes)}" for n in range(count)]


async def look(store: Store, name: str, known: Sequence[Session], outcome: Outcome) -> Session:
    """The session as the store has it; what is not whole is a problem. Of blobs and claims,
    which no method lists, those are asked for that one of the `known` states has."""
    scope = Scope(TENANT, name)
    seen = Session()
    for row in (await store.find(Query(tenant=TENANT, session=name), limit=1_000)).items:
        events = [event async for event in store.read(row.key)]
        outcome.equal([e.seq for e in events], list(range(1, row.head + 1)), f"{row.key} numbers")
        for event in events:
            outcome.expect(facts.whole(event), f"{row.key} event {event.seq} is not whole: {event}")
        seen.threads[row.thread] = [event.id for event in events]
        seen.erased.update(event.id for event in events if facts.erased(event))
        for draft in await store.drafts(row.key):
            seen.drafts[row.thread] = draft.text
        saved = await store.load_snapshot(row.key, "v1")
        if saved is not None:
            sound = saved.seq <= row.head and bytes(saved.state) == b'{"at":%d}' % saved.seq
            outcome.expect(sound, f"{row.key} has a snapshot that nobody saved: {saved}")
    for blob in {blob for session in known for blob in session.blobs}:
        if await _has_blob(store, scope, blob):
            seen.blobs.add(blob)
    for claim in {claim for session in known for claim in session.claims}:
        holder = await store.claim(TENANT, claim, NOBODY)
        if holder == scope:
            seen.claims.add(claim)
        await store.unclaim(TENANT, claim, NOBODY)
    return seen


async def _has_blob(store: Store, scope: Scope, name: str) -> bool:
    data = facts.blob(name)
    try:
        kept = await store.get_blob(scope, BlobRef(hashlib.sha256(data).hexdigest(), len(data)))
    except BlobNotFound:
        return False
    assert kept == data
    return True


async def settle(
    store: Store, world: World, open_ops: Sequence[Op], outcome: Outcome, when: str
) -> None:
    """Hold every session against the model, where each open operation was carried out or was
    not; afterwards the model is what the store has."""
    unsure = {op.session: op for op in open_ops}
    for name in [*world, *(name for name in unsure if name not in world)]:
        states = [world.get(name, Session())]
        if (op := unsure.get(name)) is not None:
            states.append(after(world, op))
        seen = await look(store, name, states, outcome)
        if seen not in states:
            outcome.problems.append(f"{when}: session {name} {differ(seen, states)} ({op})")
        if seen.threads:
            world[name] = seen
        else:
            world.pop(name, None)
    listed = {row.session for row in (await store.find(Query(tenant=TENANT), limit=1_000)).items}
    outcome.expect(listed <= set(world), f"{when}: nobody made {listed - set(world)}")


def differ(seen: Session, states: Sequence[Session]) -> str:
    """How a session differs from each of the states that it may have."""
    parts = []
    for number, state in enumerate(states):
        found = [
            f"{name} {_brief(getattr(seen, name))} not {_brief(getattr(state, name))}"
            for name in Session.__struct_fields__
            if getattr(seen, name) != getattr(state, name)
        ]
        parts.append(f"{'after' if number else 'before'}: {'; '.join(found)}")
    return " | ".join(parts)


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return str(
            {k: f"{len(v)}, last {v[-1:]}" if isinstance(v, list) else v for k, v in value.items()}
        )[:300]
    return str(value)[:300]


async def carry_on(store: Store, world: World, prefix: str, outcome: Outcome) -> None:
    """The next append works on every thread, and gets the next number."""
    for name, session in world.items():
        for number, (thread, ids) in enumerate(session.threads.items()):
            event = fact(f"{prefix}-{name}-{number}-s")
            done = await store.append(key(name, thread), [event], expected=len(ids))
            outcome.equal(done.seqs, (len(ids) + 1,), f"the next append to {name}/{thread}")
            ids.append(event.id)


async def verified(store: Store, outcome: Outcome, when: str) -> None:
    """Nothing is damaged; a line that a killed process left unfinished may have been cut."""
    async for damage in store.verify():
        if damage.problem == "torn" and damage.repaired and store.info().kind == "file":
            outcome.counts["cut lines reported"] += 1
        else:
            outcome.problems.append(f"{when}: verify found {damage}")
