"""Two processes serve one session: one drives, the other does everything else, live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Delta, Event, LeaseHeld, Store, connect
from holdfast.events import MessageCompleted, MessageInterrupted, RunResumed, RunStarted, RunWaiting
from holdfast.harness.session.session import Session, core_of
from holdfast.store import wall_clock
from holdfast.values.stream_items import Item

from ...crash.children import ROOT
from ...crash.places import url
from ...processes.crew import Worker
from ..crash.scene import Effects
from .stage import AT, LOOK, STORY, harness

PATIENCE = 40.0
MODULE = "tests.harness.processes.worker"

pytestmark = [
    pytest.mark.parametrize("kind", ["sqlite", "postgres"]),
    pytest.mark.parity("harness-kernel", 109),
]


class Stage:
    """A driver in a process of its own, and another harness here."""

    def __init__(self, kind: str, folder: Path, worker: Worker, ttl: float) -> None:
        self.url, self.folder, self.worker, self.ttl = url(kind, folder), folder, worker, ttl
        self.owner = worker.ask("open", url=self.url, folder=str(folder), ttl=ttl)["owner"]

    @contextlib.asynccontextmanager
    async def beside(self, text: str, run: str = "running") -> AsyncIterator[Session]:
        """The session as another process sees it, once the driver is at work on this."""
        await asyncio.to_thread(self.worker.ask, "post", text=text)
        async with connect(self.url) as store:
            await until(store, lambda row: row.run == run)
        async with (
            asyncio.timeout(PATIENCE),
            harness(self.url, self.folder, self.ttl) as other,
        ):
            yield await other.get_or_create(AT.session)

    @property
    def effects(self) -> list[str]:
        return [effect.tool for effect in Effects(self.folder / "effects").all()]

    def enough(self) -> None:
        (self.folder / "enough").touch()


@contextlib.contextmanager
def _worker() -> Iterator[Worker]:
    worker = Worker(patience=120.0, module=MODULE)
    with worker:
        worker.hear()
        yield worker


@pytest.fixture
def calm(kind: str, tmp_path: Path) -> Iterator[Stage]:
    """A stage whose driver keeps its lease, however busy the machine is."""
    with _worker() as worker:
        yield Stage(kind, tmp_path, worker, ttl=600)


@pytest.fixture
def stage(kind: str, tmp_path: Path) -> Iterator[Stage]:
    """A stage where a driver that is gone is soon replaced."""
    with _worker() as worker:
        yield Stage(kind, tmp_path, worker, ttl=1.5)


async def until(store: Store, true: Callable[..., bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while (row := await store.row(AT)) is None or not true(row):  # noqa: ASYNC110
            await asyncio.sleep(LOOK)


async def begun(session: Session) -> None:
    """Wait until a tool runs."""
    live = core_of(session).live
    await live.until(lambda: any(c.status == "started" for c in live.state.calls.values()))


async def held(store: Store, seconds: float) -> None:
    """Wait until somebody has had the lease for so long; nobody else gets it meanwhile."""
    while True:
        with pytest.raises(LeaseHeld) as refused:
            await store.acquire(AT, "thief", ttl=1.0)
        if wall_clock() > refused.value.since + 1000 * seconds:
            return
        await asyncio.sleep(LOOK)


async def seen(session: Session, over: Callable[[list[Item]], bool]) -> list[Item]:
    items: list[Item] = []
    listener = session.subscribe(after=0)
    async for item in listener:
        items.append(item)
        if over(items):
            break
    listener.close()
    return items


def events(items: list[Item], *kinds: str) -> list[Event]:
    return [item for item in items if isinstance(item, Event) and item.kind in kinds]


def texts(items: list[Item]) -> dict[str, str]:
    """The text of each message by its deltas, which leave nothing out and repeat nothing."""
    found: dict[str, str] = {}
    for item in items:
        if isinstance(item, Delta):
            assert item.offset == len(found.get(item.message, ""))
            found[item.message] = found.get(item.message, "") + item.text
    return found


def drivers(found: list[Event]) -> set[str | None]:
    return {event.payload(RunStarted).driver for event in found if event.kind == "run.started"} | {
        event.payload(RunResumed).driver for event in found if event.kind == "run.resumed"
    }


@pytest.mark.parity("user-demand", 9, 22, 67)
async def test_the_other_follows_live_and_queues(calm: Stage) -> None:
    async with calm.beside("Tell a story.") as session:
        await session.post("And then?")
        items = await seen(session, lambda items: len(events(items, "run.finished")) == 2)
        numbers = [item.seq for item in items if isinstance(item, Event)]
        assert numbers == list(range(1, len(numbers) + 1))
        story, after = events(items, "message.completed")
        assert story.payload(MessageCompleted).text == STORY
        assert after.payload(MessageCompleted).text == "Nothing."
        told = [item for item in items[: items.index(story)] if isinstance(item, Delta)]
        assert len(told) > 1
        assert STORY.startswith(texts(items)[story.id])
        assert [item for item in items[items.index(story) :] if _of(item, story.id)] == []
        assert drivers(await session.events()) == {calm.owner}


def _of(item: Item, message: str) -> bool:
    return isinstance(item, Delta) and item.message == message


@pytest.mark.parity("user-demand", 34, 67)
async def test_the_other_steers_while_a_tool_runs(calm: Stage) -> None:
    async with calm.beside("Work.") as session:
        await begun(session)
        await session.post("Faster.", busy="steer")
        calm.enough()
        assert (await session.wait()).text == "I hurry."
        assert len(await session.events(kinds=("run.started",))) == 1
        assert drivers(await session.events()) == {calm.owner}
        assert calm.effects == ["work"]


@pytest.mark.parity("user-demand", 34)
async def test_a_long_tool_call_keeps_its_driver(stage: Stage) -> None:
    async with stage.beside("Work.") as session:
        await begun(session)
        async with connect(stage.url) as store:
            await held(store, 2 * stage.ttl)
        stage.enough()
        assert (await session.wait()).text == "Worked."
        assert drivers(await session.events()) == {stage.owner}
        assert stage.effects == ["work"]


@pytest.mark.parity("user-demand", 21)
@pytest.mark.parity("mastra-session", 181)
async def test_the_other_aborts_and_the_partial_answer_is_kept(calm: Stage) -> None:
    async with calm.beside("Tell a story.") as session:
        await seen(session, lambda items: isinstance(items[-1], Delta))
        await session.abort("enough", actor="bob")
        result = await session.wait()
        assert result.status == "aborted"
        (kept,) = await session.events(kinds=("message.interrupted",))
        text = kept.payload(MessageInterrupted).text
        assert result.text == text
        assert STORY.startswith(text)
        assert 0 < len(text) < len(STORY)
        assert drivers(await session.events()) == {calm.owner}


@pytest.mark.parity("user-demand", 12)
async def test_the_other_approves(calm: Stage) -> None:
    async with calm.beside("Pay.", "waiting") as session:
        await session.approve(actor="bob")
        assert (await session.wait()).text == "Paid."
        assert calm.effects == ["pay"]


@pytest.mark.parity("harness-kernel", 96)
@pytest.mark.parity("user-demand", 10, 22, 70)
@pytest.mark.parity("mastra-session", 182)
async def test_a_killed_driver_is_replaced(stage: Stage) -> None:
    async with stage.beside("Tell a story.") as session:
        watching = asyncio.create_task(
            seen(session, lambda items: bool(events(items, "run.finished")))
        )
        await seen(session, lambda items: isinstance(items[-1], Delta))
        stage.worker.kill()
        result = await session.wait()
        assert (result.status, result.text) == ("done", STORY)
        items = await watching
        (resumed,) = events(items, "run.resumed")
        assert resumed.payload(RunResumed).reason == "driver_lost"
        (left,) = events(items, "message.interrupted")
        (whole,) = events(items, "message.completed")
        told = texts(items)
        assert told[left.id] == left.payload(MessageInterrupted).text
        assert told[whole.id] == STORY
        assert stage.owner not in drivers([resumed])


@pytest.mark.parity("user-demand", 67)
async def test_what_was_queued_is_delivered_once_though_the_driver_dies(stage: Stage) -> None:
    async with stage.beside("Work.") as session:
        await begun(session)
        numbers = [await session.post("And then?"), await session.post("And then?")]
        stage.worker.kill()
        await core_of(session).live.until(lambda: bool(core_of(session).live.state.pending))
        assert [item.seq for item in core_of(session).live.state.queue] == numbers
        await session.answer("worked", actor="bob")
        assert (await session.wait()).text == "Nothing."
        started = await session.events(kinds=("run.started",))
        assert [event.payload(RunStarted).inputs for event in started[1:]] == [[n] for n in numbers]
        said = [message.text for message in await session.transcript(roles=("assistant",))]
        assert said == ["I work.", "Worked.", "Nothing.", "Nothing."]


@pytest.mark.parity("user-demand", 7, 31, 34)
@pytest.mark.parity("mastra-session", 180)
async def test_a_frozen_driver_does_nothing_more_when_it_wakes(stage: Stage) -> None:
    async with stage.beside("Work.") as session:
        await begun(session)
        stage.worker.freeze()
        await core_of(session).live.until(lambda: bool(core_of(session).live.state.pending))
        (ask,) = await session.pending()
        assert ask.what == "external"
        stage.worker.thaw()
        stage.enough()
        await asyncio.to_thread(stage.worker.ask, "close")
        assert await asyncio.to_thread(stage.worker.hear) == {"closed": True}
        if stage.effects:
            await session.answer("worked", ask.id, actor="bob")
        else:
            await session.approve(ask.id, actor="bob")
        assert (await session.wait()).text == "Worked."
        assert stage.effects == ["work"]
        (end,) = await session.events(kinds=("tool.finished",))
        assert end.json()["result"] == "worked"
        resumed = await session.events(kinds=("run.resumed",))
        assert stage.owner not in drivers(resumed)


@pytest.mark.parity("user-demand", 71)
@pytest.mark.parity("mastra-session", 179)
async def test_an_orderly_end_hands_over_at_once(calm: Stage) -> None:
    async with calm.beside("Work.") as session:
        await begun(session)
        await asyncio.to_thread(calm.worker.ask, "close")
        calm.enough()
        assert (await session.wait()).text == "Worked."
        (left,) = await session.events(kinds=("run.waiting",))
        assert left.payload(RunWaiting).reason == "handover"
        assert len(drivers(await session.events())) == 2
        assert calm.effects == ["work"]
        assert await asyncio.to_thread(calm.worker.hear) == {"closed": True}


@pytest.mark.parity("harness-kernel", 95)
@pytest.mark.parity("user-demand", 12)
@pytest.mark.parity("mastra-session", 183)
async def test_approve_with_nothing_but_the_url_after_a_kill(stage: Stage, tmp_path: Path) -> None:
    await asyncio.to_thread(stage.worker.ask, "post", text="Pay.")
    async with connect(stage.url) as store:
        await until(store, lambda row: row.run == "waiting")
    stage.worker.kill()
    empty = tmp_path / "empty"
    empty.mkdir()
    orders = [
        {"do": "open", "url": stage.url, "folder": str(stage.folder), "ttl": 1.5},
        {"do": "approve", "actor": "carl"},
        {"do": "close"},
    ]
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", MODULE],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input="".join(json.dumps(order) + "\n" for order in orders).encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines[2] == {"by": "carl", "text": "Paid."}, ended.stderr
    assert stage.effects == ["pay"]
    assert list(empty.iterdir()) == []
