"""What only the PostgreSQL store has: its pool, its schema, its versions, its notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast import CaughtUp, InvalidValue, MissingExtra, NewEvent, StoreError, StoreTooNew, key
from holdfast.store import Acquire
from holdfast.stores.postgres import PostgresStore, schema_state
from holdfast.stores.postgres.database import Options
from holdfast.stores.postgres.notices import PostgresNotices
from holdfast.stores.postgres.text_tables import TABLE_NAMES

from .. import servers
from ..servers import faults

NOTE = "note.made"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return servers.url("postgres", tmp_path)


@pytest.fixture
async def direct(url: str) -> AsyncGenerator[Any, None]:
    """A connection beside the store's."""
    conn = await asyncpg.connect(url.partition("?")[0])
    yield conn
    await conn.close()


def schema_of(url: str) -> str:
    return Options(url).schema


async def begin(store: holdfast.Store, session: str = "s") -> None:
    await store.append(key(session), [NewEvent.of(NOTE, {"n": 0}, id="first")], create=True)


# Opening


async def test_a_new_schema_is_made_and_opening_again_changes_nothing(url: str) -> None:
    assert await schema_state(url) == (0, 5)
    async with holdfast.connect(url) as store:
        await begin(store)
        assert store.info().schema == 5
    assert await schema_state(url) == (5, 5)
    async with holdfast.connect(url) as store:
        assert (await store.row(key("s"))) is not None


async def test_two_schemas_of_one_database_are_two_stores(tmp_path: Path) -> None:
    urls = [servers.url("postgres", tmp_path / name) for name in ("one", "two")]
    async with holdfast.connect(urls[0]) as one, holdfast.connect(urls[1]) as two:
        await begin(one)
        assert await two.row(key("s")) is None


async def test_with_migrate_never_a_missing_schema_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="holdfast migrate"):
        await holdfast.connect(url + "&migrate=never")
    assert await schema_state(url) == (0, 5)


async def test_a_schema_that_needs_a_newer_program_is_refused(url: str, direct: Any) -> None:
    async with holdfast.connect(url):
        pass
    await direct.execute(f'UPDATE "{schema_of(url)}".meta SET version = 9, oldest = 6')
    with pytest.raises(StoreTooNew) as refused:
        await holdfast.connect(url)
    assert (refused.value.found, refused.value.known) == (9, 5)


async def test_a_newer_schema_that_keeps_our_function_is_used(url: str, direct: Any) -> None:
    async with holdfast.connect(url):
        pass
    await direct.execute(f'UPDATE "{schema_of(url)}".meta SET version = 9, oldest = 1')
    async with holdfast.connect(url) as store:
        await begin(store)
        assert [event.id async for event in store.read(key("s"))] == ["first"]


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("schema=Upper", "schema"),
        ("schema=a%22b", "schema"),
        ("schema=pg_catalog", "schema"),
        ("pooler=session", "pooler"),
        ("patience=no", "patience"),
        ("connections=0", "connections"),
        ("migrate=perhaps", "migrate"),
    ],
)
async def test_a_wrong_option_is_named(option: str, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        await holdfast.connect(f"postgresql://user:secret@127.0.0.1/db?{option}")
    assert refused.value.field == field
    assert "secret" not in str(refused.value)


async def test_a_database_in_another_encoding_is_refused(url: str) -> None:
    name = f"latin_{schema_of(url)}"
    async with faults.admin(servers.address("postgres")) as sql:
        await sql.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            base, _, options = url.partition("?")
            with pytest.raises(InvalidValue, match="LATIN1"):
                await holdfast.connect(f"{base.rpartition('/')[0]}/{name}?{options}")
        finally:
            await sql.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module in [name for name in sys.modules if name.startswith("holdfast.stores.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    async def connect() -> None:
        await holdfast.connect("postgresql://localhost/db")

    with pytest.raises(MissingExtra) as missing:
        asyncio.run(connect())
    assert missing.value.extra == "postgres"


# The pool


@pytest.mark.parity("user-demand", 38)
async def test_many_sessions_share_a_bounded_pool(url: str) -> None:
    async with holdfast.connect(url + "&connections=3") as store:
        assert isinstance(store, PostgresStore)
        run = store._database.run
        await asyncio.gather(*[begin(store, f"s{n}") for n in range(50)])
        asked = [run(lambda link: link.value("SELECT pg_backend_pid()")) for _ in range(50)]
        assert 1 <= len(set(await asyncio.gather(*asked))) <= 3


@pytest.mark.parity("user-demand", 38)
async def test_a_pool_of_the_callers_is_used_and_left_open(url: str) -> None:
    async with asyncpg.create_pool(url.partition("?")[0], min_size=1, max_size=2) as pool:
        store: holdfast.Store = await PostgresStore.open(
            f"postgresql://?schema={schema_of(url)}", pool=pool
        )
        await begin(store)
        following = store.follow(key("s"))
        assert isinstance(await anext(following), holdfast.Event)
        await following.aclose()
        await store.append(key("s"), [NewEvent.of(NOTE)])
        await store.aclose()
        assert await pool.fetchval("SELECT 1") == 1
        assert pool.get_idle_size() == pool.get_size()
    async with holdfast.connect(url) as store:
        assert await store.row(key("s")) is not None


async def test_a_function_that_changes_under_a_prepared_call_is_called_anew(
    url: str, direct: Any
) -> None:
    async with holdfast.connect(url) as store:
        await begin(store)
        for n in range(3):
            await store.append(key("s"), [NewEvent.of(NOTE, {"n": n})])
        name = f"{schema_of(url)}.append_3"
        made = await direct.fetchval("SELECT pg_get_functiondef($1::regproc)", name)
        changed = made.replace("OUT known_seqs bigint[]", "OUT known_seqs bigint[], OUT more text")
        assert changed != made
        async with direct.transaction():
            await direct.execute(f"DROP FUNCTION {name}")
            await direct.execute(changed)
        for n in range(3):
            await store.append(key("s"), [NewEvent.of(NOTE, {"n": n})])
        assert [event.seq async for event in store.read(key("s"))] == [*range(1, 8)]


async def test_no_connection_of_the_callers_is_kept_between_calls(url: str) -> None:
    """So that the caller may close the pool whenever they like; one may be held for notices."""
    async with asyncpg.create_pool(url.partition("?")[0], min_size=1, max_size=9) as pool:
        store = await PostgresStore.open(f"postgresql://?schema={schema_of(url)}", pool=pool)
        await asyncio.gather(*[begin(store, f"s{n}") for n in range(20)])
        assert pool.get_size() - pool.get_idle_size() <= 1
        await store.aclose()


async def test_nothing_is_left_behind_on_a_connection(url: str) -> None:
    """Our pool undoes nothing when a connection is given back, so nothing may need it."""
    async with holdfast.connect(url + "&connections=1") as store:
        await begin(store)
        await store.put_blob(key("s").scope, b"x")
        lease = await store.acquire(key("s"), "driver")
        await store.release(lease)
        await store.delete(key("s").scope)
        assert isinstance(store, PostgresStore)
        async with store._database.pool.acquire() as conn:
            settings = await conn.fetch("SELECT name FROM pg_settings WHERE source = 'session'")
            locks = await conn.fetch(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            )
    # The driver itself turns JIT off while it learns the types of a statement.
    assert {record["name"] for record in settings} <= {"jit"}
    assert locks == []


@pytest.mark.parametrize("how", ["append", "fork", "restore"])
async def test_what_is_acknowledged_is_flushed_though_the_server_would_not_wait(
    url: str, direct: Any, how: str
) -> None:
    """A trigger notes the setting at the very end of each transaction that wrote an event."""
    schema = schema_of(url)
    user = await direct.fetchval("SELECT current_user")
    async with faults.admin(servers.address("postgres")) as sql, holdfast.connect(url) as store:
        await begin(store)
        await direct.execute(SEEN.replace("hf", f'"{schema}"'))
        await sql.execute(f'ALTER ROLE "{user}" SET synchronous_commit = off')
        try:
            async with holdfast.connect(url) as careless:
                if how == "append":
                    await careless.append(key("s"), [NewEvent.of(NOTE)])
                elif how == "fork":
                    await careless.fork(key("s"), "side", at=1, first=NewEvent.of("thread.forked"))
                else:
                    await careless.restore(key("t"), careless.read(key("s")))
        finally:
            await sql.execute(f'ALTER ROLE "{user}" RESET synchronous_commit')
        seen = await direct.fetch(f'SELECT setting FROM "{schema}".seen')
    assert {record["setting"] for record in seen} == {"on"}


SEEN = """
CREATE TABLE hf.seen (setting text);
CREATE FUNCTION hf.see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hf.seen VALUES (current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER see AFTER INSERT ON hf.events DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION hf.see();
"""


# PostgresNotices


async def test_a_follower_hears_of_another_process_by_a_notice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.notices.LOOK", 3_600.0)
    async with holdfast.connect(url) as ours, holdfast.connect(url) as theirs:
        await begin(ours)
        following = ours.follow(key("s"))
        assert isinstance(await anext(following), holdfast.Event)
        assert isinstance(await anext(following), CaughtUp)
        await heard(following, theirs)


async def test_a_lost_notice_loses_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(self: PostgresNotices, conn: object) -> None:
        self._said.clear()

    monkeypatch.setattr(PostgresNotices, "_say", silent)
    async with holdfast.connect(url) as ours, holdfast.connect(url) as theirs:
        await begin(ours)
        following = ours.follow(key("s"), after=1)
        assert isinstance(await anext(following), CaughtUp)
        await theirs.append(key("s"), [NewEvent.of(NOTE, id="second")])
        event = await asyncio.wait_for(anext(following), 60)
        assert isinstance(event, holdfast.Event)
        assert event.id == "second"
        await following.aclose()


async def test_through_a_pooler_with_a_listen_url_notices_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib.parse import quote

    monkeypatch.setattr("holdfast.stores.postgres.notices.LOOK", 3_600.0)
    straight = servers.url("postgres", tmp_path)
    pooled = servers.url("pooled", tmp_path)
    listening = f"{pooled}&listen_url={quote(straight.partition('?')[0], safe='')}"
    async with holdfast.connect(listening) as ours, holdfast.connect(pooled) as theirs:
        await begin(ours)
        following = ours.follow(key("s"), after=1)
        assert isinstance(await anext(following), CaughtUp)
        await heard(following, theirs)


async def heard(
    following: AsyncGenerator[holdfast.Event | CaughtUp, None], by: holdfast.Store
) -> None:
    """Append until a follower, who begins to listen at some moment, hears of it."""
    hears = asyncio.ensure_future(anext(following))
    async with asyncio.timeout(60):
        while not hears.done():
            await by.append(key("s"), [NewEvent.of(NOTE)])
            await asyncio.wait([hears], timeout=0.05)
    assert isinstance(hears.result(), holdfast.Event)
    await following.aclose()


# The clock


async def test_two_processes_with_wrong_clocks_agree_on_a_lease(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a lease is the server's, so a fast clock takes nothing over early."""
    async with holdfast.connect(url) as ours:
        await begin(ours)
        await ours.acquire(key("s"), "driver", ttl=600)
        monkeypatch.setattr("time.time_ns", lambda: 4 << 60)
        async with holdfast.connect(url) as theirs:
            with pytest.raises(holdfast.LeaseHeld) as held:
                await theirs.acquire(key("s"), "other")
            assert 0 < held.value.left <= 600_000
            done = await theirs.append(key("s"), [NewEvent.of(NOTE)])
            (event,) = [e async for e in theirs.read(key("s"), after=done.head - 1)]
    (first,) = [e async for e in _reading(url)]
    assert abs(event.at - first.at) < 3_600_000


async def test_a_lease_of_an_older_program_holds_after_an_upgrade(url: str, direct: Any) -> None:
    async with holdfast.connect(url) as store:
        await begin(store)
        lease = await store.acquire(key("s"), "driver", ttl=600)
    # As a program left it that did not know when a lease was renewed.
    schema = schema_of(url)
    await direct.execute(f'DROP FUNCTION "{schema}".append_3')
    await direct.execute(f'ALTER TABLE "{schema}".logs DROP COLUMN renewed, DROP COLUMN mark')
    await direct.execute(f'DROP TRIGGER search_log ON "{schema}".logs')
    await direct.execute(f'DROP TRIGGER search_events ON "{schema}".events')
    await direct.execute(f'DROP INDEX "{schema}".logs_changed')
    for table in TABLE_NAMES:
        await direct.execute(f'DROP TABLE "{schema}".{table}')
    await direct.execute(f'UPDATE "{schema}".meta SET version = 2')
    async with holdfast.connect(url) as store:
        with pytest.raises(holdfast.LeaseHeld) as held:
            await store.append(key("s"), [NewEvent.of(NOTE)], acquire=Acquire("other"))
        assert 0 < held.value.left <= 600_000
        await store.release(await store.renew(lease))
        assert (await store.acquire(key("s"), "other")).token > lease.token


async def _reading(url: str) -> AsyncGenerator[holdfast.Event, None]:
    async with holdfast.connect(url) as store:
        async for event in store.read(key("s"), limit=1):
            yield event
