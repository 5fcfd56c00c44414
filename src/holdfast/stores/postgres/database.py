"""Connections: one pool per store, retries, and the server's clock.

A `Link` is a connection that knows the name of the schema. A job is a coroutine function with a
link as its argument. `PostgresDatabase.run` runs a job, in a transaction unless it is a single
statement, and repeats it if the connection is lost. So every job must be safe to repeat.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import asyncpg
from asyncpg import Connection, Pool, Record

from ...errors import InvalidValue, StoreUnavailable
from ..event_loop import OwnLoop
from ..retry import patiently
from ..url_options import parse_query, read_options
from .failure import broken, passing, translated

T = TypeVar("T")
AnyPool: TypeAlias = "Pool[Record]"
Isolation: TypeAlias = Literal["read_committed", "repeatable_read"]

CONNECT = 10.0  # seconds to open a connection
SLOW = 60.0  # seconds for a statement with much data; other statements have half the patience
FOR_EVER = 86_400.0  # seconds; in effect no limit
# Force index scans: every statement has an index, so its plan does not depend on table sizes.
PLANS = dict.fromkeys(
    (
        "jit",
        "enable_seqscan",
        "enable_bitmapscan",
        "enable_hashjoin",
        "enable_mergejoin",
        "enable_memoize",
    ),
    "off",
)
FLUSHED = "SELECT set_config('synchronous_commit', 'on', true)"
HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::(\d*))?")  # a host with its port
CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class Link:
    """A connection that replaces the prefix `hf.` in statements by the store's schema. `prepared`
    contains its prepared statements, if the connection is kept open."""

    def __init__(
        self, conn: Any, schema: str, within: float, prepared: dict[str, Any] | None = None
    ) -> None:
        self.conn: Connection[Record] = conn
        self.schema = schema
        self._within = within  # seconds for each statement
        self._prepared = prepared

    async def rows(self, sql: str, *values: Any) -> list[Record]:
        return await self.conn.fetch(self._sql(sql), *values, timeout=self._within)

    async def row(self, sql: str, *values: Any) -> Record | None:
        return await self.conn.fetchrow(self._sql(sql), *values, timeout=self._within)

    async def call(self, sql: str, *values: Any) -> Record:
        """Run a frequent statement that always returns one row, and return the row."""
        if self._prepared is None:
            found = await self.row(sql, *values)
        else:
            statement = self._prepared.get(sql)
            if statement is None:
                statement = await self.conn.prepare(self._sql(sql), timeout=self._within)
                self._prepared[sql] = statement
            found = await statement.fetchrow(*values, timeout=self._within)
        assert found is not None
        return found

    async def value(self, sql: str, *values: Any) -> Any:
        return await self.conn.fetchval(self._sql(sql), *values, timeout=self._within)

    async def run(self, sql: str, *values: Any) -> int:
        """Execute a statement. Returns the number of changed rows."""
        done = await self.conn.execute(self._sql(sql), *values, timeout=self._within)
        words = done.split()
        return int(words[-1]) if words[-1:] and words[-1].isdigit() else 0

    async def each(self, sql: str, values: list[list[Any]]) -> list[Record]:
        """Run a statement once for each list of values, all in one transaction. Returns one row for
        each."""
        return await self.conn.fetchmany(self._sql(sql), values, timeout=self._within)

    async def script(self, sql: str) -> None:
        """Execute several statements without values."""
        text = re.sub(r"\bhf([.;])", rf'"{self.schema}"\1', sql)
        await self.conn.execute(text, timeout=self._within)

    def _sql(self, sql: str) -> str:
        return _in_schema(sql, self.schema)


@functools.lru_cache(256)
def _in_schema(sql: str, schema: str) -> str:
    return sql.replace("hf.", f'"{schema}".')


class Options:
    """Holdfast's own options of a URL; all others are passed to the driver."""

    def __init__(self, url: str) -> None:
        parts = _split(url)
        given = parse_query(parts.query)
        ours = read_options("postgres", given)
        self.schema: str = ours["schema"]
        self.pooled = ours["pooler"] == "transaction"
        self.listen_url: str | None = ours["listen_url"]
        self.patience: float = ours["patience"]
        self.connections: int = ours["connections"]
        self.migrates = ours["migrate"] == "auto"
        query = urlencode(given, quote_via=quote)
        self.url = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
        self.location = _location(parts, given, self.schema)


class PostgresDatabase:
    """A pool of connections to one schema."""

    def __init__(self, pool: AnyPool, options: Options, *, owned: bool) -> None:
        self.pool, self.own_loop = pool, OwnLoop("the store")
        self.options = options
        self._owned = owned
        self._closed = False
        self._careless = False  # whether the server's default is not to flush commits
        self._quick = max(1.0, options.patience / 2)
        self._kept: list[tuple[Any, dict[str, Any]]] = []
        # The most connections that are kept outside of the pool; none if the caller owns the pool.
        self._keep = pool.get_max_size() // 3 if owned else 0
        self._clock_at = (0.0, 0)

    def __repr__(self) -> str:
        return f"Database({self.options.location!r})"

    @classmethod
    async def open(cls, url: str, *, pool: AnyPool | None = None) -> PostgresDatabase:
        """Open a pool of connections. If the caller passes a pool, it is used instead, and the
        caller must close it."""
        options = Options(url)
        if pool is not None:
            return cls(pool, options, owned=False)
        # Connections are opened on demand, so only the URL can fail here.
        return cls(await _pool(options), options, owned=True)

    async def run(
        self,
        job: Callable[[Link], Awaitable[T]],
        *,
        whole: bool = True,
        snapshot: bool = False,
        within: float | None = None,
    ) -> T:
        """Run a job and return its result. With `whole`, the job runs in one transaction; with
        `snapshot`, all its statements see the same state of the database. A job that is a single
        statement needs no transaction, except through a pooler, which assigns connections per
        transaction. Each statement is limited to `within` seconds."""
        if not (whole or self.options.pooled or self._careless):
            return await self._patiently(lambda: self._at_hand(job, within))
        isolation: Isolation = "repeatable_read" if snapshot else "read_committed"

        async def attempt() -> T:
            async with (
                self._link(within) as link,
                link.conn.transaction(isolation=isolation),
            ):
                if self._careless:
                    await link.run(FLUSHED)
                return await job(link)

        return await self._patiently(attempt)

    async def alone(self, sql: str) -> None:
        """Execute a statement that cannot run in a transaction, without a time limit."""

        async def attempt() -> None:
            async with self._link(FOR_EVER) as link:
                await link.script(sql)

        await self._patiently(attempt)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        self.own_loop.check()
        with translated():
            return await patiently(
                attempt, passing, patience=self.options.patience, what=self.options.location
            )

    async def _at_hand(self, job: Callable[[Link], Awaitable[T]], within: float | None) -> T:
        """Run a single statement on an idle connection that stays outside of the pool. Acquiring
        and releasing a pooled connection would take about 10% of the time of an append."""
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")
        conn, prepared = self._kept.pop() if self._kept else (await self.pool.acquire(), None)
        try:
            result = await job(Link(conn, self.options.schema, within or self._quick, prepared))
        except BaseException as error:
            if broken(error):
                conn.terminate()
            await self.pool.release(conn)
            raise
        if len(self._kept) < self._keep and not self._closed:
            self._kept.append((conn, {} if prepared is None else prepared))
        else:
            await self.pool.release(conn)
        return result

    @asynccontextmanager
    async def _link(self, within: float | None) -> AsyncGenerator[Link, None]:
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")
        async with self.pool.acquire() as conn:
            try:
                yield Link(conn, self.options.schema, within or self._quick)
            except Exception as error:
                if broken(error):
                    conn.terminate()  # the pool opens another
                raise

    async def see_to_flushing(self) -> None:
        """Ensure that commits wait for the flush to disk, even if the server's default is not to
        wait."""
        setting = await self.run(lambda link: link.value("SHOW synchronous_commit"), whole=False)
        self._careless = setting == "off"

    @property
    def can_say(self) -> bool:
        """Whether this store can send notifications. It cannot if the connection for them would be
        the only one in the caller's pool."""
        return self._owned or self.options.listen_url is not None or self.pool.get_max_size() > 1

    @property
    def can_listen(self) -> bool:
        """Whether this store can receive notifications. It cannot through a pooler that assigns
        connections per transaction."""
        return self.can_say and (not self.options.pooled or self.options.listen_url is not None)

    @asynccontextmanager
    async def apart(self) -> AsyncGenerator[Any, None]:
        """Context manager that holds a connection for a long time: a new one outside the pool or,
        if the caller passed a pool and there is no `listen_url`, one from that pool."""
        options = self.options
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")
        if not self._owned and options.listen_url is None:
            async with self.pool.acquire(timeout=CONNECT) as held:
                yield held
            return
        conn = await asyncpg.connect(
            options.listen_url or options.url,
            timeout=CONNECT,
            command_timeout=SLOW,
            statement_cache_size=0 if options.pooled else 16,
        )
        try:
            yield conn
        finally:
            with suppress(Exception):
                await asyncio.wait_for(conn.close(), 1.0)
            conn.terminate()

    # The server's clock

    async def set_clock(self) -> None:
        """Read the server's clock, so that all machines use the same time."""
        began = time.monotonic()
        now = await self.run(lambda link: link.value(CLOCK), whole=False)
        self.hear_clock(began, now)

    def hear_clock(self, began: float, now: int) -> None:
        """Update the estimate of the server's clock with its time `now`, the reply to a query sent
        at `began`. It counts as the time of the reply, so the estimate is never ahead of the
        server, and due work is found at once. If the reply took long, `now` may be too far behind,
        and is used only if it is ahead of the current estimate."""
        heard = time.monotonic()
        if heard - began < 1.0 or now > self.clock():
            self._clock_at = (heard, now)

    def clock(self) -> int:
        """Return the server's time in ms, estimated from its last reply."""
        at, now = self._clock_at
        return now + int((time.monotonic() - at) * 1000)

    async def aclose(self) -> None:
        closed, self._closed = self._closed, True
        while self._kept:
            with suppress(OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                await self.pool.release(self._kept.pop()[0])
        if self._owned and not closed:
            # A connection that hangs must not keep the program from ending.
            try:
                await asyncio.wait_for(self.pool.close(), CONNECT)
            except (TimeoutError, OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                self.pool.terminate()


async def _pool(options: Options) -> AnyPool:
    settings = {"application_name": "holdfast"}
    if not options.pooled:
        settings |= PLANS
    try:
        return await asyncpg.create_pool(
            options.url,
            min_size=0,
            max_size=options.connections,
            max_inactive_connection_lifetime=300,
            timeout=CONNECT,
            command_timeout=SLOW,
            statement_cache_size=0 if options.pooled else 256,
            server_settings=settings,
            reset=_leave,
        )
    except (ValueError, asyncpg.InterfaceError) as error:
        raise unreadable() from error


async def _leave(conn: Any) -> None:
    """Reset nothing when a connection is released to the pool, because no job changes its
    settings."""


# Parsing a URL. Errors do not repeat it, since it may contain a password.


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise unreadable() from error
    if "@" in parts.path + parts.query + parts.fragment:
        raise unreadable()  # part of a password that is not escaped
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = HOST.fullmatch(host)
        if port is None or int(port[1] or 1) not in range(1, 1 << 16):
            raise unreadable()
    return parts


def unreadable() -> InvalidValue:
    return InvalidValue(
        field="url",
        problem="is not a PostgreSQL URL",
        remedy="write postgresql://USER:PASSWORD@HOST:PORT/DATABASE and escape special characters",
    )


def _location(parts: Any, given: dict[str, str], schema: str) -> str:
    hosts = given.get("host") or parts.netloc.rpartition("@")[2] or "localhost"
    return f"{hosts}{parts.path} schema {schema}"
