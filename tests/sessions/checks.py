"""What several processes may count on that use the same sessions, each promise a function."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import HoldfastError, Sessions, Store, key
from holdfast.log.catalog import SURFACE_CLAIM, surface_name
from holdfast.store import wall_clock
from holdfast.testing.samples import read_all

from ..crash.children import ChildFailed, Line
from ..crash.outcome import Outcome, Tick, quiet
from ..processes.crew import Worker, crew
from .places import OPEN, shared

PATIENCE = 600.0  # seconds, above what the counts themselves take, until a worker hangs
LATER = 2 * 3_600_000  # ms: for who goes by a clock so far ahead, what we begin is stale
SURELY = 300  # rounds in which both orders of a race are met


class Stage(NamedTuple):
    """A store and the processes that use it; each check has tenants of its own."""

    kind: str
    place: str
    workers: list[Worker]


Check = Callable[..., Awaitable[None]]


@contextmanager
def stage(kind: str, place: str, *, patience: float = PATIENCE) -> Iterator[Stage]:
    """Four processes that have opened the store at a place."""
    with crew(4, patience=patience, module="tests.sessions.worker") as workers:
        for answer in _all_at_once(workers, [{"do": "open", "kind": kind, "place": place}] * 4):
            if "error" in answer:
                raise ChildFailed(answer["text"])
        yield Stage(kind, place, workers)
        _all_at_once(workers, [{"do": "close"}] * 4)


def run(check: Check, kind: str, folder: Path, *, tick: Tick = quiet, **counts: int) -> Outcome:
    """What a check finds with processes of its own."""
    patience = PATIENCE + sum(counts.values())
    try:
        with stage(kind, shared(kind, folder), patience=patience) as on:
            return run_on(on, check, tick=tick, **counts)
    except ChildFailed as error:
        return Outcome(problems=[f"cut short: {error!r}"])


def run_on(on: Stage, check: Check, *, tick: Tick = quiet, **counts: int) -> Outcome:
    async def main() -> Outcome:
        outcome = Outcome()
        try:
            store = await OPEN[on.kind](on.place, wall_clock)
            try:
                await check(on.workers, store, outcome, tick=tick, **counts)
                outcome.problems += [f"in the end: {damage}" async for damage in store.verify()]
            finally:
                await store.aclose()
        except (ChildFailed, HoldfastError) as error:
            outcome.problems.append(f"cut short: {error!r}")
        return outcome

    return asyncio.run(main())


async def changes(
    workers: list[Worker],
    store: Store,
    outcome: Outcome,
    *,
    attaches: int,
    updates: int,
    tick: Tick,
) -> None:
    """Four processes attach so many surfaces and set so many keys of one session at once."""
    sessions = Sessions(store, tenant="changes")
    made = await sessions.create("one", user="ann")
    tick(0, 1)
    share = {"attaches": attaches // 4, "updates": updates // 4}
    order = {"do": "bind", "tenant": "changes", "session": "one", **share}
    answers = _all_at_once(workers, [{**order, "name": f"w{n}"} for n in range(4)])
    if not _no_errors(outcome, answers, "binding"):
        return
    row = await sessions.changes.row("one")
    places = {surface_name(f"w{n}", f"{at}") for n in range(4) for at in range(attaches // 4)}
    outcome.equal(set(row.surfaces), places, "the surfaces")
    keys = {f"w{n}-{at}": at for n in range(4) for at in range(updates // 4)}
    outcome.equal(row.metadata, keys, "the metadata")
    claims = set(await store.claims(made.scope))
    outcome.equal(claims, {SURFACE_CLAIM + place for place in places}, "the claims")
    outcome.equal(row.head, 1 + len(places) + len(keys), "how many events")
    outcome.counts["changes"] += len(places) + len(keys)


async def contacts(
    workers: list[Worker], store: Store, outcome: Outcome, *, rounds: int, calls: int, tick: Tick
) -> None:
    """A person who is new writes to four processes at once, by one surface, by many, and the same
    message to all: it is one session each time."""
    for number in range(rounds):
        tick(number, rounds)
        for way in ("one surface", "many surfaces", "one message"):
            await _contact(workers, store, outcome, f"{number}", way, calls)


async def _contact(
    workers: list[Worker], store: Store, outcome: Outcome, number: str, way: str, calls: int
) -> None:
    sessions = Sessions(store, tenant="contacts")
    user = f"user-{way}-{number}"
    messages = [{"user": user, "surface": "web", "address": user} for _ in range(calls)]
    if way == "many surfaces":
        messages = [{**m, "address": f"{user}-{n % 10}"} for n, m in enumerate(messages)]
    elif way == "one message":
        messages = [{**m, "id": "m1", "workspace": "w"} for m in messages]
    order = {"do": "resolve", "tenant": "contacts"}
    answers = _all_at_once(workers, [{**order, "messages": messages[n::4]} for n in range(4)])
    when = f"round {number}, {way}"
    if not _no_errors(outcome, answers, when):
        return
    given = {session for answer in answers for session in answer["sessions"]}
    found = [row.session for row in (await sessions.find(user=user)).items]
    outcome.counts["messages"] += calls
    outcome.counts["sessions"] += len(found)
    outcome.equal((len(given), given), (1, set(found)), f"{when}: the sessions")
    for session in found:
        events = await read_all(store, key(session, tenant="contacts"))
        wanted = {
            "session.created": 1,
            "session.touched": 1 if way == "one message" else calls,
            "surface.attached": 10 if way == "many surfaces" else 1,
        }
        outcome.equal(Counter(event.kind for event in events), wanted, f"{when}: the events")


async def sweeps(
    workers: list[Worker], store: Store, outcome: Outcome, *, rounds: int, tick: Tick
) -> None:
    """One process touches a stale session while another sweeps: it is active in the end, whoever
    came first."""
    _shift(workers, LATER)
    dice = random.Random(rounds)
    for number in range(rounds):
        tick(number, rounds)
        await _sweep(workers, store, outcome, number, dice)
    _shift(workers, 0)
    if rounds >= SURELY:
        for order in ("touched first", "swept first"):
            outcome.expect(outcome.counts[order], f"no round was {order}")


async def _sweep(
    workers: list[Worker], store: Store, outcome: Outcome, number: int, dice: random.Random
) -> None:
    tenant = f"sweeps-{number}"
    mine = Sessions(store, tenant=tenant)
    made = await mine.create("s", user="ann")
    toucher, sweeper = workers[:2]
    delay = dice.uniform(0, 0.006)
    toucher.order("do_one", verb="touch", tenant=tenant, arguments=["s"], delay=delay)
    sweeper.order("sweep", tenant=tenant)
    touched, swept = toucher.hear(), sweeper.hear()
    when = f"round {number}"
    if not _no_errors(outcome, [touched, swept], when):
        return
    row = await mine.changes.row("s")
    outcome.equal(row.phase, "active", f"{when}: the phase after {swept}")
    kinds = [event.kind for event in await read_all(store, made.key)]
    told = swept["suspended"] == ["s"]
    outcome.equal(kinds.count("session.suspended"), int(told), f"{when}: how often suspended")
    outcome.counts["swept first" if told else "touched first"] += 1
    outcome.counts["of them in between"] += swept["skipped"].get("in use again", 0)


async def sweepers(
    workers: list[Worker], store: Store, outcome: Outcome, *, sessions: int, tick: Tick
) -> None:
    """Four processes sweep at once: each stale session is suspended once, and told by one."""
    mine = Sessions(store, tenant="sweepers")
    ids = sorted(f"s{n}" for n in range(sessions))
    for number, id in enumerate(ids):
        tick(number, sessions)
        await mine.create(id, user="ann")
    _shift(workers, LATER)
    answers = _all_at_once(workers, [{"do": "sweep", "tenant": "sweepers"}] * 4)
    _shift(workers, 0)
    if not _no_errors(outcome, answers, "sweeping"):
        return
    told = sorted(id for answer in answers for id in answer["suspended"])
    outcome.equal(told, ids, "the sessions suspended")
    for id in ids:
        kinds = [event.kind for event in await read_all(store, key(id, tenant="sweepers"))]
        outcome.equal(kinds, ["session.created", "session.suspended"], f"log of {id}")
    outcome.counts["sessions swept"] += len(told)
    outcome.counts["sweepers with some"] += sum(bool(answer["suspended"]) for answer in answers)


async def endings(
    workers: list[Worker], store: Store, outcome: Outcome, *, rounds: int, tick: Tick
) -> None:
    """A session expires while others touch it, attach to it and set its metadata: in the end it
    has expired, and each was told truly whether it came before."""
    for number in range(rounds):
        tick(number, rounds)
        await _end(workers, store, outcome, f"s{number}")


async def _end(workers: list[Worker], store: Store, outcome: Outcome, id: str) -> None:
    sessions = Sessions(store, tenant="endings")
    made = await sessions.create(id, user="ann")
    calls: list[tuple[str, list[Any]]] = [
        ("expire", [id]),
        ("touch", [id]),
        ("attach_surface", [id, "web", id]),
        ("update_metadata", [id, {"k": 1}]),
    ]
    dice = random.Random(id)
    orders = [
        {"do": "do_one", "verb": verb, "tenant": "endings", "arguments": arguments}
        | {"delay": dice.uniform(0, 0.003)}
        for verb, arguments in calls
    ]
    ended, *others = _all_at_once(workers, orders)
    outcome.equal(ended, {"phase": "expired"}, f"{id}: who expired it was told")
    row = await sessions.changes.row(id)
    outcome.equal(row.phase, "expired", f"{id}: the phase")
    events = await read_all(store, made.key)
    end = next((event.seq for event in events if event.kind == "session.expired"), 0)
    before = {event.kind for event in events if event.seq < end}
    kinds = ("session.touched", "surface.attached", "metadata.changed")
    for answer, kind in zip(others, kinds, strict=True):
        worked = "error" not in answer
        outcome.counts["in time" if worked else "too late"] += 1
        refused = worked or answer["error"] == "phase_error"
        outcome.expect(refused, f"{id}: {kind}: {answer.get('text')}")
        # A touch may have been in time, and the session ended before it could tell.
        if worked or kind != "session.touched":
            outcome.equal(worked, kind in before, f"{id}: {kind} came before the end")
    after = [event.kind for event in events if event.seq > end]
    outcome.expect(set(after) <= {"session.touched"}, f"{id}: after its end came {after}")
    claims = await store.claims(made.scope)
    outcome.equal(len(claims), len(row.surfaces), f"{id}: how many claims")


# What the checks share


def _shift(workers: list[Worker], later: int) -> None:
    _all_at_once(workers, [{"do": "shift", "later": later}] * len(workers))


def _all_at_once(workers: list[Worker], orders: list[Line]) -> list[Line]:
    """Tell all of them, who wait for it, then hear all."""
    for worker, order in zip(workers, orders, strict=True):
        worker.tell(order)
    return [worker.hear() for worker in workers]


def _no_errors(outcome: Outcome, answers: list[Line], when: str) -> bool:
    errors = [f"{when}: {answer['text']}" for answer in answers if "error" in answer]
    outcome.problems += errors
    return not errors
