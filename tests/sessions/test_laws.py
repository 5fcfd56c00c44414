"""Laws: whatever is done to sessions, in whatever order, their rows follow the table of moves,
their history tells it, and no surface has two holders."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import NewEvent, PhaseError, Row, Scope, Sessions, Store, SurfaceTaken
from holdfast.log.catalog import MOVES, SURFACE_CLAIM, surface_name

from .places import OPEN, emptied
from .scene import Clock, row

KINDS = ["memory", "sqlite", "postgres", "mongodb", "file"]
# Of the examples that the profile asks for, so many: they cost more on a server.
SHARE = {"memory": 2.0, "sqlite": 0.5, "file": 0.5, "postgres": 0.25, "mongodb": 0.25}
VERBS = ("touch", "suspend", "resume", "expire", "reopen")
tables: dict[str, dict[str, str]] = MOVES  # type: ignore[assignment]

# What a raw event moves, if anything.
RAW: dict[str, tuple[str, Any, str | None]] = {
    "raw touch": ("session.touched", {}, "touch"),
    "raw suspend": ("session.suspended", {}, "suspend"),
    "raw resume": ("session.resumed", {"reason": "r"}, "resume"),
    "raw expire": ("session.expired", {}, "expire"),
    "raw reopen": ("session.reopened", {}, "reopen"),
    "message": ("message.received", {"text": "hi"}, "touch"),
    "answered": ("pending.settled", {"id": "p", "outcome": "answered"}, "revive"),
    "lapsed": ("pending.settled", {"id": "p", "outcome": "expired"}, None),
    "opened": ("pending.opened", {"id": "p", "what": "question"}, None),
    "done": ("run.finished", {"status": "done"}, None),
    "unknown": ("session.vanished", {"why": 1}, None),
    "unfit": ("session.expired", {"reason": 17}, None),
}


def examples(kind: str) -> int:
    assert settings.default is not None
    return int(settings.default.max_examples * SHARE[kind])


class Step(NamedTuple):
    """Something done to the `session`-th session, some seconds after the last step."""

    do: str
    session: int
    place: int
    later: int


def steps(*words: str) -> st.SearchStrategy[list[Step]]:
    few = st.integers(0, 2)
    return st.lists(st.builds(Step, st.sampled_from(words), few, few, few), max_size=14)


@contextmanager
def on(kind: str, folder: Path) -> Iterator[Callable[[Callable[..., Awaitable[None]]], None]]:
    """Runs examples on one store, each in a tenant of its own."""
    clock, numbers = Clock(), itertools.count()

    async def open_it() -> tuple[Any, Store]:
        place = emptied(kind, folder)
        return place, await OPEN[kind](await place.__aenter__(), clock)

    async def close_it(place: Any, store: Store) -> None:
        await store.aclose()
        await place.__aexit__(None, None, None)

    with asyncio.Runner() as runner:
        place, store = runner.run(open_it())

        def run(example: Callable[..., Awaitable[None]]) -> None:
            sessions = Sessions(store, clock=clock, tenant=f"t{next(numbers)}", expiry=4)

            async def whole() -> None:
                await example(sessions, clock)
                for n in range(3):
                    scope = Scope(sessions.tenant, f"s{n}")
                    assert [found async for found in store.verify(scope)] == []

            runner.run(whole())

        try:
            yield run
        finally:
            runner.run(close_it(place, store))


class Phases:
    """What the table of moves makes of one session."""

    def __init__(self) -> None:
        self.phase = "created"
        self.changed: int | None = None
        self.history: list[tuple[str, str, int]] = []

    def move(self, move: str, at: int) -> None:
        self.to(tables[move].get(self.phase, self.phase), at)

    def to(self, phase: str, at: int) -> None:
        if phase != self.phase:
            self.history.append((self.phase, phase, at))
            self.phase, self.changed = phase, at


async def verb(sessions: Sessions, do: str, model: Phases, at: int) -> None:
    before = await row(sessions, "s0")
    if model.phase in tables[do]:
        after = await getattr(sessions, do)("s0", reason=do)
        model.move(do, at)
        assert after == await row(sessions, "s0")
        if do != "touch" and after.phase == before.phase:
            assert after == before  # nothing was written
    else:
        with pytest.raises(PhaseError) as caught:
            await getattr(sessions, do)("s0")
        assert (caught.value.phase, caught.value.move) == (model.phase, do)
        assert await row(sessions, "s0") == before


async def sweep(sessions: Sessions, model: Phases, at: int) -> None:
    before = await row(sessions, "s0")
    swept = await sessions.sweep_stale()
    if swept.suspended:
        assert before.phase in ("created", "active")
        assert before.active + 3 < at // 1000
        model.to("suspended", at)
    elif swept.expired:
        assert (before.phase, (before.changed or 0) // 1000 + 4 < at // 1000) == ("suspended", True)
        model.to("expired", at)
    else:
        assert await row(sessions, "s0") == before
        assert before.stale_at is None or before.stale_at >= at // 1000
    if swept.suspended or swept.expired:
        assert (before.pending, before.due) == ({}, None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_follows_the_table_and_its_history_tells_it(kind: str, tmp_path: Path) -> None:
    async def example(sessions: Sessions, clock: Clock, todo: list[Step]) -> None:
        made = await sessions.create("s0", user="ann", ttl=3)
        model = Phases()
        for step in todo:
            at = clock.go(step.later)
            if step.do in VERBS:
                await verb(sessions, step.do, model, at)
            elif step.do == "sweep":
                await sweep(sessions, model, at)
            else:
                event, payload, move = RAW[step.do]
                await sessions.store.append(made.key, [NewEvent.of(event, payload)])
                if move is not None:
                    model.move(move, at)
            seen = await row(sessions, "s0")
            assert (seen.phase, seen.changed) == (model.phase, model.changed)
        told = [t async for t in sessions.transitions("s0", wait=False)]
        assert [(t.before, t.phase, t.at) for t in told] == model.history
        if told:
            middle = told[len(told) // 2]
            rest = [t async for t in sessions.transitions("s0", after=middle.seq, wait=False)]
            assert rest == told[len(told) // 2 + 1 :]

    with on(kind, tmp_path) as run:

        @settings(max_examples=examples(kind))
        @given(steps(*VERBS, *VERBS, *RAW, "sweep"))
        def law(todo: list[Step]) -> None:
            run(lambda sessions, clock: example(sessions, clock, todo))

        law()


PLACES = [("web", "1"), ("web", "2"), ("slack", "1")]


class Bindings:
    """Which session has which surface, in which order, and which sessions are over."""

    def __init__(self) -> None:
        self.shown: dict[str, list[tuple[str, str]]] = {f"s{n}": [] for n in range(3)}
        self.over: set[str] = set()

    def holder(self, place: tuple[str, str]) -> str | None:
        live = (id for id in self.shown if id not in self.over and place in self.shown[id])
        return next(live, None)

    def free(self, place: tuple[str, str]) -> None:
        """A live holder loses it; one that is over shows it still, until it comes back."""
        if (holder := self.holder(place)) is not None:
            self.shown[holder].remove(place)

    def reopen(self, id: str) -> None:
        self.over.discard(id)
        others = [other for other in self.shown if other != id and other not in self.over]
        taken = {place for other in others for place in self.shown[other]}
        self.shown[id] = [place for place in self.shown[id] if place not in taken]


async def bind(sessions: Sessions, step: Step, model: Bindings) -> None:
    id, place = f"s{step.session}", PLACES[step.place]
    if step.do in ("expire", "reopen"):
        if (step.do == "expire") == (id not in model.over):
            await getattr(sessions, step.do)(id)
            (model.over.add if step.do == "expire" else model.reopen)(id)
        return
    if id in model.over:
        with pytest.raises(PhaseError):
            await getattr(sessions, f"{step.do.removesuffix(' away')}_surface")(id, *place)
    elif step.do == "detach":
        await sessions.detach_surface(id, *place)
        if place in model.shown[id]:
            model.shown[id].remove(place)
    elif step.do == "attach" and model.holder(place) not in (None, id):
        with pytest.raises(SurfaceTaken) as caught:
            await sessions.attach_surface(id, *place)
        assert caught.value.session == model.holder(place)
    else:
        await sessions.attach_surface(id, *place, move=step.do == "attach away")
        if place not in model.shown[id]:
            model.free(place)
            model.shown[id].append(place)


@pytest.mark.parametrize("kind", KINDS)
def test_a_surface_never_has_two_live_sessions(kind: str, tmp_path: Path) -> None:
    async def example(sessions: Sessions, clock: Clock, todo: list[Step]) -> None:
        model = Bindings()
        rows: list[Row] = [await sessions.create(f"s{n}", user="ann") for n in range(3)]
        for step in todo:
            await bind(sessions, step, model)
            rows = [await row(sessions, f"s{n}") for n in range(3)]
            for found in rows:
                names = [surface_name(*place) for place in model.shown[found.session]]
                assert list(found.surfaces) == names
                assert (found.phase == "expired") == (found.session in model.over)
        for found in rows:
            claims = set(await sessions.store.claims(found.scope))
            shown = {SURFACE_CLAIM + name for name in found.surfaces}
            assert claims <= shown
            assert found.session in model.over or claims == shown

    with on(kind, tmp_path) as run:

        @settings(max_examples=examples(kind))
        @given(steps("attach", "attach", "attach away", "detach", "expire", "reopen"))
        def law(todo: list[Step]) -> None:
            run(lambda sessions, clock: example(sessions, clock, todo))

        law()
