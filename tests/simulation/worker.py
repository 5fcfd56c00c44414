"""A real process that runs the agent of the simulator, and does what users ask of it.

`python -m tests.simulation.worker SETTINGS`: it serves on a Unix socket, one request a connection,
and ends with its input. Its tools act on a ledger of files, and some kill it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Harness, HoldfastError, connect, environment
from holdfast.errors import HarnessClosed, StoreUnavailable
from holdfast.harness import LogConfig
from holdfast.stores.memory import MemoryStore
from holdfast.testing.simulation.effects import Effect
from holdfast.testing.simulation.faults import MODEL
from holdfast.testing.simulation.outcome import ReaderView
from holdfast.testing.simulation.scenario import Step
from holdfast.testing.simulation.verbs import VERBS, Reply, UserRequest, find_item, settle
from holdfast.testing.simulation.workload import OTHER_MODEL, ProgramModel, make_agent

from .ledger import Died, Ledger, now

ODD = 0.03  # how many calls of the model go wrong


class Settings(Struct):
    """What a worker is started with."""

    name: str
    url: str
    socket: str
    ledger: str
    ttl: float
    version: int = 1


class Ask(Struct):
    """A request of a user: a step, or to find an item for it, or to settle what is pending."""

    do: str
    step: Step
    actor: str = "ann"
    item: str | None = None


class Answer(Struct):
    """What the user is told. `again`: ask another process."""

    reply: Reply | None = None
    item: str | None = None
    readings: list[ReaderView] = []
    decided: list[tuple[str, str]] = []  # sessions and items
    error: str = ""
    again: bool = False
    unexpected: bool = False


class World(environment.Environment):
    """Stands for the simulated process and its cluster, which the agent asks for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(random.Random())
        self.ledger = Ledger(Path(settings.ledger))
        self.name, self.place, self.prompts = settings.name, 0, 0
        self.archive = MemoryStore()
        self.died = Died(self.ledger)
        self.process = self.cluster = self.effects = self.faults = self.scheduler = self.loop = self

    @property
    def now(self) -> float:
        return now()

    def process_name(self) -> str:
        return self.name

    def model(self, place: int) -> str | None:
        """What goes wrong with this call of the model."""
        return self.random.choice(MODEL) if self.random.random() < ODD else None

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def add(
        self,
        process: str,
        session: str,
        thread: str,
        tool: str,
        call: str,
        key: str,
        *,
        repeatable: bool = False,
    ) -> None:
        """Record an effect."""
        effect = Effect(now(), process, session, thread, tool, call, key, repeatable)
        self.ledger.add("effect", effect)


class Worker:
    """Serves users."""

    def __init__(self, harness: Any, ledger: Ledger) -> None:
        self._harness, self._ledger = harness, ledger

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            answer = await self._answer(msgspec.json.decode(line, type=Ask))
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except ConnectionError:
            pass  # the user is gone
        finally:
            writer.close()

    async def _answer(self, ask: Ask) -> Answer:
        readings: list[ReaderView] = []
        decided: list[tuple[str, str]] = []
        request = UserRequest(
            ask.step, ask.actor, ask.item, readings, lambda name: self._ledger.add("deleted", name)
        )
        try:
            if ask.do == "settle":
                await settle(self._harness, lambda *which: decided.append(which), scheduled=True)
                return Answer(decided=decided)
            if ask.do == "find":
                return Answer(item=await find_item(self._harness, request))
            reply = await VERBS[ask.step.action](self._harness, request)
            return Answer(reply, readings=readings)
        except (StoreUnavailable, HarnessClosed) as error:
            return Answer(readings=readings, decided=decided, error=error.code, again=True)
        except HoldfastError as error:
            return Answer(readings=readings, decided=decided, error=error.code)
        except Exception as error:
            return Answer(readings=readings, error=f"{ask.step.action}: {error!r}", unexpected=True)


async def main(settings: Settings, ledger: Ledger) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _complain(ledger, context))
    loop.add_reader(0, lambda: os.read(0, 1) or os._exit(0))
    while True:
        try:
            store = await connect(settings.url)
            harness = Harness(
                make_agent(settings.version),
                default_model=ProgramModel(),
                providers=[ProgramModel(OTHER_MODEL)],
                store=store,
                ttl=settings.ttl,
                logging=LogConfig(level="silent", propagate=False),
                price=None,
                trace=False,
            )
            await harness.start()
            break
        except HoldfastError:
            await asyncio.sleep(0.2)
    server = await asyncio.start_unix_server(Worker(harness, ledger).serve, settings.socket)
    await server.serve_forever()


def _complain(ledger: Ledger, context: dict[str, Any]) -> None:
    ledger.add("complaint", f"{context.get('message')}: {context.get('exception')!r}")


if __name__ == "__main__":
    world = World(told := msgspec.json.decode(sys.argv[1], type=Settings))
    with environment.use(world):
        asyncio.run(main(told, world.ledger))
