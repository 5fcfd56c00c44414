"""Real worker processes and their users, who do what scenarios of the simulator say."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from holdfast.testing.simulation.cluster import Disconnected
from holdfast.testing.simulation.outcome import ReaderView, Told
from holdfast.testing.simulation.scenario import Step
from holdfast.testing.simulation.users import ONCE, PATIENCE
from holdfast.testing.simulation.verbs import Reply

from .. import forks
from ..crash.children import ROOT
from .ledger import Ledger, now
from .worker import Answer, Ask, Settings

LINE = 1 << 24  # bytes of an answer at most
LOOK = 0.1


class Workers:
    """Several workers. One that ends is started again."""

    def __init__(self, url: str, folder: Path, count: int, ttl: float) -> None:
        self._url, self._folder, self._count, self._ttl = url, folder, count, ttl
        self._sockets = tempfile.mkdtemp(prefix="hf-")  # its path has to be short
        self.ledger = Ledger(folder / "ledger")
        self.processes: list[subprocess.Popen[bytes]] = []
        self._lives: list[int] = [0] * count
        self._words: list[IO[bytes]] = []
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def __enter__(self) -> Workers:
        for place in range(self._count):
            self._words.append((self._folder / f"words-{place}").open("ab"))
            self.processes.append(self._start(place))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for process in self.processes:
            process.kill()
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        for words in self._words:
            words.close()
        for path in Path(self._sockets).iterdir():
            path.unlink()
        Path(self._sockets).rmdir()

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes if process.poll() is None]

    async def supervise(self) -> None:
        """Start workers again, for ever."""
        while True:
            for place, process in enumerate(self.processes):
                if (code := process.poll()) is not None:
                    self.counts["workers that ended"] += 1
                    if code != -signal.SIGKILL:
                        words = (self._folder / f"words-{place}").read_text(errors="replace")
                        self.problems.append(f"a worker ended with {code}: {words[-1500:]}")
                    assert process.stdin is not None
                    process.stdin.close()
                    self.processes[place] = self._start(place)
            await asyncio.sleep(LOOK)

    async def ask(self, place: int, ask: Ask) -> Answer:
        """What the worker at a place answers; `Disconnected` if it ends before."""
        place %= self._count
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._socket(place), limit=LINE)
                with contextlib.closing(writer):
                    writer.write(msgspec.json.encode(ask) + b"\n")
                    line = await reader.readline()
        except (OSError, TimeoutError) as error:
            raise Disconnected(f"worker {place}") from error
        if not line.endswith(b"\n"):
            raise Disconnected(f"worker {place}")
        return msgspec.json.decode(line, type=Answer)

    def _start(self, place: int) -> subprocess.Popen[bytes]:
        self._lives[place] += 1
        settings = Settings(
            name=f"p{place}.{self._lives[place]}",
            url=self._url,
            socket=self._socket(place),
            ledger=str(self._folder / "ledger"),
            ttl=self._ttl,
            version=1 + self._lives[place] % 2,
        )
        return forks.popen(
            *("-m", "tests.simulation.worker", msgspec.json.encode(settings).decode()),
            needs=("holdfast.harness", "holdfast.testing.simulation"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=self._words[place],
            stderr=self._words[place],
        )

    def _socket(self, place: int) -> str:
        return f"{self._sockets}/{place}.{self._lives[place]}"


class Users:
    """Perform steps, as the users of the simulator do, and record what they were told."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.told: list[Told] = []
        self.readings: list[ReaderView] = []
        self.problems: list[str] = []
        self.steps: list[Step] = []
        self.busy: dict[asyncio.Task[None], str] = {}
        self.requests = 0

    async def play(self, steps: list[Step], patience: float) -> None:
        """Perform steps at their times, and wait for what comes of them, but not too long."""
        begun = time.monotonic()
        tasks = []
        for step in steps:
            await asyncio.sleep(max(0.0, begun + step.at - time.monotonic()))
            self.steps.append(replace(step, at=now()))
            tasks.append(self._spawn(self._perform(step, step.place), step))
            if step.twice:
                tasks.append(self._spawn(self._perform(step, step.place + 1, "bob"), step))
        await asyncio.wait(tasks, timeout=patience)

    async def operate(self, every: float) -> None:
        """Answer all that is pending, again and again."""
        for place in range(1 << 30):
            with contextlib.suppress(Disconnected):
                answer = await self._workers.ask(place, Ask("settle", Step(0.0, "approve")))
                self._take(answer)
                for session, item in answer.decided:
                    self._say(Step(0.0, "approve", session), Reply("decided", item=item))
            await asyncio.sleep(every)

    async def again(self, told: Told, step: Step) -> None:
        """Repeat an acknowledged request: it is acknowledged as it was."""
        reply = await self._request(Ask("step", step), step.place + 1)
        if (reply.seq, reply.run) != (told.seq, told.run):
            self.problems.append(f"{told} was repeated, and is now {reply}")

    def _spawn(self, work: Coroutine[Any, Any, None], step: Step) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.busy[task] = f"{step.action} #{step.tag} of {step.session}"
        task.add_done_callback(lambda done: self.busy.pop(done, None))
        return task

    def _say(self, step: Step, reply: Reply) -> None:
        seq, item, run = reply.seq, reply.item, reply.run
        self.told.append(
            Told(step.action, step.session, step.tag, now(), reply.status, seq, item, run)
        )

    def _take(self, answer: Answer) -> None:
        self.readings += answer.readings
        if answer.unexpected:
            self.problems.append(f"unexpected {answer.error}")

    async def _perform(self, step: Step, place: int, actor: str = "ann") -> None:
        if step.action != "duel":
            self._say(step, await self._request(Ask("step", step, actor), place))
            return
        try:
            item = (await self._workers.ask(place, Ask("find", step))).item
        except Disconnected:
            item = None
        if item is None:
            self._say(step, Reply("nothing"))
            return
        other = replace(step, action="deny" if step.pick % 3 == 2 else "approve")
        first, second = await asyncio.gather(
            self._request(Ask("step", step, "ann", item), place),
            self._request(Ask("step", other, "bob", item), place + 1),
        )
        self._say(step, first)
        self._say(other, second)

    async def _request(self, ask: Ask, place: int) -> Reply:
        """Ask one worker, and another one if the connection is lost."""
        again = ask.step.keyed or ask.step.action not in ONCE
        end = time.monotonic() + (PATIENCE if again else 0.0)
        pause = 0.2
        while True:
            self.requests += 1
            with contextlib.suppress(Disconnected):
                answer = await self._workers.ask(place, ask)
                self._take(answer)
                if answer.reply is not None:
                    return answer.reply
                if not answer.again:
                    return Reply(answer.error)
            if time.monotonic() > end:
                return Reply("lost")
            place += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)
