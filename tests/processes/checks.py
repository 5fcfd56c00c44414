"""What several processes on one store may count on, each promise a function."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import Raw

from holdfast import HoldfastError, Key, NewEvent, Snapshot, Store, connect
from holdfast.events import key
from holdfast.testing.samples import after_the_lapse, read_all

from ..crash.children import ChildFailed, Line
from ..crash.outcome import Outcome, Tick, quiet
from ..crash.places import url
from .crew import Worker, crew

CROWD = 8
SLOWEST = 1.0  # seconds that an append in a crowd should stay under
PATIENCE = 120.0  # seconds, above what the counts themselves take, until a worker hangs
AGENT = "shop"
MOMENTS = (
    "messages before the finish",
    "messages before the release",
    "messages after the release",
)
SURELY = 500  # rounds in which each of these moments is met
WRITES = (
    "append",
    "append a message",
    "append an approval",
    "put_draft",
    "save_snapshot",
    "erase",
    "renew",
    "release",
    "delete",
)


def opens(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """Eight processes open a store that is not there yet, all at once, and write at once."""

    async def check(outcome: Outcome) -> None:
        with crew(CROWD, patience=PATIENCE + 5 * rounds) as workers:
            for number in range(rounds):
                tick(number, rounds)
                place = folder / f"opens-{number}"
                place.mkdir()
                orders = [
                    {"do": "arrive", "url": url(kind, place), "name": f"{n}"} for n in range(CROWD)
                ]
                answers = _all_at_once(workers, orders)
                when = f"round {number}"
                outcome.counts["opens"] += len(answers)
                if not _no_errors(outcome, answers, when):
                    return
                async with connect(url(kind, place)) as store:
                    done = {f"{n}-shared": answer["shared"] for n, answer in enumerate(answers)}
                    await _judge(store, outcome, key("shared"), done, when)
                    for n, answer in enumerate(answers):
                        done = {f"{n}-own": answer["own"]}
                        await _judge(store, outcome, key(f"{n}"), done, when)
                    await _verified(store, outcome, when)

    return _run(check)


def crowd(
    kind: str,
    folder: Path,
    *,
    appends: int | None = None,
    seconds: float = 0.0,
    tick: Tick = quiet,
) -> Outcome:
    """Eight processes append to one log, then each to its own: so often, or for so long."""

    async def check(outcome: Outcome) -> None:
        place = url(kind, folder)
        patience = PATIENCE + 2 * seconds + 3 * (appends or 0)
        counts = {"appends": appends, "seconds": seconds}
        with crew(CROWD, patience=patience) as workers:
            _open(workers, place)
            for number, (what, names) in enumerate(
                (
                    ("one log", ["one"] * CROWD),
                    (f"{CROWD} logs", [f"own-{n}" for n in range(CROWD)]),
                )
            ):
                tick(number, 2)
                orders = [
                    {"do": "fill", "session": name, "name": f"{name}-{n}", **counts}
                    for n, name in enumerate(names)
                ]
                answers = _all_at_once(workers, orders)
                if not _no_errors(outcome, answers, what):
                    return
                for answer in answers:
                    outcome.problems += [f"{what}: {error}" for error in answer["errors"]]
                times = [took for answer in answers for took in answer["times"]]
                outcome.measured(f"append to {what}", times, SLOWEST)
                outcome.counts[f"appends to {what}"] += len(times)
                async with connect(place) as store:
                    for name in sorted(set(names)):
                        done: dict[str, int] = {}
                        for n, answer in enumerate(answers):
                            if names[n] == name:
                                done.update(answer["done"])
                        await _judge(store, outcome, key(name), done, what)
            async with connect(place) as store:
                await _verified(store, outcome, "in the end")

    return _run(check)


def race(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """Two processes append with the same `expected`: one wins, and the other learns the head."""

    async def check(outcome: Outcome) -> None:
        place = url(kind, folder)
        winners: dict[str, int] = {"begin": 1}
        with crew(2, patience=PATIENCE + rounds) as workers:
            _open(workers, place)
            workers[0].ask("append", session="raced", id="begin", create=True)
            for head in range(1, rounds + 1):
                tick(head - 1, rounds)
                # Told in turn first and second, or the first would win most of the time.
                first = head % 2
                for n in (first, 1 - first):
                    workers[n].order("append", session="raced", id=f"{n}-{head}", expected=head)
                answers = [worker.hear() for worker in workers]
                won = [n for n, answer in enumerate(answers) if answer.get("seq") == head + 1]
                lost = [
                    n
                    for n, answer in enumerate(answers)
                    if answer.get("error") == "head_moved"
                    and (answer["fields"]["expected"], answer["fields"]["head"]) == (head, head + 1)
                ]
                outcome.counts["rounds"] += 1
                if (len(won), len(lost)) != (1, 1):
                    outcome.problems.append(f"round {head}: {answers}")
                    return
                outcome.counts[f"won by process {won[0] + 1}"] += 1
                winners[f"{won[0]}-{head}"] = head + 1
            async with connect(place) as store:
                await _judge(store, outcome, key("raced"), winners, "in the end")
                await _verified(store, outcome, "in the end")

    return _run(check)


def frozen(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """A holder is stopped past its lease and continued after another took over: every write
    under the old lease is refused and leaves no trace. In every other round the new holder has
    released its lease by then."""

    async def check(outcome: Outcome) -> None:
        place = url(kind, folder)
        async with connect(place) as store:
            with crew(1, patience=PATIENCE + 10 * rounds) as (worker,):
                _open([worker], place)
                for number in range(rounds):
                    tick(number, rounds)
                    at = key(f"frozen-{number}")
                    await _freeze(store, worker, at, outcome, releases=bool(number % 2))
                    outcome.counts["freezes"] += 1
            await _verified(store, outcome, "in the end")

    return _run(check)


async def _freeze(
    store: Store, worker: Worker, at: Key, outcome: Outcome, *, releases: bool
) -> None:
    opened = NewEvent.of("pending.opened", {"id": "p", "what": "approval"}, id="opened")
    await store.append(at, [NewEvent.of("session.created", {"agent": AGENT}), opened], create=True)
    held = worker.ask("hold", session=at.session, owner="frozen", ttl=0.2)
    for what in ("append", "put_draft"):
        outcome.equal(worker.ask("write", what=what), {}, f"the live holder's {what}")
    worker.freeze()
    try:
        lease = await after_the_lapse(store, at, "heir")
        outcome.expect(lease.token > held["token"], f"token {lease.token} after {held['token']}")
        taken = NewEvent.of("message.completed", {"text": "taken over"}, id="taken")
        await store.append(at, [taken], fence=lease)
        await store.put_draft(at, "m", 0, "the heir's", fence=lease)
        state = Snapshot(log=lease.log, seq=3, version="v1", state=Raw(b'"the heir\'s"'))
        await store.save_snapshot(at, state, fence=lease)
        if releases:
            await store.release(lease)
        before = await _view(store, at)
        for what in WRITES:
            worker.order("write", what=what)  # waits in the pipe, to be the first it does
    finally:
        worker.thaw()
    owner = None if releases else "heir"
    for what in WRITES:
        answer = worker.hear()
        fields = answer.get("fields", {})
        refusal = (answer.get("error"), fields.get("newest"), fields.get("owner"))
        wanted = ("lease_lost", lease.token, owner)
        outcome.equal(refusal, wanted, f"{at.session}: the answer to {what}: {answer}")
        outcome.counts["writes refused"] += refusal == wanted
    outcome.equal(await _view(store, at), before, f"{at.session}: what is stored")
    if releases:
        await store.acquire(at, "the next")
    else:
        await store.renew(lease)
        await store.append(at, [NewEvent.of("run.finished")], fence=lease, expected=before["head"])


async def _view(store: Store, at: Key) -> dict[str, Any]:
    row = await store.row(at)
    return {
        "head": row.head if row else None,
        "row": row,
        "events": await read_all(store, at),
        "drafts": await store.drafts(at),
        "snapshot": await store.load_snapshot(at, "v1"),
    }


async def _runnable(store: Store, at: Key, *, wanted: bool) -> list[Key]:
    """What is runnable; what is wanted may be so a moment later, since processes that ask a
    server for the time know it to some milliseconds."""
    end = time.monotonic() + PATIENCE
    while True:
        listed = await store.runnable(at.tenant, agents=[AGENT])
        if listed or not wanted or time.monotonic() > end:
            return listed
        await asyncio.sleep(0.005)


def handover(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """A message comes from the side while a driver finishes and lets go: the driver handles it,
    or the log is runnable afterwards. The next driver finds what was left."""

    async def check(outcome: Outcome) -> None:
        place = url(kind, folder)
        at = key("handed")
        async with connect(place) as store:
            await store.append(at, [NewEvent.of("session.created", {"agent": AGENT})], create=True)
            with crew(2, patience=PATIENCE + rounds) as (driver, sender):
                _open([driver, sender], place)
                waiting: set[str] = set()
                handled: Counter[str] = Counter()
                took = 0.02
                for number in range(rounds):
                    tick(number, rounds)
                    message = f"m{number}"
                    delay = random.uniform(0, took * 1.2)
                    sender.order("send", session=at.session, id=message, delay=delay)
                    driver.order("drive", session=at.session)
                    driven, sent = driver.hear(), sender.hear()
                    if not _no_errors(outcome, [driven, sent], f"round {number}"):
                        return
                    took = took * 0.9 + driven["took"] * 0.1
                    waiting = (waiting | {message}) - set(driven["handled"])
                    handled.update(driven["handled"])
                    _count(outcome, driven, waiting)
                    listed = await _runnable(store, at, wanted=bool(waiting))
                    outcome.equal(
                        listed, [at] if waiting else [], f"runnable after {number}, with {waiting}"
                    )
                driven = driver.ask("drive", session=at.session)
                if not _no_errors(outcome, [driven], "the last drive"):
                    return
                handled.update(driven["handled"])
            if rounds >= SURELY:
                for when in MOMENTS:
                    outcome.expect(outcome.counts[when], f"no {when}: nothing was shown of them")
            wanted = Counter(f"m{number}" for number in range(rounds))
            outcome.equal(handled, wanted, "how often each message was handled")
            events = await read_all(store, at)
            stored = Counter(e.id for e in events if e.kind == "message.received")
            outcome.equal(stored, wanted, "how often each message is stored")
            outcome.equal(
                await store.runnable(at.tenant, agents=[AGENT]), [], "runnable in the end"
            )
            await _verified(store, outcome, "in the end")

    return _run(check)


def _count(outcome: Outcome, driven: Line, waiting: set[str]) -> None:
    outcome.counts["rounds"] += 1
    strange = set(driven["moved"]) - {"finish", "release"}
    outcome.expect(not strange, f"the driver was told of another head: {strange}")
    met = (driven["moved"].get("finish", 0), driven["moved"].get("release", 0), len(waiting))
    for when, count in zip(MOMENTS, met, strict=True):
        outcome.counts[when] += count


def follow(kind: str, folder: Path, *, appends: int, tick: Tick = quiet) -> Outcome:
    """Four processes append to one log, so often each. Who followed it before, and who begins to
    in the midst of it, gets every event once and in order."""

    async def check(outcome: Outcome) -> None:
        place = url(kind, folder)
        at = key("followed")
        old, writers = 5, 4
        until = old + writers * appends
        async with connect(place) as store:
            await store.append(
                at, [NewEvent.of("note.made", id=f"old-{n}") for n in range(old)], create=True
            )
            with crew(writers + 2, patience=PATIENCE + 3 * appends) as workers:
                early, late, *appenders = workers
                tick(0, 1)
                _open(workers, place)
                caught_up = early.ask("follow", session=at.session, after=0, until=until)
                outcome.equal(caught_up, {"head": old}, "where the early follower caught up")
                for n, worker in enumerate(appenders):
                    worker.order(
                        "fill", session=at.session, name=f"w{n}", appends=appends, seconds=0
                    )
                late.order("follow", session=at.session, after=2, until=until)
                answers = [worker.hear() for worker in appenders]
                _no_errors(outcome, answers, "appending")
                for answer in answers:
                    outcome.problems += answer.get("errors", [])
                outcome.expect("head" in late.hear(), "the late follower did not catch up")
                if outcome.problems:
                    raise ChildFailed("the followers would wait for what was not appended")
                events = [[event.seq, event.id] for event in await read_all(store, at)]
                outcome.equal([seq for seq, _ in events], list(range(1, until + 1)), "numbers")
                for worker, after in ((early, 0), (late, 2)):
                    answer = worker.hear()
                    wanted = {"seen": events[after:], "caught_up": 1}
                    outcome.equal(answer, wanted, f"what was followed after {after}")
                    outcome.counts["events followed"] += len(answer.get("seen", ()))

    return _run(check)


def overlap(kind: str, folder: Path, *, appends: int, tick: Tick = quiet) -> Outcome:
    """Four processes append the same ids to one log, so many each in an order of its own: each
    id is stored once, and all are told the same number for it."""

    async def check(outcome: Outcome) -> None:
        place = url(kind, folder)
        at = key("overlapped")
        with crew(4, patience=PATIENCE + 3 * appends) as workers:
            _open(workers, place)
            tick(0, 1)
            ids = [f"e{n}" for n in range(appends)]
            orders: list[Line] = []
            for n in range(len(workers)):
                mine = random.Random(n).sample(ids, appends)
                orders.append({"do": "overlap", "session": at.session, "ids": mine})
            answers = _all_at_once(workers, orders)
            if not _no_errors(outcome, answers, "appending"):
                return
        done = answers[0]["done"]
        for answer in answers:
            outcome.equal(answer["done"], done, "the numbers that a process was told")
            outcome.counts["appends"] += len(answer["done"])
        fresh = sum(answer["fresh"] for answer in answers)
        outcome.equal(fresh, appends, "how many events were said to be new")
        outcome.counts["of them new"] += fresh
        async with connect(place) as store:
            await _judge(store, outcome, at, done, "in the end")
            await _verified(store, outcome, "in the end")

    return _run(check)


# What the checks share


def _run(check: Callable[[Outcome], Awaitable[None]]) -> Outcome:
    async def main() -> Outcome:
        outcome = Outcome()
        try:
            await check(outcome)
        except (ChildFailed, HoldfastError) as error:
            outcome.problems.append(f"cut short: {error!r}")
        return outcome

    return asyncio.run(main())


def _open(workers: list[Worker], place: str) -> None:
    for answer in _all_at_once(workers, [{"do": "open", "url": place}] * len(workers)):
        if "error" in answer:
            raise ChildFailed(answer["text"])


def _all_at_once(workers: list[Worker], orders: list[Line]) -> list[Line]:
    """Tell all of them, who wait for it, then hear all."""
    for worker, order in zip(workers, orders, strict=True):
        worker.tell(order)
    return [worker.hear() for worker in workers]


def _no_errors(outcome: Outcome, answers: list[Line], when: str) -> bool:
    errors = [f"{when}: {answer['text']}" for answer in answers if "error" in answer]
    outcome.problems += errors
    return not errors


async def _judge(store: Store, outcome: Outcome, at: Key, done: dict[str, int], when: str) -> None:
    """The log holds what was acknowledged, under the numbers acknowledged, and nothing else."""
    events = await read_all(store, at)
    what = f"{when}, log {at.session}"
    outcome.equal([e.seq for e in events], list(range(1, len(events) + 1)), f"{what}: numbers")
    outcome.equal(len(events), len(done), f"{what}: how many events")
    found = {event.id: event.seq for event in events}
    outcome.equal(len(found), len(events), f"{what}: how many ids")
    wrong = {id: (found.get(id), seq) for id, seq in done.items() if found.get(id) != seq}
    outcome.equal(wrong, {}, f"{what}: acknowledged, but (stored, acknowledged) differ")
    outcome.equal(sorted(set(found) - set(done)), [], f"{what}: stored without acknowledgement")
    row = await store.row(at)
    outcome.equal(row and row.head, len(events), f"{what}: the head in the row")


async def _verified(store: Store, outcome: Outcome, when: str) -> None:
    outcome.problems += [f"{when}: {damage}" async for damage in store.verify()]
