"""A server under load: how soon many viewers have what is appended, what readers that do not read
cost, and how many messages it takes a second."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import statistics
import time

from .harness import ASKED
from .measure import Bar, Figure, Result, race
from .served import Line, resident, served
from .settings import Settings
from .streams import WIDTH
from .turns import url

BODY = json.dumps({"content": ASKED}).encode()
STAMP = re.compile(rb"\d{%d}" % WIDTH)
APPENDED = re.compile(rb'"at":(\d+)\}\n')
LARGE = 20_000  # bytes of a message that readers who do not read have missed
EVENTS = 4  # that every viewer sees of a turn, at least
OURS, BARE = "Holdfast, a message", "a bare route that appends"
MESSAGE = "/v1/sessions/{}/messages"


class Seen:
    """How late a viewer had what was said, and what was appended, in ms."""

    def __init__(self) -> None:
        self.said: list[float] = []
        self.appended: list[float] = []

    def take(self, block: bytes) -> None:
        now, wall = time.perf_counter_ns(), time.time() * 1e3
        if b"event: delta" in block:
            self.said.extend((now - int(stamp)) / 1e6 for stamp in STAMP.findall(block))
        elif b"event: event" in block:
            self.appended.extend(wall - int(at) for at in APPENDED.findall(block + b"\n"))


async def view(port: int, session: str, seen: Seen, there: asyncio.Event) -> None:
    """Watch a session until its run has ended."""
    line = await Line.open(port)
    try:
        path = f"/v1/sessions/{session}/events?after=now"
        await line.send("GET", path, accept="text/event-stream")
        await line.head()
        while True:
            block = await line.reader.readuntil(b"\n\n")
            seen.take(block)
            if b"event: caught_up" in block:
                there.set()
            if b'"kind":"run.finished"' in block:
                return
    finally:
        await line.close()


async def watched(port: int, sessions: int, viewers: int) -> Seen:
    """All viewers of all sessions, while each answers one message."""
    seen, line = Seen(), await Line.open(port)
    names = [f"session-{time.time_ns()}-{n}" for n in range(sessions)]
    for name in names:
        await line.ask("PUT", f"/v1/sessions/{name}")
    there = [asyncio.Event() for _ in range(viewers)]
    watching = [
        asyncio.create_task(view(port, names[n % sessions], seen, there[n])) for n in range(viewers)
    ]
    await asyncio.gather(*(event.wait() for event in there))
    for name in names:
        await line.ask("POST", f"/v1/sessions/{name}/messages", BODY)
    await asyncio.gather(*watching)
    await line.close()
    return seen


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def server_viewers(settings: Settings) -> Result:
    """Many viewers of many sessions that stream, in one process: how late each hears."""
    sizes = settings.sizes
    title = f"{sizes.viewers} viewers over {sizes.viewed} streaming sessions"
    result = Result(name="server-viewers", title=title)
    late: list[float] = []
    typical: list[float] = []

    def run() -> float:
        seen = asyncio.run(watched(port, sizes.viewed, sizes.viewers))
        if len(seen.appended) < sizes.viewers * EVENTS:
            raise RuntimeError(f"viewers saw {len(seen.appended)} events")
        late.append(p99(seen.said))
        typical.append(statistics.median(seen.said))
        return p99(seen.appended)

    name = "append to viewer, p99"
    chunks, spacing = sizes.chunks, sizes.spacing
    with (
        settings.folder() as folder,
        served("ours", url("sqlite", folder), chunks=chunks, spacing=spacing) as (port, _),
    ):
        values, absent = race({name: run}, rounds=min(settings.rounds, 5), step=settings.step)
    why = absent.get(name, "")
    found = {name: values.get(name, []), "word to viewer, p99": [] if why else late[1:]}
    for what, each in found.items():
        result.bars.append(
            Bar(name=what, way="most", bar=150.0, unit="ms", values=each, absent=why)
        )
    note = f"{sizes.chunks} words a session, one every {sizes.spacing * 1e3:g} ms"
    median = Figure(
        name="word to viewer, median", unit="ms", values=typical[1:], absent=why, note=note
    )
    result.figures.append(median)
    return result


# Readers that do not read


async def stall(port: int, session: str) -> socket.socket:
    """A viewer who has asked for a session, and reads nothing."""
    loop, viewer = asyncio.get_running_loop(), socket.socket()
    viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    viewer.setblocking(False)
    await loop.sock_connect(viewer, ("127.0.0.1", port))
    ask = f"GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    await loop.sock_sendall(viewer, f"{ask}accept: text/event-stream\r\n\r\n".encode())
    return viewer


async def missed(port: int, pid: int, stalled: int, messages: int) -> float:
    """How much the server grows while so many viewers read nothing of so many messages, in MB."""
    line, session = await Line.open(port), f"session-{time.time_ns()}"
    await line.ask("PUT", f"/v1/sessions/{session}")
    large = json.dumps({"content": "x" * LARGE}).encode()

    async def talk(count: int) -> None:
        for _ in range(count):
            await line.ask("POST", f"/v1/sessions/{session}/messages?wait=true", large)

    await talk(messages)
    before = resident(pid)
    viewers = [await stall(port, session) for _ in range(stalled)]
    await talk(messages)
    grown = resident(pid) - before
    for viewer in viewers:
        viewer.close()
    await line.close()
    return grown


def server_stalled(settings: Settings) -> Result:
    """What readers cost the server that do not read."""
    sizes = settings.sizes
    result = Result(name="server-stalled", title=f"{sizes.stalled} readers that do not read")

    def run(stalled: int) -> float:
        return asyncio.run(missed(port, pid, stalled, sizes.large))

    with_them, without = f"grown with {sizes.stalled} of them", "grown without"
    runs = {with_them: lambda: run(sizes.stalled), without: lambda: run(0)}
    with settings.folder() as folder, served("ours", url("sqlite", folder)) as (port, pid):
        values, absent = race(runs, rounds=min(settings.rounds, 3), step=settings.step)
    note = f"while {sizes.large} messages of {LARGE // 1000} KB are sent and answered"
    for name in runs:
        each, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="MB", values=each, absent=why, note=note))
    failed = absent.get(with_them, "") or absent.get(without, "")
    more = (
        [] if failed else [a - b for a, b in zip(values[with_them], values[without], strict=True)]
    )
    result.bars.append(
        Bar(name="more with them", way="most", bar=40.0, unit="MB", values=more, absent=failed)
    )
    return result


# Messages a second


async def posted(port: int, path: str, sessions: int, messages: int) -> float:
    """Requests a second, so many sessions at a time, each one message after the other."""
    names = [f"session-{time.time_ns()}-{n}" for n in range(sessions)]
    lines = [await Line.open(port) for _ in range(sessions)]

    async def talk(n: int, count: int) -> None:
        for _ in range(count):
            status = await lines[n].ask("POST", path.format(names[n]), BODY)
            if status >= 300:
                raise RuntimeError(f"a message was answered with {status}")

    for name, line in zip(names, lines, strict=True):
        await line.ask("PUT", f"/v1/sessions/{name}")  # which a bare server does not know
    await asyncio.gather(*(talk(n, 3) for n in range(sessions)))
    start = time.perf_counter()
    await asyncio.gather(*(talk(n, messages) for n in range(sessions)))
    took = time.perf_counter() - start
    if path == MESSAGE:  # what was accepted is answered before anything else is measured
        last = f"{MESSAGE}?wait=true"
        await asyncio.gather(
            *(lines[n].ask("POST", last.format(names[n]), BODY) for n in range(sessions))
        )
    for line in lines:
        await line.close()
    return sessions * messages / took


def server_send(settings: Settings) -> Result:
    """Messages a second that a server takes, beside a bare route on the same store."""
    sizes = settings.sizes
    result = Result(name="server-send", title="Messages a second over HTTP, an instant model")

    def run(port: int, path: str) -> float:
        return asyncio.run(posted(port, path, sizes.together, sizes.posts))

    with (
        settings.folder() as folder,
        settings.folder() as other,
        served("ours", url("sqlite", folder)) as (ours, _),
        served("bare", url("sqlite", other)) as (bare, _),
    ):
        runs = {
            OURS: lambda: run(ours, MESSAGE),
            f"{OURS} and its answer": lambda: run(ours, f"{MESSAGE}?wait=true"),
            BARE: lambda: run(bare, "/append/{}"),
        }
        values, absent = race(runs, rounds=min(settings.rounds, 5), step=settings.step)
    note = f"{sizes.together} sessions at once, {sizes.posts} messages each"
    for name in runs:
        each, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="/s", values=each, absent=why, note=note))
    result.compare(OURS, BARE, "least", 0.5)
    return result
