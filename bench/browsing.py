"""The web console in a browser: a long session, a step back in it, a long list, and how much a
page loads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import holdfast
from holdfast import NewEvent

from . import finding
from .consoles import throughput
from .entries import turn
from .measure import Absent, Bar, Result, race
from .served import served
from .settings import Settings
from .turns import url

LONG = "long"
TURNS_APPENDED = 100  # at once
STEPS = 10  # in a round
PATIENCE = 60.0  # seconds; only a hang takes so long
# Milliseconds since the page was asked for, when the first element of a selector is painted.
SHOWN = """(selector) => new Promise((done) => {
  const look = () => document.querySelector(selector)
    ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""
# Milliseconds from a step back to the frame with the state before it.
STEP = """() => new Promise((done) => {
  const shown = () => Number(document.querySelector('.session').dataset.at);
  const wanted = shown() - 1;
  const start = performance.now();
  dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}));
  const look = () => shown() === wanted
    ? done(performance.now() - start) : requestAnimationFrame(look);
  look();
})"""
# Milliseconds from a click on a link to a filtered list to the frame with it.
FILTER = """(href) => new Promise((done) => {
  const link = document.body.appendChild(Object.assign(document.createElement('a'), {href}));
  const start = performance.now();
  link.click();
  const look = () => document.querySelector('.choices .pill') && document.querySelector('.list li')
    ? done(performance.now() - start) : requestAnimationFrame(look);
  requestAnimationFrame(look);
})"""
# Kilobytes of the page and its files, not compressed.
WEIGHT = """() => performance.getEntries()
  .filter((one) => one.entryType === 'navigation' || one.name.includes('/static/'))
  .reduce((sum, one) => sum + one.decodedBodySize, 0) / 1024"""


async def fill(place: str, events: int, sessions: int) -> None:
    """Create one session with many events, and many sessions."""
    await finding.build(place, sessions)
    async with holdfast.connect(place) as store:
        key = holdfast.key(LONG)
        created = NewEvent.of("session.created", {"agent": "shop", "title": "Long"})
        await store.append(key, [created], create=True)
        for start in range(0, events // 4, TURNS_APPENDED):
            turns = [turn(start + number).events() for number in range(TURNS_APPENDED)]
            await store.append(key, [event for events in turns for event in events])


@asynccontextmanager
async def opened(port: int) -> AsyncGenerator[Callable[[], Awaitable[Any]], None]:
    """A browser; gives pages in windows of their own, with nothing cached."""
    try:
        from tests.console.browser import launched
    except ImportError as error:
        raise Absent(f"{error.name} is not installed (requirements/test.txt has it)") from None
    async with launched() as browser:

        async def page() -> Any:
            return await browser.new_page(base_url=f"http://127.0.0.1:{port}")

        yield page


async def visited(page: Callable[[], Awaitable[Any]], path: str, script: str, *told: Any) -> float:
    """Open a page, and run a script in it that measures."""
    one = await page()
    try:
        await one.goto(path, wait_until="commit")
        return float(await one.evaluate(script, *told))
    finally:
        await one.close()


async def stepped(page: Callable[[], Awaitable[Any]], at: int) -> float:
    """How long a step back takes in the middle of the long session, on average."""
    one = await page()
    try:
        await one.goto(f"/console/sessions/{LONG}?at={at}")
        await one.evaluate(SHOWN, f'.session[data-at="{at}"]')
        return float(sum([await one.evaluate(STEP) for _ in range(STEPS)])) / STEPS
    finally:
        await one.close()


async def filtered(page: Callable[[], Awaitable[Any]]) -> float:
    """How long a filter of the list takes."""
    one = await page()
    try:
        await one.goto("/console")
        await one.evaluate(SHOWN, ".list li")
        return float(await one.evaluate(FILTER, "/console?label=vip"))
    finally:
        await one.close()


async def weighed(page: Callable[[], Awaitable[Any]]) -> float:
    """How much the page of a session loads."""
    one = await page()
    try:
        await one.goto(f"/console/sessions/{LONG}", wait_until="networkidle")
        return float(await one.evaluate(WEIGHT))
    finally:
        await one.close()


def _within(runner: asyncio.Runner, ask: Callable[[], Awaitable[float]]) -> float:
    return runner.run(asyncio.wait_for(ask(), PATIENCE))


def console(settings: Settings) -> Result:
    """The console in a real browser: first paint, steps of the scrub bar, lists, page weight; and
    what many open consoles cost the server."""
    sizes = settings.sizes
    events, many = sizes.browsed, sizes.many
    result = Result(name="console", title=f"The console: {events:,} events, {many:,} sessions")
    paint, step = f"first paint of {events:,} events", "step of the scrub bar"
    listed, chosen, weight = f"list of {many:,}, first load", "a filter of it", "page weight"
    with settings.folder() as folder, asyncio.Runner() as runner:
        place = url("sqlite", Path(folder))
        runner.run(fill(place, events, many))
        with served("ours", place) as (port, _):
            browser = opened(port)
            try:
                page = runner.run(browser.__aenter__())
            except Absent as reason:
                result.notes.append(str(reason))
                return result
            at = events // 2
            asked: dict[str, Callable[[], Any]] = {
                paint: lambda: visited(page, f"/console/sessions/{LONG}", SHOWN, ".message"),
                step: lambda: stepped(page, at),
                listed: lambda: visited(page, "/console", SHOWN, ".list li"),
                chosen: lambda: filtered(page),
                weight: lambda: weighed(page),
            }
            runs = {name: partial(_within, runner, ask) for name, ask in asked.items()}
            values, absent = race(runs, rounds=min(settings.rounds, 5), step=settings.step)
            runner.run(browser.__aexit__(None, None, None))
    bars = {paint: 1000.0, step: 100.0, listed: 300.0, chosen: 300.0, weight: 150.0}
    for name, bar in bars.items():
        unit = "KB" if name == weight else "ms"
        found, why = values.get(name, []), absent.get(name, "")
        result.bars.append(Bar(name=name, way="most", bar=bar, unit=unit, values=found, absent=why))
    throughput(settings, result)
    return result
