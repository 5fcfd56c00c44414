"""A client without a key shows the local token to a server of this machine that runs, and to
nobody else: no other address, no proxy, nobody it is sent on to, nobody who took the port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast import Agent, LogConfig
from holdfast.client import Client, Patience
from holdfast.errors import HoldfastError, InvalidValue, Unauthorized, WrongServer
from holdfast.local_token import LocalToken, is_loopback, keep
from holdfast.models.scripted import ScriptedModel
from holdfast.server import create_app
from holdfast.server.auth.callers import LocalTokenAuth
from tests.server.scene import listening
from tests.servers.process import free_port

SOON = Patience(reach=0.2, total=0.2)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@contextlib.asynccontextmanager
async def running(port: int, store: str = "memory:") -> AsyncGenerator[LocalToken, None]:
    """A server with its local token, as `holdfast serve` has it."""
    token = await asyncio.to_thread(keep, port, store)
    app = await asyncio.to_thread(
        create_app,
        agents=[Agent("shop", instructions="Help.")],
        auth=LocalTokenAuth(token.token),
        harness={
            "default_model": ScriptedModel(["Good day."]),
            "logging": LogConfig(level="silent"),
        },
    )
    with token.serving():
        async with listening(app, port):
            yield token


class Other:
    """A program that listens at a port, and keeps what it is sent."""

    def __init__(self, answer: bytes) -> None:
        self.heard: list[str] = []
        self._answer = answer
        self.host, self.port = "127.0.0.1", 0

    async def __aenter__(self) -> Other:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            self.heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self._answer)
            await writer.drain()
        writer.close()


def refusing() -> Other:
    return Other(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")


def sending(to: str) -> Other:
    head = f"HTTP/1.1 307 Elsewhere\r\nlocation: {to}\r\n"
    return Other(f"{head}content-length: 0\r\nconnection: close\r\n\r\n".encode())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_without_a_key_finds_the_token(host: str) -> None:
    port = free_port()
    async with running(port), Client(f"http://{host}:{port}") as client:
        session = await client.get_or_create("a")
        stream = session.stream("Hi")
        kinds = [item.kind async for item in stream if hasattr(item, "kind")]
        assert "message.completed" in kinds
        assert stream.result is not None
        assert stream.result.text == "Good day."
        assert "hl_" not in repr(client)


async def test_a_key_that_is_given_is_the_one_that_is_shown() -> None:
    port = free_port()
    async with running(port) as token:
        async with Client(f"http://127.0.0.1:{port}", "hk_another") as client:
            with pytest.raises(Unauthorized, match="holdfast token") as refused:
                await client.list()
            assert token.token not in str(refused.value)
        async with Client(f"http://127.0.0.1:{port}", token.token) as client:
            assert (await client.list()).items == []


async def test_a_client_goes_on_with_the_next_server_at_the_port() -> None:
    port = free_port()
    async with Client(f"http://127.0.0.1:{port}", patience=Patience(reach=30.0)) as client:
        asked = asyncio.create_task(client.list())  # before there is any server, or token
        async with running(port):
            assert (await asked).items == []
        async with running(port, "sqlite:/other.db"):
            assert (await client.list()).items == []


async def test_of_two_servers_at_one_port_each_gets_its_own() -> None:
    port = free_port()
    other = await asyncio.to_thread(keep, port, "another:")
    async with running(port):
        with other.serving():
            async with Client(f"http://127.0.0.1:{port}") as client:
                session = await client.get_or_create("a")
                assert [item async for item in session.stream("Hi")]


async def test_no_other_address_is_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with refusing() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        token = await asyncio.to_thread(keep, 80, "memory:")
        with token.serving():
            for url in ("http://agents.example", "http://127.0.0.1.example", "http://10.0.0.7"):
                async with Client(url, patience=SOON) as client:
                    with pytest.raises(Unauthorized):
                        await client.list()
                    with pytest.raises(Unauthorized):
                        await anext(aiter(client.session("a").follow(0)))
        assert len(proxy.heard) == 6
        assert not any("authorization" in one.lower() for one in proxy.heard)


async def test_of_several_addresses_only_this_machines_is_shown_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unavailable = b"HTTP/1.1 503 Later\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    port = free_port()
    async with Other(unavailable) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with running(port):
            urls = [f"http://agents.example:{port}", f"http://127.0.0.1:{port}"]
            async with Client(urls) as client:
                assert (await client.list()).items == []
        assert len(proxy.heard) == 1
        assert "authorization" not in proxy.heard[0].lower()


async def test_no_proxy_is_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    async with refusing() as proxy:
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with running(port):
            async with Client(f"http://127.0.0.1:{port}") as client:
                assert (await client.list()).items == []
            # Where a client of the program's own sends to is not known.
            async with (
                httpx.AsyncClient() as http,
                Client(f"http://127.0.0.1:{port}", http=http) as client,
            ):
                with pytest.raises(Unauthorized):
                    await client.list()
        assert not any("authorization" in one.lower() for one in proxy.heard)


@pytest.mark.parametrize("follows", [False, True])
async def test_nobody_is_shown_it_to_whom_the_server_sends_on(follows: bool) -> None:
    async with refusing() as target, sending(f"http://127.0.0.1:{target.port}/") as front:
        token = await asyncio.to_thread(keep, front.port, "memory:")
        with token.serving():
            http = httpx.AsyncClient(follow_redirects=follows)
            given = {"http": http, "key": token.token} if follows else {}
            async with http, Client(f"http://127.0.0.1:{front.port}", **given) as client:  # type: ignore[arg-type]
                with pytest.raises(WrongServer, match="redirects"):
                    await client.list()
                with pytest.raises(WrongServer, match="redirects"):
                    await anext(aiter(client.session("a").follow(0)))
        assert [token.token in one for one in front.heard] == [True, True]
        assert target.heard == []


async def test_who_took_the_port_of_a_server_that_ended_is_not_shown_it() -> None:
    async with refusing() as other:
        token = await asyncio.to_thread(keep, other.port, "memory:")
        assert not await asyncio.to_thread(token.served)
        async with Client(f"http://127.0.0.1:{other.port}", patience=SOON) as client:
            with pytest.raises(Unauthorized):
                await client.list()
        assert not any("authorization" in one.lower() for one in other.heard)


async def test_another_loopback_address_with_the_same_port_is_not_shown_it() -> None:
    other = refusing()
    other.port, other.host = free_port(), "127.0.0.2"
    async with other, running(other.port):
        async with Client(f"http://127.0.0.2:{other.port}", patience=SOON) as client:
            with pytest.raises(HoldfastError):
                await client.list()
        async with Client(f"http://127.0.0.1:{other.port}") as client:
            assert (await client.list()).items == []
    assert other.heard
    assert not any("hl_" in heard for heard in other.heard)


def test_many_who_ask_at_once_do_not_take_each_other_for_a_server() -> None:
    token = keep(free_port(), "memory:")
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(lambda _: token.served(), range(2_000)))
    with token.serving():
        assert token.served()


async def test_a_token_that_others_could_read_is_not_shown() -> None:
    port = free_port()
    async with running(port) as token:
        await asyncio.to_thread(token.path.chmod, 0o640)
        async with Client(f"http://127.0.0.1:{port}", patience=SOON) as client:
            with pytest.raises(InvalidValue, match="can be read by others") as told:
                await client.list()
            assert isinstance(told.value, HoldfastError)
            assert token.token not in str(told.value)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:7700", True),
        ("http://127.1.2.3", True),
        ("https://[::1]:7700", True),
        ("http://LOCALHOST", True),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
        ("http://0.0.0.0:7700", False),
        ("http://10.0.0.7", False),
        ("http://localhost.", False),
        ("http://127.1", False),
        ("http://2130706433", False),
    ],
)
def test_what_is_of_this_machine(url: str, here: bool) -> None:
    assert is_loopback(urlsplit(url).hostname) is here
