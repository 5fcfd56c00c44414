"""The processes of the demo: a shop's agent, which is killed twice, and the processes that approve
and resume its session.

The agent looks up orders, and makes refunds after approval; each tool call adds a line to a file of
effects. Runs as `python -m holdfast.cli.demo_processes ask|approve|resume URL SESSION`; `approve`
and `resume` are used only if the extra of the command line is not installed.
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
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from ..errors import AlreadyDecided
from ..harness import Agent, Harness, ToolContext, settle_pending, tool
from ..log.events import Event, key
from ..models.scripted import Say, ScriptedModel, Use
from ..stores import connect

Line = dict[str, Any]
TIMEOUT = 30.0  # seconds after which a process is terminated
EFFECTS = "HOLDFAST_DEMO_EFFECTS"  # the variable with the path of the file of effects
ASKED = "My lamp arrived broken. Please refund order 42."
MODULE = "holdfast.cli.demo_processes"


def _effect(context: ToolContext, text: str) -> None:
    # One write, so that a kill leaves a whole line or none.
    with open(context.resources, "a") as file:
        file.write(f"{text} by process {os.getpid()}\n")


@tool(repeat_safe=True)
def look_up(order: str, context: ToolContext) -> dict[str, Any]:
    """Look up an order."""
    _effect(context, f"look_up {order}")
    return {"order": order, "item": "lamp", "cents": 1999}


@tool(approval="ask", risk="write")
def refund(order: str, cents: int, context: ToolContext) -> str:
    """Pay money back."""
    _effect(context, f"refund {order} {cents}")
    return f"paid back {cents / 100:.2f}"


agent = Agent("Demo shop", instructions="You help customers.", tools=[look_up, refund])

# The conversation determines the next answer, so every process can continue it.
MODEL = ScriptedModel(
    [
        Say("I am sorry about the lamp. Let me see.", calls=[Use("look_up", order="42")]),
        Say("It cost 19.99. I will pay that back.", calls=[Use("refund", order="42", cents=1999)]),
        Say("Done: the 19.99 for your lamp are on their way to you.", delay=0.15),
    ],
    ref="demo/script",
)


def harness(**settings: Any) -> Harness:
    """Create the harness of a process. The lease of a killed process expires after a second."""
    effects = Path(os.environ[EFFECTS])
    return Harness(agent, default_model=MODEL, resources=effects, ttl=1.0, **settings)


def _say(**line: Any) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


def _tell(event: Event) -> None:
    _say(event={"kind": event.kind, "data": event.json()})


async def ask(url: str, session: str) -> None:
    """Send the customer's message, work until an approval is needed, then wait."""
    async with harness(store=url) as served:
        live = await served.get_or_create(session)
        stream = live.stream(ASKED, actor="customer")
        async for item in stream:
            if isinstance(item, Event):
                _tell(item)
        _say(waiting=[item.id for item in stream.result.pending])
        await asyncio.Event().wait()


async def approve(url: str, session: str, item: str) -> int:
    """Approve the pending item, as `holdfast approve` does."""
    async with connect(url) as store:
        try:
            made = await settle_pending(store, key(session), item, "approved", actor="ann")
        except AlreadyDecided:
            return 1
    _say(item=made.item, outcome=made.outcome, by=made.by)
    return 0


async def resume(url: str, session: str) -> None:
    """Resume the session, as `holdfast resume` does."""
    async with harness(store=url) as served:
        live = await served.get_or_create(session)
        async for item in live.subscribe(0):
            if isinstance(item, Event):
                _tell(item)
                if item.kind == "run.finished":
                    return


class DemoFailed(Exception):
    """Raised if a process of the demo fails."""


class Process:
    """A process of the demo, and the lines that it prints."""

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
        """Kill the process with SIGKILL, so that it cannot clean up."""
        self._process.kill()

    @contextmanager
    def lines(self, *, dies: bool = False) -> Iterator[Iterator[Line]]:
        """Yield the lines that the process prints. Raises `DemoFailed` if it fails, or with `dies`,
        if it ends successfully."""
        timer = threading.Timer(TIMEOUT, self._process.terminate)
        timer.start()
        with self._process as process:
            try:
                assert process.stdout is not None
                yield _lines(process.stdout)
                words = self._error()
                if (process.wait() == 0) == dies:
                    raise DemoFailed(f"process {self.pid} {words}")
            finally:
                timer.cancel()
                process.kill()

    def _error(self) -> str:
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode(errors="replace").strip()
        return words.rpartition("\n")[2] or f"ended with exit code {self._process.wait()}"


def _lines(stream: IO[bytes]) -> Iterator[Line]:
    for line in stream:
        if line.endswith(b"\n"):
            yield json.loads(line)


@dataclass(frozen=True)
class DemoStage:
    """The store, the session and the file of effects; starts the processes of the demo."""

    url: str
    session: str
    effects: Path

    def ask(self) -> Process:
        """Start the process that serves the agent and asks for approval."""
        return self._start([MODULE, "ask", self.url, self.session])

    def approve(self, item: str) -> Process:
        """Start `holdfast approve`."""
        return self._verb("approve", [self.session, item], ["--actor", "ann", "--json"])

    def resume(self) -> Process:
        """Start `holdfast resume`."""
        return self._verb("resume", [self.session], ["--agent", f"{MODULE}:harness", "--json"])

    def _verb(self, verb: str, words: list[str], options: list[str]) -> Process:
        if all(_installed(name) for name in ("cyclopts", "rich")):
            return self._start(["holdfast.cli", verb, *words, "--store", self.url, *options])
        return self._start([MODULE, verb, self.url, *words])

    def _start(self, words: list[str]) -> Process:
        return Process([sys.executable, "-m", *words], self.effects)


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
