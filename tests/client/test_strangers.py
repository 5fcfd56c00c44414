"""What answers at an address and is no Holdfast server: said at once, and as what it is. And what a
client says of mistakes that are its caller's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Client, Patience, Session
from holdfast.client.sync import Client as SyncClient
from holdfast.errors import (
    Forbidden,
    HarnessClosed,
    HoldfastError,
    InvalidValue,
    ServerError,
    ServerUnavailable,
    Unauthorized,
    WrongServer,
)

from ..server.test_starting import certificate
from .scene import PATIENCE, SECRET, connected

NEVER = Patience(reach=600.0, total=600.0)  # so that whatever is tried again hangs
PAGE = "<!doctype html><title>Welcome</title>"
Verb = Callable[[Client], Awaitable[Any]]


@contextlib.asynccontextmanager
async def answering(
    status: str, body: str = "", type: str | None = None
) -> AsyncGenerator[str, None]:
    """Another program, which gives the same answer to everybody; where it is."""
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close"]
    head += [] if type is None else [type if ":" in type else f"content-type: {type}"]

    asked: set[asyncio.Task[Any] | None] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write("\r\n".join([*head, "", body]).encode())
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*(task for task in asked if task is not None))


@contextlib.contextmanager
def behind_tls(tls: ssl.SSLContext | None) -> Iterator[str]:
    """What takes connections and answers nobody, with TLS or in plain words; where it is."""
    server, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def accept() -> None:
        while not over.is_set():
            taken, _ = server.accept()
            with taken, contextlib.suppress(OSError):
                taken.settimeout(PATIENCE)
                if tls is None:
                    taken.recv(1)
                    taken.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                else:
                    tls.wrap_socket(taken, server_side=True).close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        over.set()
        socket.create_connection(server.getsockname()).close()  # the last that it accepts
        thread.join()
        server.close()


async def follow(client: Client) -> None:
    async for _ in client.session("s").follow(0):
        pass


async def people(client: Client) -> None:
    async for _ in client.people.export("ann"):
        pass


VERBS: dict[str, Verb] = {
    "health": lambda client: client.health(),
    "open": lambda client: client.open("s"),
    "begin": lambda client: client.get_or_create("s"),
    "send": lambda client: client.session("s").send("Hello"),
    "delete": lambda client: client.delete("s"),
    "thread": lambda client: client.session("s").threads.delete("t"),
    "display": lambda client: client.session("s").display.get(),
    "export": lambda client: client.bundles.export("s"),
    "remove": lambda client: client.session("s").files.remove("x"),
    "write": lambda client: client.session("s").files.write("x", "y"),
    "follow": follow,
    "people": people,
}
OTHERS = {
    "page": ("200 OK", PAGE, "text/html; charset=utf-8"),
    "sent elsewhere": ("302 Found", "", "location: https://ann:pw@login.example/in?token=s3cr3t"),
    "not there": ("404 Not Found", "404 page not found", "text/plain"),
}


async def raised(url: str, verb: Verb, patience: Patience = NEVER) -> HoldfastError:
    async with Client(url, SECRET, patience=patience) as client, asyncio.timeout(PATIENCE):
        with pytest.raises(HoldfastError) as found:
            await verb(client)
    assert SECRET not in str(found.value)
    return found.value


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("other", OTHERS)
async def test_another_program_is_told_at_once(other: str, verb: str) -> None:
    async with answering(*OTHERS[other]) as where:
        error = await raised(f"http://{where}", VERBS[verb])
    assert (type(error), error.retryable) == (WrongServer, False)
    assert f"http://{where} is not a Holdfast server" in str(error)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("export", "remove")])
@pytest.mark.parametrize("body", ['{"ok": true}', "[1]", ""])
async def test_so_is_one_that_speaks_json(body: str, verb: str) -> None:
    if (body, verb) == ("", "thread"):
        body = '"gone"'  # since ours says nothing either
    async with answering("200 OK", body, "application/json") as where:
        error = await raised(f"http://{where}", VERBS[verb])
    assert type(error) is WrongServer
    assert where in str(error)


async def test_where_an_address_sends_to_is_told_without_what_may_be_secret() -> None:
    async with answering(*OTHERS["sent elsewhere"]) as where:
        error = await raised(f"http://{where}", follow)
    assert "302 to https://login.example" in str(error)
    assert "pw" not in str(error)
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize("verb", ["health", "follow"])
@pytest.mark.parametrize(
    ("status", "kind"), [("401 Unauthorized", Unauthorized), ("403 Forbidden", Forbidden)]
)
async def test_a_proxy_that_lets_nobody_pass_is_no_failure_of_the_server(
    status: str, kind: type[HoldfastError], verb: str
) -> None:
    async with answering(status, PAGE, "text/html") as where:
        error = await raised(f"http://{where}", VERBS[verb])
    assert type(error) is kind
    assert f"http://{where} returned {status[:3]}" in str(error)
    assert "proxy" in str(error)


async def test_a_failure_without_a_reason_stays_one() -> None:
    async with answering("500 Oh", PAGE, "text/html") as where:
        error = await raised(f"http://{where}", VERBS["health"])
    assert (type(error), getattr(error, "status", None)) == (ServerError, 500)


@pytest.mark.parametrize("verb", ["health", "follow"])
async def test_why_tls_failed_is_told(tmp_path: Path, verb: str) -> None:
    certificate(tmp_path, "own")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "own.pem", tmp_path / "own.key")
    short = Patience(reach=0.1)
    with behind_tls(tls) as where:
        error = await raised(f"https://{where}", VERBS[verb], short)
    assert type(error) is ServerUnavailable
    assert "certificate is not trusted: self-signed certificate" in str(error)
    with behind_tls(None) as where:
        error = await raised(f"https://{where}", VERBS[verb], short)
    assert "TLS: " in str(error)
    assert "check that the server speaks https" in str(error)


# What the caller has wrong


async def test_a_number_past_the_end_is_said_to_be() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        head = (await session.events())[-1].seq
        for after in (99_999, "99999", head + 1):
            with pytest.raises(InvalidValue, match=f"{after} is past the end") as past:
                async for _ in session.follow(after):
                    pass
            assert f"last event: {head}" in str(past.value)
            assert (past.value.field, past.value.limit) == ("after", head)
        items = aiter(session.follow(head))
        assert getattr(await anext(items), "head", None) == head
        await items.aclose()


@pytest.mark.parametrize("length", [600, 100_000])
async def test_an_id_that_is_too_long_is_called_the_id(length: int) -> None:
    long = "x" * length
    verbs: list[Verb] = [
        lambda client: client.get_or_create(long),
        lambda client: client.open(long),
        lambda client: client.session(long).send("Hello"),
        lambda client: client.bundles.export(long),
    ]
    async with connected() as client, asyncio.timeout(PATIENCE):
        for verb in verbs:
            with pytest.raises(InvalidValue, match=f"has {length} bytes") as found:
                await verb(client)
            assert found.value.field == "id"


async def test_a_closed_client_is_called_a_client() -> None:
    def without_await() -> None:
        client = SyncClient("http://127.0.0.1:9", SECRET)
        client.close()
        with pytest.raises(HarnessClosed, match="the client is closed"):
            client.health()

    await asyncio.to_thread(without_await)
    client = Client("http://127.0.0.1:9", SECRET)
    await client.aclose()
    session: Session = client.session("s")
    with pytest.raises(HarnessClosed, match="the client is closed"):
        await session.status()
