"""A server in a process of its own, by `holdfast serve`: started, ended, and killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import tempfile
import time
from types import TracebackType

import httpx

from holdfast import Agent, Harness, tool
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.port import FromUser, ModelCall, Text
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.store import Store
from tests import forks

from ..crash.children import ROOT
from ..servers.process import free_port
from ..servers.wire import Wire

PATIENCE = 60.0  # seconds until a server that does not come up counts as failed
TTL = 3.0  # seconds that a lease lasts
LOOK = 0.05
WORDS = 40


def story(asked: str) -> str:
    """The answer to a question: its own, long enough to be cut, and hard to put together."""
    return " ".join(f"{asked} {n} é\u2028\U0001f600" for n in range(WORDS))


def _told(call: ModelCall) -> Say:
    last = call.messages[-1]
    assert isinstance(last, FromUser)
    asked = "".join(part.text for part in last.content if isinstance(part, Text))
    return Say(story(asked), delay=0.01)


@tool(approval="ask")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def clerk(store: Store | str, tenant: str) -> Harness:
    """What every replica serves."""
    model = ScriptedModel.by_input(
        {"Pay.": [Say("I pay.", calls=[Use("pay", amount=5)]), "Paid."], ".": _told}
    )
    return Harness(
        Agent("clerk", instructions="Obey.", tools=[pay]),
        default_model=model,
        store=store,
        tenant=tenant,
        ttl=TTL,
        crashes=100,  # of one run: there will be many
        logging=LogConfig(level="silent"),
    )


class Replica:
    """One server on a store, behind a wire that can be cut. Leaving the block ends it."""

    def __init__(self, store: str) -> None:
        self._store, self.port = store, free_port()
        self.wire = Wire(self.port)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the replica
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"

    async def __aenter__(self) -> Replica:
        await asyncio.to_thread(self.wire.__enter__)
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self.kill()
        self.wire.__exit__()
        self._words.close()

    async def start(self) -> None:
        """Start it, and return when it is ready."""
        agent = "clerk=tests.client.replica:clerk"
        where = ["--store", self._store, "--port", str(self.port), "--auth", "none"]
        self._process = process = await asyncio.to_thread(
            forks.popen,
            *("-m", "holdfast.cli", "serve", agent, *where, "--grace", "3"),
            cwd=ROOT,
            stdout=self._words,
            stderr=self._words,
        )
        until = time.monotonic() + PATIENCE
        async with httpx.AsyncClient() as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    found = await http.get(f"http://127.0.0.1:{self.port}/v1/ready")
                    if found.status_code == 200:
                        return
                assert process.poll() is None, await asyncio.to_thread(self.words)
                assert time.monotonic() < until, await asyncio.to_thread(self.words)
                await asyncio.sleep(LOOK)

    async def stop(self) -> None:
        """Tell it to end, and wait until it has."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, PATIENCE)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def words(self) -> str:
        """What it said."""
        self._words.seek(0)
        return self._words.read().decode(errors="replace")

    def __repr__(self) -> str:
        return f"<replica at {self.port}>"
