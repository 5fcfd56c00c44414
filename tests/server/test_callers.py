"""Handlers of the program's own, which may raise anything and name any tenant; and tenants that
could not be served when they first asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, NewEvent, connect, key
from holdfast import events as ev
from holdfast.server import Caller, RequestCredentials
from holdfast.server.auth.keys import ApiKeys
from holdfast.server.streams import backpressure as flow_module
from tests.sessions import places

from .scene import PATIENCE, Tokens, serving, settings


class Asking(Tokens):
    """Asks somebody else who a caller is, who may be away, or not know them any more."""

    away, gone = 0, False

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        if self.away:
            self.away -= 1
            raise ConnectionError("nobody answers")
        return None if self.gone else await super().authenticate(shown)


async def test_a_stream_ends_for_whom_nobody_knows_also_after_it_could_not_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_module, "LOOK", 0.05)
    auth = Asking()
    async with serving(settings(auth=auth)) as api:
        await api("PUT", "/sessions/one")
        headers = {"accept": "text/event-stream", "authorization": "Bearer ann@acme"}
        text = ""
        async with (
            asyncio.timeout(PATIENCE),
            api.client.stream("GET", "/v1/sessions/one/events", headers=headers) as stream,
        ):
            async for chunk in stream.aiter_text():
                if "caught_up" in chunk:
                    auth.away = 1
                    while auth.away:  # noqa: ASYNC110 - nobody tells when it was asked
                        await asyncio.sleep(0.01)
                    auth.gone = True
                text += chunk
        last = text.strip().rpartition("event: ")[2]
        assert last.startswith("end\n")
        assert '"code":"unauthorized"' in last


async def test_nobody_is_of_a_tenant_that_is_the_servers_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = places.url("sqlite", tmp_path)
    async with connect(url) as store:
        made = await ApiKeys(store).create(principal="root", tenant="acme", scopes=["admin"])
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one", key="k")
        for tenant in ("~keys", "~once:acme"):
            for path in ("/sessions", "/people/root", f"/sessions/{made.info.id}"):
                answer = await api.ask("GET", path, by=f"eve@{tenant}+sessions:all,admin")
                assert answer.status_code == 401
        gone = await api.ask("DELETE", "/people/root", by="eve@~keys+admin")
        assert gone.status_code == 401
        assert "~" not in caplog.text
    async with connect(url) as store:
        assert [info.id for info in await ApiKeys(store).list("acme")] == [made.info.id]


class Source:
    """A source of tools that is away for a while."""

    name = "source"
    away, asked = False, 0

    async def connect(self) -> None:
        self.asked += 1
        if self.away:
            raise ConnectionError("nobody answers")

    async def tools(self) -> list[Any]:
        return []

    async def close(self) -> None:
        pass


async def test_a_tenant_whose_work_could_not_be_looked_for_is_served_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, source = places.url("sqlite", tmp_path), Source()
    created = ev.SessionCreated(agent="shop", user="ann")
    events = [
        NewEvent.of("session.created", created),
        NewEvent.of("message.received", {"text": "Hello"}),
    ]
    async with connect(url) as store:
        await store.append(key("one", tenant="acme"), events, create=True)
    agent = Agent("shop", instructions="Help.", tools=[source])
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(serving(settings(url, agents=[agent])))
        source.away, source.asked = True, 0
        with caplog.at_level(logging.WARNING, "holdfast.server"):
            await api.until("/sessions", lambda page: "runs of a tenant" in caplog.text)
        assert source.asked >= 1
        source.away = False
        page = await api.until("/sessions", lambda page: page["items"][0].get("run") == "done")
        assert len(page["items"]) == 1
