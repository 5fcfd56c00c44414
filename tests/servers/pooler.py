"""A pooling proxy for PostgreSQL in transaction mode, as PgBouncer is in it.

Many clients share few connections. One belongs to a client from the first message of a
transaction to the `ReadyForQuery` that says the transaction is over; then the next in the queue
has it, with all that was left in its session: prepared statements, settings, locks and listens
are somebody else's by then. Connections are handed out in turn, so that two transactions of one
client seldom meet the same. Settings in the startup message are refused, cancel requests ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import deque
from typing import Any, NamedTuple

from . import scram
from .process import free_port

SSL, GSS, CANCEL, VERSION_3 = 80877103, 80877104, 80877102, 196608
HARMLESS = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone"}
OPENS_A_ROUND = b"QS"  # each of these is answered by one ReadyForQuery
PATIENCE = 20.0  # seconds that a client waits for the server to take a connection
PIECE = 1 << 16

Message = tuple[bytes, bytes]  # the type, and what stands behind the length


class Target(NamedTuple):
    """The server behind, and who may use it."""

    host: str
    port: int
    passwords: dict[str, str]


class Refused(Exception):
    """The server does not take a connection: SQLSTATE and text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


class Framing:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> list[Message]:
        self._bytes += piece
        found: list[Message] = []
        at = 0
        while len(self._bytes) - at >= 5:
            (size,) = struct.unpack_from("!I", self._bytes, at + 1)
            end = at + 1 + size
            if len(self._bytes) < end:
                break
            found.append((bytes(self._bytes[at : at + 1]), bytes(self._bytes[at + 5 : end])))
            at = end
        del self._bytes[:at]
        return found


class Backend:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.framing = Framing()
        self.greeting: list[Message] = []
        self.client: Client | None = None
        self.rounds = 0  # how many ReadyForQuery are to come
        self.open = False  # messages were sent that no Sync has closed yet
        self.dead = False

    @classmethod
    async def login(cls, target: Target, user: str, database: str) -> Backend:
        backend = cls(*await asyncio.open_connection(target.host, target.port))
        words = f"user\0{user}\0database\0{database}\0client_encoding\0utf-8\0\0".encode()
        backend.writer.write(struct.pack("!II", len(words) + 8, VERSION_3) + words)
        talk = scram.Client(target.passwords[user])
        try:
            await backend._greet(talk)
        except BaseException:
            backend.close()
            raise
        return backend

    async def _greet(self, talk: scram.Client) -> None:
        while True:
            piece = await self.reader.read(PIECE)
            if not piece:
                raise Refused("08006", "the server closed the connection")
            for kind, body in self.framing.feed(piece):
                if kind == b"R":
                    if answer := talk.answer(body):
                        self.writer.write(pack(b"p", answer))
                elif kind == b"E":
                    raise Refused(*_error_of(body))
                elif kind == b"Z":
                    return
                elif kind == b"S":
                    self.greeting.append((kind, body))

    def send(self, message: Message) -> None:
        kind, body = message
        if kind in OPENS_A_ROUND:
            self.rounds += 1
            self.open = False
        else:
            self.open = True
        self.writer.write(pack(kind, body))

    def close(self) -> None:
        self.dead = True
        self.writer.close()


class Pool:
    """The connections of one user to one database, and the clients that wait for one."""

    def __init__(self, target: Target, user: str, database: str, size: int) -> None:
        self._target, self._user, self._database = target, user, database
        self._size = size
        self._all: set[Backend] = set()
        self._idle: deque[Backend] = deque()
        self._waiting: deque[asyncio.Future[Backend]] = deque()
        self._making = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self) -> Backend:
        """The connection that was used longest ago; waits for one when all are in use."""
        self._grow()
        while self._idle:
            if not (backend := self._idle.popleft()).dead:
                return backend
        turn: asyncio.Future[Backend] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(turn.result())
            raise

    def give(self, backend: Backend) -> None:
        if backend.dead:
            return
        while self._waiting:
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(backend)
                return
        self._idle.append(backend)

    def _grow(self) -> None:
        while len(self._all) + self._making < self._size:
            self._making += 1
            task = asyncio.create_task(self._make())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _make(self) -> None:
        try:
            backend = await self._login()
        except Refused as error:
            self._making -= 1
            while self._waiting:
                if not (turn := self._waiting.popleft()).done():
                    turn.set_exception(error)
            return
        self._making -= 1
        self._all.add(backend)
        self.give(backend)
        await self._listen(backend)

    async def _login(self) -> Backend:
        """A connection, as soon as the server takes one: it may be on its way up."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await Backend.login(self._target, self._user, self._database)
            except (OSError, Refused) as error:
                coming = isinstance(error, OSError) or error.code.startswith(("57P", "08"))
                if not coming or asyncio.get_running_loop().time() > end:
                    raise Refused(
                        "08006", f"the server does not take a connection: {error}"
                    ) from error
            await asyncio.sleep(0.05)

    async def _listen(self, backend: Backend) -> None:
        with contextlib.suppress(OSError):
            while piece := await backend.reader.read(PIECE):
                self._hand_on(backend, backend.framing.feed(piece))
        backend.close()
        self._all.discard(backend)
        if backend.client is not None:
            backend.client.fail("08006", "server conn crashed")
            backend.client = None
        if any(not turn.done() for turn in self._waiting):
            self._grow()

    def _hand_on(self, backend: Backend, messages: list[Message]) -> None:
        client = backend.client
        if client is None:
            return  # a notice for nobody
        client.writer.write(b"".join(pack(*message) for message in messages))
        for kind, body in messages:
            if kind == b"Z":
                backend.rounds -= 1
                if body == b"I" and not backend.rounds and not backend.open:
                    backend.client = client.backend = None
                    self.give(backend)


class Client:
    """One client, from its startup to its end."""

    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._pooler = pooler
        self.reader, self.writer = reader, writer
        self.backend: Backend | None = None

    async def serve(self) -> None:
        try:
            pool = await self._enter()
            if pool is not None:
                await self._relay(pool)
        except Refused as error:
            self.fail(error.code, error.text)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            if self.backend is not None:
                self.backend.client = None
                self.backend.close()  # in the midst of a transaction: nobody can go on with it
            self.writer.close()

    async def _enter(self) -> Pool | None:
        settings = await self._startup()
        if settings is None:
            return None
        user = settings.get("user", "")
        database = settings.get("database") or user
        if strange := sorted(set(settings) - HARMLESS):
            raise Refused("08P01", f"unsupported startup parameter: {strange[0]}")
        self.writer.write(pack(b"R", struct.pack("!I", 3)))
        kind, password = await self._one()
        known = self._pooler.target.passwords.get(user)
        if kind != b"p" or known is None or password != known.encode() + b"\0":
            raise Refused("28P01", f'password authentication failed for user "{user}"')
        pool = self._pooler.pool(user, database)
        backend = await pool.take()
        greeting = list(backend.greeting)
        pool.give(backend)
        greeting = [(b"R", struct.pack("!I", 0)), *greeting, (b"K", bytes(8)), (b"Z", b"I")]
        self.writer.write(b"".join(pack(*message) for message in greeting))
        return pool

    async def _startup(self) -> dict[str, str] | None:
        while True:
            size, code = struct.unpack("!II", await self.reader.readexactly(8))
            body = await self.reader.readexactly(size - 8)
            if code in (SSL, GSS):
                self.writer.write(b"N")
            elif code == VERSION_3:
                words = body.rstrip(b"\0").decode().split("\0")
                return dict(zip(words[::2], words[1::2], strict=False))
            else:
                return None  # a cancel request, or a protocol that we do not know

    async def _one(self) -> Message:
        kind = await self.reader.readexactly(1)
        (size,) = struct.unpack("!I", await self.reader.readexactly(4))
        return kind, await self.reader.readexactly(size - 4)

    async def _relay(self, pool: Pool) -> None:
        framing = Framing()
        while piece := await self.reader.read(PIECE):
            for message in framing.feed(piece):
                if message[0] == b"X":
                    return
                if self.backend is None:
                    self.backend = await pool.take()
                    self.backend.client = self
                self.backend.send(message)

    def fail(self, code: str, text: str) -> None:
        fields = f"SFATAL\0VFATAL\0C{code}\0M{text}\0\0".encode()
        self.backend = None
        with contextlib.suppress(OSError):
            self.writer.write(pack(b"E", fields))
        self.writer.close()


class Pooler:
    """Listens, and gives each client a turn on `size` connections per user and database."""

    def __init__(self, target: Target, *, size: int = 4) -> None:
        self.target = target
        self._size = size
        self._pools: dict[tuple[str, str], Pool] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    def pool(self, user: str, database: str) -> Pool:
        if (user, database) not in self._pools:
            self._pools[user, database] = Pool(self.target, user, database, self._size)
        return self._pools[user, database]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Client(self, reader, writer).serve()


class Pooling:
    """A pooler in a thread of its own, kept like a server. It has no state to lose."""

    def __init__(
        self, host: str, port: int, passwords: dict[str, str], database: str | None = None
    ) -> None:
        self._target = Target(host, port, passwords)
        (user, password), *_ = passwords.items()
        self.address: dict[str, Any] = {"port": free_port(), "user": user, "password": password}
        if database is not None:
            self.address["database"] = database
        self._loop = asyncio.new_event_loop()
        self._pooler = Pooler(self._target)

    def start(self) -> None:
        threading.Thread(target=self._loop.run_forever, name="pooler", daemon=True).start()
        listening = self._pooler.listen(self.address["port"])
        asyncio.run_coroutine_threadsafe(listening, self._loop).result()

    def quit(self) -> None:
        """It ends with its process."""

    kill = stop = freeze = thaw = quit


def pack(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _error_of(body: bytes) -> tuple[str, str]:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return fields.get(b"C", "XX000"), fields.get(b"M", "")
