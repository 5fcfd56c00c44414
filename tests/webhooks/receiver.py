"""A receiver of webhooks: a real HTTP server, whose answers a test chooses. It checks nothing by
itself; `verified` checks a signature as receivers do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook

LOOPBACK = ["127.0.0.0/8"]


@dataclass
class Delivery:
    """One request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def place(self) -> tuple[str, str, int]:
        """The event that it is about."""
        data = self.json["data"]
        return data["session"], data["thread"], data["seq"]

    def verified(self, secret: str) -> Any:
        """The body, if the signature is right. Raises `WebhookVerificationError` if it is not."""
        return Webhook(secret).verify(self.body, self.headers)


Answer = Callable[[Delivery], "int | bytes | str"]


@dataclass
class Receiver:
    """What arrived, and how to answer: a status, the raw bytes of an answer, "stall" (no answer),
    or "endless" (an answer whose body never ends)."""

    answer: Answer = lambda _: 204
    got: list[Delivery] = field(default_factory=list)
    accepted: list[Delivery] = field(default_factory=list)
    url: str = ""
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, enough: Callable[[Receiver], bool]) -> None:
        """Wait until enough has arrived."""
        async with self.news:
            await asyncio.wait_for(self.news.wait_for(lambda: enough(self)), 60)

    def places(self) -> list[tuple[str, str, int]]:
        """The accepted events, each when it first came."""
        return list(dict.fromkeys(one.place for one in self.accepted))


@asynccontextmanager
async def receiving(
    answer: Answer = lambda _: 204, port: int = 0
) -> AsyncGenerator[Receiver, None]:
    """A receiver at a loopback address."""
    receiver, tasks = Receiver(answer), set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await _one(receiver, reader, writer):
                    pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    try:
        at = server.sockets[0].getsockname()[1]
        receiver.url = f"http://127.0.0.1:{at}/hook"
        yield receiver
    finally:
        server.close()
        for _ in range(3):  # connections that were just accepted are ended too
            await asyncio.sleep(0)
            for task in [*tasks]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _one(
    receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = (line.partition(": ") for line in head[1:] if line)
    headers = {name.lower(): value for name, _, value in fields}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    got = Delivery(head[0].split(" ")[1], headers, body)
    answer = receiver.answer(got)
    async with receiver.news:
        receiver.got.append(got)
        if isinstance(answer, int) and 200 <= answer < 300:
            receiver.accepted.append(got)
        receiver.news.notify_all()
    if answer == "stall":
        await asyncio.Event().wait()
    if answer == "endless":
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()
    if isinstance(answer, int):
        answer = f"HTTP/1.1 {answer} Said\r\ncontent-length: 0\r\n\r\n".encode()
    assert isinstance(answer, bytes)
    writer.write(answer)
    await writer.drain()
    return True
