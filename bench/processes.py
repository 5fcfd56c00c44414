"""What a message costs on PostgreSQL when several processes serve the sessions: CPU time of the
workers and of the database, and calls of the store. The number of sessions is the same for any
number of processes."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Harness, connect
from holdfast.server.processes import collect_rarely
from holdfast.testing.faults import FaultyStore

from .harness import ASKED, Instant, shop
from .measure import Bar, Figure, Result, steady
from .servers import Place
from .settings import Settings

ROOT = Path(__file__).parent.parent
ONE, MANY = 1, 4  # processes
WARM = 3  # messages of each session before the clock starts
CALLS = ("append", "acquire", "renew", "release")  # those that write


class Spent(Struct, frozen=True):
    """What a number of messages cost one worker."""

    messages: int
    cpu: float  # seconds
    calls: int


class Cost(Struct, frozen=True):
    """What a message cost: ms of CPU of workers and database, and calls of the store."""

    worker: float
    database: float
    calls: float

    @property
    def cpu(self) -> float:
        return self.worker + self.database


# A worker


async def work(url: str, names: list[str], messages: int) -> None:
    """Serve sessions, and send messages to all of them at once, when the parent says so."""
    async with connect(url) as inner:
        store = FaultyStore(inner)
        async with Harness(shop(), default_model=Instant(), store=store) as harness:
            sessions = [await harness.get_or_create(name) for name in names]

            async def send(session: Any, count: int) -> None:
                for _ in range(count):
                    result = await session.send(ASKED)
                    if result.status != "done":
                        raise RuntimeError(f"a turn ended as {result.status}: {result.code}")

            await asyncio.gather(*(send(session, WARM) for session in sessions))
            await _told("ready")
            with steady():
                store.calls.clear()
                began = _cpu()
                await asyncio.gather(*(send(session, messages) for session in sessions))
                calls = sum(store.calls[name] for name in CALLS)
                spent = Spent(messages * len(names), _cpu() - began, calls)
            # The sessions stay open until all workers are done.
            await _told(msgspec.json.encode(spent).decode())


async def _told(line: str) -> None:
    """Tell the parent a line, and wait for its answer."""
    print(line, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# The parent


def cost(place: Place, processes: int, sessions: int, messages: int) -> Cost:
    """What a message costs with so many processes."""
    names = [f"session-{number}" for number in range(sessions)]
    with ExitStack() as stack:
        workers = []
        for number in range(processes):
            arguments = [place.url, str(messages), *names[number::processes]]
            worker = subprocess.Popen(
                [sys.executable, "-m", "bench.processes", *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            if _line(worker) != "ready":
                raise RuntimeError("a worker did not start")
        began = _used_by(place.address["pid"])
        for worker in workers:
            _go(worker)
        spent = [msgspec.json.decode(_line(worker), type=Spent) for worker in workers]
        database = _used_by(place.address["pid"]) - began
        for worker in workers:
            _go(worker)
            worker.wait(30)
    sent = sum(each.messages for each in spent)
    return Cost(
        worker=sum(each.cpu for each in spent) / sent * 1e3,
        database=database / sent * 1e3,
        calls=sum(each.calls for each in spent) / sent,
    )


def _line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    if not (line := worker.stdout.readline()):
        raise RuntimeError(f"a worker ended with code {worker.wait()}")
    return line.strip()


def _go(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def _used_by(server: int) -> float:
    """Seconds of CPU that a PostgreSQL server has used: its own, those of its processes, and those
    of processes that ended."""
    ticks = sum(_ticks(server))
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = _fields(int(entry.name))
            except OSError:  # it ended meanwhile
                continue
            if int(fields[1]) == server:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> list[int]:
    return [int(field) for field in _fields(pid)[11:15]]


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name of the program."""
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()


def postgres_processes(settings: Settings) -> Result:
    """A message with an instant model on PostgreSQL: one process, and several with the same
    sessions."""
    sizes = settings.sizes
    title = f"PostgreSQL, {sizes.served} sessions, {ONE} and {MANY} processes"
    result = Result(name="postgres-processes", title=title)
    result.notes.append(settings.servers.about("postgres"))
    found: dict[int, list[Cost]] = {ONE: [], MANY: []}
    for _ in range(settings.rounds):
        for processes, costs in found.items():
            settings.step(_name(processes))
            with settings.servers.postgres() as place:
                costs.append(cost(place, processes, sizes.served, sizes.sent))
    how = f"{sizes.served} sessions, {sizes.sent} messages each, a round"
    for processes, costs in found.items():
        for what, unit, values in (
            ("CPU, workers", "ms", [each.worker for each in costs]),
            ("CPU, database", "ms", [each.database for each in costs]),
            ("CPU", "ms", [each.cpu for each in costs]),
            ("calls of the store", "", [each.calls for each in costs]),
        ):
            name = f"{_name(processes)}, {what}"
            result.figures.append(Figure(name=name, unit=unit, values=values, note=how))
    result.compare(f"{_name(MANY)}, CPU", f"{_name(ONE)}, CPU", "most", 1.25)
    for processes in found:
        name = f"{_name(processes)}, calls of the store"
        values = result.figure(name).values
        result.bars.append(Bar(name=name, way="most", bar=2.5, unit="", values=values))
    return result


def _name(processes: int) -> str:
    return "one process" if processes == 1 else f"{processes} processes"


if __name__ == "__main__":
    collect_rarely()  # as `holdfast serve` does
    asyncio.run(work(sys.argv[1], sys.argv[3:], int(sys.argv[2])))
