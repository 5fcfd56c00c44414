"""What processes on a server may count on while it and the ways to it fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import HoldfastError, NewEvent, Store, connect
from holdfast.events import key
from holdfast.testing.samples import read_all
from tests import servers

from ..crash.children import ChildFailed, Line
from ..crash.outcome import Outcome, Tick, quiet
from ..processes.crew import crew
from .worker import LAST

PATIENCE = 240.0  # seconds, above the storm itself, until a worker hangs
SHARED = "shared"  # the session that all append to, and that is followed
MODULE = "tests.faults_net.worker"


def storm(
    kind: str,
    folder: Path,
    *,
    processes: int,
    sessions: int,
    seconds: float,
    restarts: int,
    tick: Tick = quiet,
) -> Outcome:
    """Processes append to sessions of their own and a shared one, and one more follows that,
    while all connections are cut every second and the server is killed and started again: every
    acknowledged event is there once, under its number, and all come to their end."""

    async def check(outcome: Outcome) -> None:
        with servers.faulty(kind) as place:
            url = place.url(folder)
            async with connect(url) as store:
                await store.append(key(SHARED), [NewEvent.of("note.made", id="first")], create=True)
                with crew(processes + 1, patience=PATIENCE + seconds, module=MODULE) as workers:
                    for worker in workers:
                        _said(worker.ask("open", url=url))
                    follower, *appenders = workers
                    _said(follower.ask("follow", session=SHARED))
                    for n, worker in enumerate(appenders):
                        own = [f"own-{n}-{m}" for m in range(sessions - 1)]
                        worker.order(
                            "storm", name=f"p{n}", sessions=[SHARED, *own], seconds=seconds
                        )
                    with place.wire.cutting(every=1.0), _restarting(place, restarts, seconds, tick):
                        answers = [
                            _said(await asyncio.to_thread(worker.hear)) for worker in appenders
                        ]
                    outcome.counts["connections cut"] += place.wire.cuts
                    outcome.counts["restarts"] += restarts
                    await store.append(key(SHARED), [NewEvent.of("note.made", id=LAST)])
                    followed = _said(await asyncio.to_thread(follower.hear))
                await _judge(store, outcome, answers, followed)

    return _run(check)


@contextmanager
def _restarting(place: servers.Faulty, times: int, seconds: float, tick: Tick) -> Iterator[None]:
    """Kill the server and start it again so often, spread over the time."""
    over = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        for number in range(times):
            tick(number, times)
            over.wait(seconds / (times + 1))
            try:
                place.server.restart()
            except BaseException as error:
                failures.append(error)

    thread = threading.Thread(target=run, name="restarting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def _said(answer: Line) -> Line:
    if "error" in answer:
        raise ChildFailed(answer["text"])
    return answer


async def _judge(store: Store, outcome: Outcome, answers: list[Line], followed: Line) -> None:
    done: dict[str, dict[str, int]] = {}
    for answer in answers:
        outcome.counts.update(answer["counts"])
        for session, acknowledged in answer["done"].items():
            outcome.counts["events"] += len(acknowledged)
            done.setdefault(session, {}).update(acknowledged)
    for session, acknowledged in done.items():
        events = await read_all(store, key(session))
        found = {event.id: event.seq for event in events}
        numbers = list(range(1, len(events) + 1))
        outcome.equal([event.seq for event in events], numbers, f"{session}: numbers")
        outcome.equal(len(found), len(events), f"{session}: how many ids")
        wrong = {
            id: (found.get(id), seq) for id, seq in acknowledged.items() if found.get(id) != seq
        }
        outcome.equal(wrong, {}, f"{session}: acknowledged, but (stored, acknowledged) differ")
        strange = sorted(set(found) - set(acknowledged) - {"first", LAST})
        outcome.equal(strange, [], f"{session}: stored without acknowledgement")
        if session == SHARED:
            outcome.equal(
                followed["seen"], [[event.seq, event.id] for event in events], "what was followed"
            )
            outcome.equal(followed["caught_up"], 1, "how often the follower had caught up")
    outcome.problems += [f"in the end: {damage}" async for damage in store.verify()]


def _run(check: Callable[[Outcome], Awaitable[None]]) -> Outcome:
    async def main() -> Outcome:
        outcome = Outcome()
        try:
            await check(outcome)
        except (ChildFailed, HoldfastError) as error:
            outcome.problems.append(f"cut short: {error!r}")
        return outcome

    return asyncio.run(main())
