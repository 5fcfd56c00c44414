"""The processes of the demo: a shop's agent that is killed, twice, and what is left of it.

`agent` may look orders up, and must ask before it refunds; each of its tools leaves a line in a
file of effects. Runs as `python -m holdfast.cli.demo_processes ask|approve|resume URL SESSION`; the
last two only where the command line's extra is not installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from ..errors import AlreadyDecided
from ..harness.agents.agent import Agent
from ..harness.host import Harness
from ..harness.live.inbox import settle
from ..harness.tools import ToolContext, tool
from ..log.events import Event, key
from ..models.scripted import Say, ScriptedModel, Use
from ..stores import connect

Line = dict[str, Any]
TIMEOUT = 30.0  # seconds that a process may take before it is given up
EFFECTS = "HOLDFAST_DEMO_EFFECTS"  # where the path of the file of effects stands
ASKED = "My lamp arrived broken. Please refund order 42."
MODULE = "holdfast.cli.demo_processes"


# The agent


def _effect(context: ToolContext, text: str) -> None:
    # One write, so that a kill leaves a line whole or leaves none of it.
    with open(context.resources, "a") as file:
        file.write(f"{text} by process {os.getpid()}\n")


@tool(repeat_safe=True)
def look_up(order: str, context: ToolContext) -> dict[str, Any]:
    """Look an order up."""
    _effect(context, f"look_up {order}")
    return {"order": order, "item": "lamp", "cents": 1999}


@tool(approval="ask", risk="write")
def refund(order: str, cents: int, context: ToolContext) -> str:
    """Pay money back."""
    _effect(context, f"refund {order} {cents}")
    return f"paid back {cents / 100:.2f}"


agent = Agent("Demo shop", instructions="You help customers.", tools=[look_up, refund])

# What the model says next is read off the conversation, whichever process asks.
MODEL = ScriptedModel(
    [
        Say("I am sorry about the lamp. Let me see.", calls=[Use("look_up", order="42")]),
        Say("It cost 19.99. I will pay that back.", calls=[Use("refund", order="42", cents=1999)]),
        Say("Done: the 19.99 for your lamp are on their way to you.", delay=0.15),
    ],
    ref="demo/script",
)


def harness(**settings: Any) -> Harness:
    """The harness of every process; a dead one's lease lapses after a second."""
    effects = Path(os.environ[EFFECTS])
    return Harness(agent, default_model=MODEL, resources=effects, ttl=1.0, **settings)


# The processes


def _say(**line: Any) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


def _tell(event: Event) -> None:
    _say(event={"kind": event.kind, "data": event.json()})


async def ask(url: str, session: str) -> None:
    """The customer writes; the agent works until it needs a person. Then this waits."""
    async with harness(store=url) as served:
        live = await served.get_or_create(session)
        stream = live.stream(ASKED, actor="customer")
        async for item in stream:
            if isinstance(item, Event):
                _tell(item)
        _say(waiting=[item.id for item in stream.result.pending])
        await asyncio.Event().wait()


async def approve(url: str, session: str, item: str) -> int:
    """What `holdfast approve` does."""
    async with connect(url) as store:
        try:
            made = await settle(store, key(session), item, "approved", actor="ann")
        except AlreadyDecided:
            return 1
    _say(item=made.item, outcome=made.outcome, by=made.by)
    return 0


async def resume(url: str, session: str) -> None:
    """What `holdfast resume` does."""
    async with harness(store=url) as served:
        live = await served.get_or_create(session)
        async for item in live.subscribe(0):
            if isinstance(item, Event):
                _tell(item)
                if item.kind == "run.finished":
                    return


# The one that watches them


class DemoFailed(Exception):
    """A process of the demo did not do its part."""


class Process:
    """A process of the demo, and what it says, line by line."""

    def __init__(self, command: list[str], effects: Path) -> None:
        self.command = command
        self._process = subprocess.Popen(  # noqa: S603  our own module
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, EFFECTS: str(effects)},
        )
        self.pid = self._process.pid

    def kill(self) -> None:
        """SIGKILL: it can neither know nor tidy up."""
        self._process.kill()

    @contextmanager
    def lines(self, *, dies: bool = False) -> Iterator[Iterator[Line]]:
        """What it says until it ends, by itself or killed; otherwise it has failed."""
        timer = threading.Timer(TIMEOUT, self._process.terminate)
        timer.start()
        with self._process as process:
            try:
                assert process.stdout is not None
                yield _lines(process.stdout)
                words = self._last_words()
                if (process.wait() == 0) == dies:
                    raise DemoFailed(f"process {self.pid} {words}")
            finally:
                timer.cancel()
                process.kill()

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode(errors="replace").strip()
        return words.rpartition("\n")[2] or f"ended with exit code {self._process.wait()}"


def _lines(stream: IO[bytes]) -> Iterator[Line]:
    for line in stream:
        if line.endswith(b"\n"):
            yield json.loads(line)


def asking(url: str, session: str, effects: Path) -> Process:
    return Process([sys.executable, "-m", MODULE, "ask", url, session], effects)


def approving(url: str, session: str, effects: Path, item: str) -> Process:
    options = ["--actor", "ann", "--json"]
    return Process(_command("approve", url, [session, item], options), effects)


def resuming(url: str, session: str, effects: Path) -> Process:
    options = ["--agent", f"{MODULE}:harness", "--json"]
    return Process(_command("resume", url, [session], options), effects)


def _command(verb: str, url: str, words: list[str], options: list[str]) -> list[str]:
    if all(_installed(name) for name in ("cyclopts", "rich")):
        return [sys.executable, "-m", "holdfast.cli", verb, *words, "--store", url, *options]
    return [sys.executable, "-m", MODULE, verb, url, *words]


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


PARTS: dict[str, Callable[..., Coroutine[Any, Any, int | None]]] = {
    "ask": ask,
    "approve": approve,
    "resume": resume,
}

if __name__ == "__main__":
    sys.exit(asyncio.run(PARTS[sys.argv[1]](*sys.argv[2:])))
