"""`/ready`: whether the server can do its work, also to those who ask every second."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from holdfast import StoreUnavailable, connect
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from tests.servers.wire import Wire
from tests.sessions import places

from .scene import serving, settings

WRITES = ("append", "fork", "restore", "erase", "delete", "claim", "acquire", "put_blob")


class ReadOnly(FaultyStore):
    """A store that can be read, and written only if `writes`."""

    writes = False

    async def _strike(self, method: str, call: int, *, after: bool) -> None:
        if not self.writes and not after and method in (*WRITES, "unclaim"):
            raise StoreUnavailable(problem="/srv/secret.db: attempt to write a readonly database")


async def test_a_database_that_is_read_only_is_not_ready(tmp_path: Path) -> None:
    url = places.url("postgres", tmp_path)
    async with connect(url) as store:
        assert store.info().kind == "postgres"
    reading = f"{url}&default_transaction_read_only=on&patience=1"
    async with serving(settings(reading, tenants=[])) as api:
        answer = await api.ask("GET", "/ready", by=None)
        assert answer.status_code == 503
        told = answer.json()
        assert told["ready"] is False
        assert told["parts"] == {
            "server": "ok",
            "store": "does not accept writes (store_unavailable)",
        }
        assert (await api.ask("PUT", "/sessions/one", {})).status_code == 503
        assert (await api.ask("GET", "/health", by=None)).status_code == 200
    async with serving(settings(url, tenants=[])) as api:
        assert (await api.ask("GET", "/ready", by=None)).status_code == 200


async def test_a_store_that_takes_writes_again_is_ready_again() -> None:
    store = ReadOnly(MemoryStore())
    async with serving(settings({"main": lambda options: store}, tenants=[])) as api:
        for _ in range(3):
            answer = await api.ask("GET", "/ready", by=None)
            assert answer.status_code == 503
            assert "secret" not in answer.text
        store.writes = True
        await api.answered(200, "GET", "/ready", by=None)


async def test_whoever_asks_often_writes_nothing_and_tries_seldom() -> None:
    store = ReadOnly(MemoryStore())
    store.writes = True
    async with serving(settings({"main": lambda options: store}, tenants=[])) as api:
        before = {method: store.calls[method] for method in WRITES}
        answers = await asyncio.gather(*(api.ask("GET", "/ready", by=None) for _ in range(20)))
        answers += [await api.ask("GET", "/ready", by=None) for _ in range(20)]
        assert {answer.status_code for answer in answers} == {200}
        assert {method: store.calls[method] for method in WRITES} == before
        assert store.calls["unclaim"] == 1


async def test_nobody_waits_twice_for_a_write_that_does_not_end() -> None:
    class Stuck(ReadOnly):
        async def _strike(self, method: str, call: int, *, after: bool) -> None:
            if method == "unclaim" and not after:
                await asyncio.Event().wait()

    stuck = Stuck(MemoryStore())
    async with serving(settings({"main": lambda options: stuck}, tenants=[])) as api:
        for _ in range(4):
            told = (await api.ask("GET", "/ready", by=None)).json()
            assert told["parts"]["store"] == "does not accept writes (no answer)"
        assert stuck.calls["unclaim"] == 1


async def test_a_database_that_falls_silent_is_told_of_in_time(tmp_path: Path) -> None:
    url = places.url("postgres", tmp_path)
    port = urlsplit(url).port
    assert port is not None
    with Wire(port) as wire:
        async with serving(settings(url.replace(f":{port}/", f":{wire.port}/"))) as api:
            silent = wire.silent()
            await api.answered(200, "GET", "/ready", by=None)
            await asyncio.to_thread(silent.__enter__)
            try:
                answer = await api.ask("GET", "/ready", by=None)
            finally:
                await asyncio.to_thread(silent.__exit__, None, None, None)
            assert (answer.status_code, answer.json()["parts"]["store"]) == (503, "no answer")
            await api.answered(200, "GET", "/ready", by=None)
