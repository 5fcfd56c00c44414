"""How long a sandbox lives on a server: while its session is open, and so while somebody uses it.
What it holds lives as long as the session."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from holdfast import Agent, ToolContext, tool
from holdfast.client import Client
from holdfast.events import Key, Scope
from holdfast.harness.sandbox import LocalSandbox
from holdfast.harness.sandbox.local import LocalPlace
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import ServerLimits

from .scene import PATIENCE, Api, serving, settings

BRIEF = ServerLimits(idle_seconds=0.1, rate=None)


class Watched(LocalSandbox):
    """A sandbox that knows which of its places are open, and how often they were opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.open_now: set[str] = set()
        self.opened: list[str] = []
        self.gone: list[str] = []

    async def open(self, session: Key, *, agent: str, resources: Any) -> LocalPlace:
        place = await super().open(session, agent=agent, resources=resources)
        self.opened.append(session.session)
        self.open_now.add(session.session)
        close = place.close

        async def closed(reason: Any) -> None:
            await close(reason)
            self.open_now.discard(session.session)

        place.close = closed  # type: ignore[method-assign]
        return place

    async def destroy(self, session: Scope) -> None:
        await super().destroy(session)
        self.gone.append(session.session)

    async def until(self, *open_now: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.open_now != {*open_now}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def put(api: Api, session: str, data: bytes = b"kept") -> None:
    await api("PUT", f"/sessions/{session}")
    content = f"/sessions/{session}/files/content"
    await api("PUT", content, params={"path": "a.txt"}, content=data)


async def test_a_sandbox_that_nobody_uses_is_closed_and_opened_again_with_its_files(
    tmp_path: Path,
) -> None:
    sandbox = Watched(tmp_path)
    async with serving(settings(limits=BRIEF, harness={"sandbox": sandbox})) as api:
        await put(api, "one")
        await sandbox.until()
        where = {"path": "a.txt"}
        answer = await api.ask("GET", "/sessions/one/files/content", params=where)
        assert answer.content == b"kept"
        assert sandbox.opened == ["one", "one"]
        await sandbox.until()
        await api("DELETE", "/sessions/one")
        assert sandbox.gone == ["one"]
        assert [*tmp_path.iterdir()] == []  # noqa: ASYNC240
    assert sandbox.open_now == set()


async def test_a_sandbox_stays_open_while_a_run_goes_or_somebody_listens(tmp_path: Path) -> None:
    @tool
    async def work(context: ToolContext) -> str:
        """Work until it is stopped."""
        await context.sandbox.write("b.txt", b"worked")
        await context.aborted.wait()
        return "stopped"

    sandbox = Watched(tmp_path)
    agent = Agent("clerk", instructions="Work.", tools=[work])
    calls = ScriptedModel.by_input({"Go": Say("", calls=[Use("work")]), ".": "Good day."})
    made = settings(
        agents=[agent], limits=BRIEF, harness={"sandbox": sandbox, "default_model": calls}
    )
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(serving(made))
        client = await stack.enter_async_context(Client(api.url, "ann@acme"))
        busy = await client.get_or_create("busy")
        await busy.post("Go")
        heard, begun = await client.get_or_create("heard"), asyncio.Event()
        listening = asyncio.create_task(_listen(heard.follow(), begun))
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        await put(api, "heard")
        await sandbox.until("busy", "heard")
        for name in ("first", "second"):  # what is closed meanwhile shows that others were not
            await put(api, name)
            await sandbox.until("busy", "heard")
        await busy.abort()
        await sandbox.until("heard")
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await sandbox.until()
        assert await busy.files.read("b.txt") == b"worked"
    assert sorted(sandbox.opened) == ["busy", "busy", "first", "heard", "second"]
    assert sandbox.open_now == set()


async def _listen(stream: Any, begun: asyncio.Event) -> None:
    async for _ in stream:
        begun.set()
