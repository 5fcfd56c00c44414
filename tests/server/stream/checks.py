"""What readers of a stream may count on while the events are large, most of them do not read, and
the server is killed: each event once and in order; and that the server's memory stays bounded."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import msgspec

from holdfast import NewEvent, connect, key
from holdfast.log.events.defaults import complete
from holdfast.store import Store
from holdfast.testing.samples import read_all

from ...crash.outcome import Outcome, Tick, quiet
from ...crash.places import url
from .crowd import Reader, Server, told, until

MORE = 300  # MB that a server may grow by
STALL = 2.0  # seconds after which a reader is cut that takes nothing
PAUSE = 0.005  # seconds that a slow reader takes for each piece


def silent_readers(
    kind: str,
    folder: Path,
    *,
    silent: int,
    slow: int,
    events: int,
    kilobytes: int,
    kills: int,
    tick: Tick = quiet,
) -> Outcome:
    """Silent and slow readers of one session, so many large events, and kills in between."""
    outcome = Outcome()
    where = url(kind, folder)
    with Server(folder, where, stall_seconds=STALL) as server:
        server.ask("PUT", "/sessions/s")
        readers = [Reader(server, "s") for _ in range(silent + slow)]
        for reader in readers:
            reader.connect()
            reader.catch_up()
        going = threading.Event()
        others = [threading.Thread(target=_read_on, args=(one, going)) for one in readers[silent:]]
        for thread in others:
            thread.start()
        try:
            writing = Writing(where, server, readers[:silent], outcome, tick)
            asyncio.run(writing.write(events, kilobytes, kills))
            until(lambda: all(one.cut for one in readers[:silent]), "a silent reader was not cut")
            outcome.expect(server.ask("GET", "/health").status_code == 200, "health did not answer")
        finally:
            going.set()
            for thread in others:
                thread.join()
        log = asyncio.run(_log(where))
        _resume(readers, log, outcome)
        _weigh(server, outcome)
    return outcome


def _read_on(reader: Reader, going: threading.Event) -> None:
    """Read slowly, over one connection after the other."""
    reader.pause = PAUSE
    while not going.is_set():
        reader.read_some()
    reader.pause = 0.0


class Writing:
    """Writes events from another process, so that the server has to do with them as a reader."""

    def __init__(
        self, where: str, server: Server, silent: list[Reader], outcome: Outcome, tick: Tick
    ) -> None:
        self._where, self._server, self._silent = where, server, silent
        self._outcome, self._tick = outcome, tick

    async def write(self, events: int, kilobytes: int, kills: int) -> None:
        deaths = {round((n + 1) * events / (kills + 1)) for n in range(kills)}
        async with connect(self._where) as store:
            for number in range(events):
                text = f"{number} " + "é\u2028x" * (kilobytes * 1_024 // 6)
                await store.append(key("s"), [NewEvent.of("note.made", {"text": text})])
                self._outcome.counts["large events"] += 1
                if number in deaths:
                    await _reached(store, self._server)
                    await asyncio.to_thread(self._kill)
                self._tick(number + 1, events)
            await _reached(store, self._server)

    def _kill(self) -> None:
        """Kill the server and start it again. Silent readers come back, and stay silent."""
        _weigh(self._server, self._outcome)
        self._server.kill()
        self._server.start()
        for reader in self._silent:
            reader.connect()
        self._outcome.counts["kills"] += 1


async def _reached(store: Store, server: Server) -> None:
    """Wait until the server has all that was written."""
    row = await store.row(key("s"))
    assert row is not None
    reader = Reader(server, "s", small=False)
    reader.cursor = f"{row.log}.{row.head - 1}"
    await asyncio.to_thread(reader.read_to, row.head)
    reader.close()


async def _log(where: str) -> list[tuple[int, str]]:
    async with connect(where) as store:
        found = await read_all(store, key("s"))
    return [told(json.loads(msgspec.json.encode(complete(event)))) for event in found]


def _resume(readers: list[Reader], log: list[tuple[int, str]], outcome: Outcome) -> None:
    for number, reader in enumerate(readers):
        reader.read_to(log[-1][0])
        outcome.equal(reader.events, log, f"reader {number}: the events")
        outcome.counts["events read"] += len(reader.events)
        outcome.counts["connections"] += reader.connects
        reader.close()
    outcome.counts["readers"] += len(readers)


def _weigh(server: Server, outcome: Outcome) -> None:
    grown = round(server.memory("VmHWM") - server.base)
    outcome.counts["MB more, at most"] = max(outcome.counts["MB more, at most"], grown)
    outcome.expect(grown < MORE, f"the server grew by {grown} MB")
