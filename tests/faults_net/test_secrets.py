"""A password is never told: not in an error, nor what caused it, nor a log record, nor a repr."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from urllib.parse import quote

import asyncpg
import pytest
from pymongo import MongoClient

import holdfast
from holdfast import HoldfastError, StoreError
from holdfast.testing.samples import KEY, begin, note
from tests import servers
from tests.servers import Wire, faults

PASSWORD = "Tr0ub4dor:/?#[]@&3 %"
USER = "some-one"
LOGIN = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
WRONG = f"{quote(USER, safe='')}:{quote(PASSWORD[::-1], safe='')}"
SECRETS = [f(text) for text in (PASSWORD, PASSWORD[::-1]) for f in (str, repr, quote)]
SECRETS += [quote(text, safe="") for text in (PASSWORD, PASSWORD[::-1])]


@pytest.fixture(scope="module", params=["postgres", "standalone"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str) -> Iterator[servers.Private]:
    """A server with a user whose password has every odd character."""
    options = {"auth": True} if kind == "standalone" else {}
    with servers.private(kind, **options) as server:
        if kind == "standalone":
            client: MongoClient[dict[str, object]] = MongoClient("127.0.0.1", server.port)
            with client:  # the first user may be made without one, from this machine
                client.admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
        yield server


@pytest.fixture
async def user(kind: str, server: servers.Private) -> None:
    if kind == "postgres":
        async with faults.admin(server.address) as sql:
            if not await sql.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", USER):
                secret = PASSWORD.replace("'", "''")
                await sql.execute(f"CREATE ROLE \"{USER}\" LOGIN SUPERUSER PASSWORD '{secret}'")


@pytest.fixture
def records() -> Iterator[list[str]]:
    """Everything that anybody logs, in every form a handler could give it."""
    told: list[str] = []

    class Everything(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(f"{record.__dict__!r} {self.format(record)}")

    handler = Everything(level=0)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(0)
    yield told
    root.removeHandler(handler)
    root.setLevel(level)


def url_of(kind: str, port: int, login: str, more: str = "") -> str:
    if kind == "postgres":
        return f"postgresql://{login}@127.0.0.1:{port}/holdfast?schema=secret&patience=1{more}"
    return f"mongodb://{login}@127.0.0.1:{port}/secret?authSource=admin&patience=1{more}"


def told_of(error: BaseException) -> Iterator[str]:
    """An error and all that led to it, in every form in which it can reach a person."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException | None] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        yield f"{one} {one!r} {one.args!r} {getattr(one, 'fields', None)!r}"
        yield repr({name: value for name, value in vars(one).items() if not callable(value)})
        todo += [one.__cause__, one.__context__]


def tells(*texts: str) -> list[str]:
    return [text for text in texts if any(secret in text for secret in SECRETS)]


@pytest.mark.usefixtures("user")
async def test_the_odd_password_is_the_right_one(
    kind: str, server: servers.Private, records: list[str]
) -> None:
    async with holdfast.connect(url_of(kind, server.port, LOGIN)) as store:
        await begin(store)
        texts = [repr(store), str(store), repr(store.info()), *(map(repr, vars(store).values()))]
    assert tells(*texts, *records) == []


@pytest.mark.parity("user-demand", 57)
@pytest.mark.usefixtures("user")
async def test_a_wrong_password_is_not_told(
    kind: str, server: servers.Private, records: list[str]
) -> None:
    with pytest.raises(StoreError) as told:
        await holdfast.connect(url_of(kind, server.port, WRONG))
    assert tells(*told_of(told.value), *records) == []


@pytest.mark.parity("user-demand", 57)
async def test_an_unreachable_server_is_told_without_the_password(
    kind: str, records: list[str]
) -> None:
    with pytest.raises(StoreError) as told:
        await holdfast.connect(url_of(kind, 1, LOGIN))
    assert told.value.retryable
    assert tells(*told_of(told.value), *records) == []


@pytest.mark.parity("user-demand", 57)
@pytest.mark.usefixtures("user")
async def test_a_cut_connection_is_told_without_the_password(
    kind: str, server: servers.Private, records: list[str]
) -> None:
    with Wire(server.port) as wire:
        async with holdfast.connect(url_of(kind, wire.port, LOGIN)) as store:
            await begin(store)
            with wire.refusing(), pytest.raises(StoreError) as told:
                await store.append(KEY, [note("later")])
            assert told.value.retryable
    assert tells(*told_of(told.value), *records) == []


@pytest.mark.parity("user-demand", 57)
@pytest.mark.parametrize(
    "wrong", ["&pooler=sometimes", "&no_such_option=1", "&schema=Not-a-Name", "&patience=soon"]
)
async def test_a_wrong_url_is_told_without_the_password(
    wrong: str, kind: str, server: servers.Private, records: list[str]
) -> None:
    with pytest.raises(HoldfastError) as told:
        await holdfast.connect(url_of(kind, server.port, LOGIN, wrong))
    assert tells(*told_of(told.value), *records) == []


@pytest.mark.parametrize("port", ["no-port", "99999"])
async def test_a_url_that_cannot_be_read_is_not_repeated(
    port: str, kind: str, records: list[str]
) -> None:
    url = url_of(kind, 5, LOGIN).replace(":5/", f":{port}/")
    with pytest.raises(HoldfastError) as told:
        await holdfast.connect(url)
    assert tells(*told_of(told.value), *records) == []


def test_the_check_itself_would_see_it() -> None:
    error = StoreError(problem="the store is away")
    error.__cause__ = asyncpg.InterfaceError(f"cannot reach {LOGIN}")
    assert tells(*told_of(error))
