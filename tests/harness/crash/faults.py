"""An abort at every write of a run, and a store that fails at every write: the run goes on or
ends as it was asked to, nothing is lost or doubled, and the session stays usable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from holdfast import Event, Harness, NewEvent, SessionNotFound, Store, StoreUnavailable, connect
from holdfast.events import Key
from holdfast.harness.faults import Attempts, ErrorPolicy, Retry
from holdfast.harness.loop.tool_call import STOPPED
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.testing.faults import Fail, Fault, FaultyStore
from holdfast.testing.samples import read_all

from ...crash.outcome import Outcome, Tick, quiet
from ...crash.places import url
from .person import Person, judge
from .scene import (
    ASKED,
    ENDED,
    SESSION,
    THANKS,
    WELCOME,
    Effects,
    agent,
    doubled,
    illegal,
    model,
    place,
    said,
)

TTL = 0.4
LOOK = 0.02
PATIENCE = 40.0  # seconds that one round may take
ENOUGH = 5  # problems: then the rest is left out
AT_ONCE = 6
OUTAGE = 7  # calls that fail in a row: more than a driver tries
POLICY = ErrorPolicy(retry=Retry(storage=Attempts(3, backoff=0.01)))
OTHERS = (
    *("acquire", "release", "renew", "put_draft"),
    *("row", "read", "follow", "drafts", "runnable", "load_snapshot"),
)

Round: TypeAlias = Callable[["Served", Outcome, str], Awaitable[None]]


class Served:
    """The scene in one process: a harness on a store that fails as planned, and a person."""

    def __init__(self, inner: Store, folder: Path, tenant: str, delay: float) -> None:
        self.inner, self.at = inner, place(tenant)
        self.effects = Effects(folder / f"{tenant}.effects")
        self.person = Person(inner, tenant, self.effects)
        self.store = FaultyStore(inner)
        self.harness = Harness(
            agent(self.effects),
            default_model=model(delay),
            store=self.store,
            tenant=tenant,
            ttl=TTL,
            error_policy=POLICY,
            logging=LogConfig(level="silent"),
        )

    async def say(self, text: str) -> None:
        """Send a message as a client does that tries again."""
        while True:
            try:
                session = await self.harness.get_or_create(SESSION)
                await session.post(text, key=text)
            except StoreUnavailable:
                await asyncio.sleep(LOOK)
            else:
                return

    async def until_ended(self) -> str:
        while (row := await self.inner.row(self.at)) is None or row.run not in ENDED:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        return str(row.run)

    async def whole(self) -> str:
        """The conversation, to its end."""
        await self.say(ASKED)
        ended = asyncio.create_task(self.until_ended())
        await self.person.answer(lambda: not ended.done())
        return await ended

    async def events(self) -> list[Event]:
        return await read_all(self.inner, self.at)


def store_errors(
    kind: str,
    folder: Path,
    *,
    methods: Sequence[str] = ("append",),
    times: Sequence[int] = (1, OUTAGE),
    every: int = 1,
    delay: float = 0.0,
    tick: Tick = quiet,
) -> Outcome:
    """The store fails at every call of these methods, before it or after: once, and for a while.
    The conversation comes to its end as if nothing had happened."""

    def rounds(calls: dict[str, int]) -> Sequence[tuple[str, Round]]:
        return [
            (
                f"{'lost reply' if after else 'failed'} {method} {call}, {many} times",
                partial(_failing, method=method, call=call, after=after, times=many),
            )
            for method in methods
            for call in range(1, calls.get(method, 0) + 1)
            for after in (False, True)
            for many in times
        ][::every]

    return asyncio.run(_all(kind, folder, rounds, delay, tick))


def aborts(kind: str, folder: Path, *, every: int = 1, tick: Tick = quiet) -> Outcome:
    """Somebody aborts before or after every append. The run ends, each call has one outcome, and
    the next message is answered."""

    def rounds(calls: dict[str, int]) -> Sequence[tuple[str, Round]]:
        return [
            (
                f"abort {'after' if after else 'before'} append {call}",
                partial(_aborted, call=call, after=after),
            )
            for call in range(1, calls["append"] + 1)
            for after in (False, True)
        ][::every]

    return asyncio.run(_all(kind, folder, rounds, 0.0, tick))


async def _all(
    kind: str,
    folder: Path,
    rounds: Callable[[dict[str, int]], Sequence[tuple[str, Round]]],
    delay: float,
    tick: Tick,
) -> Outcome:
    outcome = Outcome()
    async with connect(url(kind, folder)) as inner:
        whole = Served(inner, folder, "whole", delay)
        async with whole.harness:
            outcome.equal(await whole.whole(), "done", "unharmed")
        judge(outcome, "unharmed", await whole.events(), whole.person)
        todo = rounds(dict(whole.store.calls))
        outcome.expect(todo, "nothing is done")
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, when: str, round: Round) -> None:
            served = Served(inner, folder, f"t{number}", delay)
            async with gate:
                if len(outcome.problems) > ENOUGH:
                    return
                try:
                    async with asyncio.timeout(PATIENCE), served.harness:
                        await round(served, outcome, when)
                except TimeoutError:
                    events = await served.events()
                    kinds = [event.kind for event in events]
                    outcome.problems.append(f"{when}: not over after {PATIENCE:g} s: {kinds}")
            tick(number, len(todo))

        await asyncio.gather(*(one(n, when, round) for n, (when, round) in enumerate(todo)))
    return outcome


async def _failing(
    served: Served,
    outcome: Outcome,
    when: str,
    *,
    method: str,
    call: int,
    after: bool,
    times: int,
) -> None:
    served.store.plan = [
        Fail(method=method, call=n, after=after) for n in range(call, call + times)
    ]
    outcome.equal(await served.whole(), "done", when)
    outcome.counts["failures"] += sum(
        fault.call <= served.store.calls[method] for fault in served.store.plan
    )
    judge(outcome, when, await served.events(), served.person)
    outcome.counts["unknown"] += served.person.asked
    if times == 1:
        outcome.equal(served.person.asked, 0, f"{when}: questions what happened")
    elif served.person.asked:
        outcome.counts[f"unknown {when}"] += served.person.asked


@dataclass(eq=False, kw_only=True)
class Abort(Fault):
    """Somebody in another process aborts the run."""

    store: Store
    at: Key

    async def strike(self) -> None:
        with contextlib.suppress(SessionNotFound):
            await self.store.append(self.at, [NewEvent.of("abort.requested")])


async def _aborted(served: Served, outcome: Outcome, when: str, *, call: int, after: bool) -> None:
    abort = Abort(method="append", call=call, after=after, store=served.inner, at=served.at)
    served.store.plan = [abort]
    status = await served.whole()
    served.store.plan = []  # a run may take an append less than the one that was counted
    events = await served.events()
    kinds = [event.kind for event in events]
    meant = "abort.requested" in kinds and "run.started" in kinds[: kinds.index("abort.requested")]
    if meant and "run.finished" not in kinds[: kinds.index("abort.requested")]:
        outcome.counts["aborts"] += 1
        outcome.equal(status, "aborted", when)
    else:
        outcome.counts["too early or too late"] += 1
        outcome.equal(status, "done", when)
    await served.say(THANKS)
    session = await served.harness.get_or_create(SESSION)
    outcome.equal((await session.wait()).text, WELCOME, f"{when}: the next answer")
    _settled(outcome, when, await served.events(), served.effects)


def _settled(outcome: Outcome, when: str, events: list[Event], effects: Effects) -> None:
    outcome.equal(illegal(events), None, f"{when}: the prompt")
    outcome.equal(doubled(events), [], f"{when}: twice")
    calls = [call for _, _, calls in said(events) for call in calls]
    outcome.equal([call for call in calls if call[2] == "open"], [], f"{when}: open calls")
    # A plain function cannot be stopped in its thread: then nobody knows, and that is said.
    lost = [call for call in calls if call[2] == "unknown" and STOPPED not in str(call[3])]
    outcome.equal(lost, [], f"{when}: unknown calls")
    done = effects.all()
    outcome.equal(len({e.key for e in done}), len(done), f"{when}: effects by key")
    begun = {e.json()["call"] for e in events if e.kind == "tool.started"}
    outcome.expect({e.key for e in done} <= begun, f"{when}: an effect without an intent")
    fine = {e.json()["call"] for e in events if e.kind == "tool.finished" and _fine(e)}
    outcome.expect(fine <= {e.key for e in done}, f"{when}: a success without an effect")


def _fine(event: Event) -> bool:
    data: dict[str, Any] = event.json()
    return bool(data.get("outcome", "ok") == "ok")
