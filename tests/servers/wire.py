"""A proxy that does to connections what networks do: cuts, delays, loses, and goes silent.

It forwards bytes in a thread of its own and knows nothing of what they mean. All methods may be
called from any thread, and have taken effect when they return.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

from .process import free_port

T = TypeVar("T")
End = Literal["reset", "close"]
Lost = Literal["request", "reply"]
PIECE = 1 << 16


class Link:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near, self.far = near, far
        self.asked = False  # something was sent to the server that it has not answered yet

    def end(self, how: End) -> None:
        for writer in (self.near, self.far):
            if how == "reset":
                end = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()


class Wire:
    """A way to the server at `target` (a port) that can be broken. Use it with `with`.

    A reply is what the server sends after it was asked something; a request is what is sent to
    it before it answers. Both are counted over all connections.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._delay = 0.0
        self._silent = False
        self._armed: tuple[Lost, int] | None = None
        self._how: End = "reset"
        self._count = 0
        self.cuts = 0  # how many connections were ended by us

    def __enter__(self) -> Wire:
        self._thread.start()
        self._do(self._listen)
        return self

    def __exit__(self, *error: object) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, how: End = "reset") -> int:
        """End every connection; returns how many there were."""
        return self._call(lambda: self._cut(how))

    @contextlib.contextmanager
    def cutting(self, every: float = 1.0, how: End = "reset") -> Iterator[None]:
        """End every connection again and again."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(every):
                self.cut(how)

        thread = threading.Thread(target=run, name="cutting", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextlib.contextmanager
    def delaying(self, seconds: float) -> Iterator[None]:
        """Every piece that passes waits so long, in both directions."""
        self._call(lambda: setattr(self, "_delay", seconds))
        try:
            yield
        finally:
            self._call(lambda: setattr(self, "_delay", 0.0))

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """A black hole: connections stay and new ones are taken, but nothing passes. What was
        lost is lost: in the end all connections are cut."""
        self._call(lambda: setattr(self, "_silent", True))
        try:
            yield
        finally:
            self._call(self._speak)

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """No new connections, and the old ones are cut, as when nothing listens there."""
        self._do(self._unlisten)
        self.cut()
        try:
            yield
        finally:
            self._do(self._listen)

    def lose(self, what: Lost, nth: int = 1, *, how: End = "reset") -> None:
        """Arm: end every connection at the `nth` request from now, before it is forwarded, or at
        the `nth` reply, which the server gave and the client never sees."""
        self._call(lambda: self._arm((what, nth), how))

    @property
    def lost(self) -> bool:
        """Whether that has happened."""
        return self._call(lambda: self._armed is None)

    def disarm(self) -> int:
        """Lose nothing more; returns how many requests or replies were counted."""

        def stop() -> int:
            self._armed = None
            return self._count

        return self._call(stop)

    # In the proxy's own thread

    def _call(self, do: Callable[[], T]) -> T:
        async def call() -> T:
            return do()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _do(self, do: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(do(), self._loop).result()  # type: ignore[arg-type]  # all are coroutine functions

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _unlisten(self) -> None:
        if self._server is not None:
            # A server that closes forgets connections that it has taken and not begun yet.
            for listening in self._server.sockets:
                self._loop.remove_reader(listening.fileno())
            await _settle()
            self._server.close()
            self._server = None

    async def _close(self) -> None:
        await self._unlisten()
        self._cut("reset")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await _settle()

    async def _accept(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, near)
        except asyncio.CancelledError:
            pass  # the proxy closes; its server would call this an error
        finally:
            if not near.is_closing():
                near.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        try:
            answers, far = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            Link(near, near).end("reset")
            return
        link = Link(near, far)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pass(reader, far, lambda: self._lost(link, "request")),
                self._pass(answers, near, lambda: self._lost(link, "reply")),
            )
        finally:
            self._links.discard(link)
            link.end("close")

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        lost: Callable[[], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                if self._delay:
                    await asyncio.sleep(self._delay)
                if self._silent:
                    continue
                if lost():
                    self._armed = None
                    self._cut(self._how)
                    return
                writer.write(piece)
                await writer.drain()
        if not self._silent:
            writer.close()

    def _lost(self, link: Link, what: Lost) -> bool:
        """Whether this piece is the one to lose. Pieces of one request are one, so are those of
        one reply."""
        begins = link.asked == (what == "reply")
        link.asked = what == "request"
        if self._armed is None or not begins or self._armed[0] != what:
            return False
        self._count += 1
        return self._count == self._armed[1]

    def _arm(self, armed: tuple[Lost, int], how: End) -> None:
        self._armed, self._how, self._count = armed, how, 0

    def _cut(self, how: End) -> int:
        count = len(self._links)
        for link in self._links:
            link.end(how)
        self._links.clear()
        self.cuts += count
        return count

    def _speak(self) -> None:
        self._silent = False
        self._cut("reset")


async def _settle() -> None:
    """Let what the loop has begun come to its next step, a few times over."""
    for _ in range(5):
        await asyncio.sleep(0)
