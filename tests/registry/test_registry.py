"""Stores by kind: what a client may ask for, who shares a store, and who closes it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    InvalidValue,
    MissingExtra,
    NewEvent,
    Store,
    StoreError,
    StoreUnavailable,
    UnknownStore,
    key,
)
from holdfast.stores.memory import MemoryStore
from holdfast.stores.registry import SCHEMES, StoreRegistry, connects

SECRET = "s3cr3t"
CONNECTION_SETTINGS = [
    "url",
    "URL",
    "path",
    "root",
    "host",
    "port",
    "user",
    "password",
    "dsn",
    "uri",
    "clientOptions",
    "client_options",
    "client-options",
    "listen_url",
    "pool",
    "tlsCAFile",
    "ssl",
    "sslmode",
    "authSource",
    "passwordFile",
    "secret",
    "token",
    "dbname",
    "hostaddr",
    "direct_tls",
    "role",
    "proxyHost",
    "proxyUsername",
    "proxyPassword",
]


class Counted(MemoryStore):
    """A store that counts how often it is closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()


class Builder:
    """A builder that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.built: list[Counted] = []

    async def __call__(self, options: Mapping[str, Any]) -> Store:
        self.asked.append(options)
        await asyncio.sleep(0)
        self.built.append(Counted())
        return self.built[-1]


# What there is


@pytest.mark.parity("computeragent", 35)
async def test_built_in_kinds_and_those_of_the_host(tmp_path: Path) -> None:
    async with StoreRegistry({"file": f"file:{tmp_path}/store"}) as registry:
        assert registry.kinds == ["file", "memory"]
        assert (await registry.get("memory")).info().kind == "memory"
        assert (await registry.get("file")).info().kind == "file"
    mine, other = Builder(), Builder()
    async with StoreRegistry({"memory": mine, "archive": f"sqlite:{tmp_path}/a.db"}) as registry:
        registry.register("s3", other)
        assert registry.kinds == ["archive", "memory", "s3"]
        assert await registry.get("memory") is mine.built[0]
        assert await registry.get("s3") is other.built[0]
        assert (await registry.get("archive")).info().kind == "sqlite"


async def test_every_built_in_kind_takes_its_url() -> None:
    urls = {kind: f"{schemes[-1]}://here/x" for kind, schemes in SCHEMES.items()}
    registry = StoreRegistry(urls)
    assert registry.kinds == ["file", "memory", "mongodb", "postgres", "sqlite"]


@pytest.mark.parity("computeragent", 38)
async def test_an_unknown_kind_names_those_there_are() -> None:
    builder = Builder()
    async with StoreRegistry({"mine": builder}) as registry:
        for wrong in ("nosuch", "sqlite", "", None, ["memory"]):
            with pytest.raises(UnknownStore) as refused:
                await registry.get(wrong)  # type: ignore[arg-type]
            assert refused.value.fields == {"kind": str(wrong), "available": ["memory", "mine"]}
            assert refused.value.code == "unknown_store"
            with pytest.raises(UnknownStore):
                registry.check(wrong)  # type: ignore[arg-type]
    assert builder.asked == []


@pytest.mark.parametrize(
    ("kind", "source", "allow"),
    [
        ("sqlite", "file:somewhere", {}),
        ("memory", "sqlite:somewhere", {}),
        ("mine", "nosuch:somewhere", {}),
        ("", "memory:", {}),
        ("mine", "memory:", {"path": str}),
        ("mine", "memory:", {"database": str}),
        ("mine", "memory:", {"Schema": str}),
        ("mine", "memory:", {"dbname": ["eu"]}),
        ("mine", "memory:", {"client_options": ["x"]}),
        ("mine", "memory:", {"durability": "machine"}),
        ("mine", "memory:", {"durability": [{"a": 1}]}),
        ("mine", "memory:", {"durability": None}),
        ("mine", "memory:", {"durability": dict}),
    ],
)
def test_a_wrong_configuration_fails_when_it_is_made(
    kind: str, source: str, allow: dict[str, Any]
) -> None:
    with pytest.raises(InvalidValue):
        StoreRegistry().register(kind, source, allow=allow)


# What a client may send


@pytest.mark.parity("computeragent", 37)
async def test_a_builder_gets_the_options_as_they_were_sent() -> None:
    builder = Builder()
    async with StoreRegistry() as registry:
        registry.register("mine", builder, allow={"database": ["eu"], "size": int, "safe": bool})
        sent = {"size": 3, "database": "eu", "safe": True}
        await registry.get("mine", sent)
        await registry.get("mine")
    assert builder.asked[0] is sent
    assert builder.asked[1] == {}


@pytest.mark.parity("computeragent", 39)
async def test_an_allowed_option_wins_over_the_hosts_own(tmp_path: Path) -> None:
    async with StoreRegistry() as registry:
        url = f"sqlite:{tmp_path}/a%20b.db?durability=machine"
        registry.register("sqlite", url, allow={"durability": ["machine", "process"]})
        machine = await registry.get("sqlite")
        process = await registry.get("sqlite", {"durability": "process"})
        assert machine.info().durability == "machine"
        assert process.info().durability == "process"
        assert machine.info().location == process.info().location == f"{tmp_path}/a b.db"
        assert await registry.get("sqlite", {"durability": "process"}) is process


@pytest.mark.parity("computeragent", 40)
@pytest.mark.parametrize("name", CONNECTION_SETTINGS)
async def test_connection_settings_cannot_be_sent(tmp_path: Path, name: str) -> None:
    assert connects(name)
    builder = Builder()
    async with StoreRegistry() as registry:
        registry.register("mine", builder, allow={"durability": ["machine"]})
        registry.register("file", f"file:{tmp_path}/store")
        for kind in ("mine", "file", "memory"):
            with pytest.raises(InvalidValue) as refused:
                await registry.get(kind, {name: SECRET})
            assert refused.value.field == f"options.{name}"
            assert refused.value.problem == "cannot be set by clients"
            assert SECRET not in str(refused.value)
        with pytest.raises(InvalidValue, match="use only durability"):
            await registry.get("mine", {"durability": "machine", name: SECRET})
    assert builder.asked == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("schema", "us", "use one of 'eu', 'uk'"),
        ("schema", ["eu"], "use one of 'eu', 'uk'"),
        ("schema", None, "use one of 'eu', 'uk'"),
        ("level", True, "use one of 1, 2, 3"),
        ("level", 1.0, "use one of 1, 2, 3"),
        ("level", 4, "use one of 1, 2, 3"),
        ("label", 3, "pass str"),
        ("label", "", "use 1 to 512 bytes"),
        ("label", "x" * 513, "use 1 to 512 bytes"),
        ("label", "a\0b", "remove it"),
        ("count", True, "pass int"),
        ("count", "3", "pass int"),
        ("part", 1, "pass float"),
        ("part", float("nan"), "pass float"),
        ("flag", 1, "pass bool"),
        ("nosuch", 1, "use only count, flag, label, level, part, schema"),
        (3, 1, "use only count, flag, label, level, part, schema"),
    ],
)
async def test_options_are_held_against_the_list(name: Any, value: Any, remedy: str) -> None:
    builder = Builder()
    registry = StoreRegistry()
    allow: dict[str, Any] = {
        "schema": ("eu", "uk"),
        "level": range(1, 4),
        "label": str,
        "count": int,
        "part": float,
        "flag": bool,
    }
    registry.register("mine", builder, allow=allow)
    registry.check("mine", {"schema": "uk", "level": 3, "count": 3, "part": 0.5, "flag": True})
    with pytest.raises(InvalidValue) as refused:
        registry.check("mine", {name: value})
    assert (refused.value.field, refused.value.remedy) == (f"options.{name}", remedy)
    with pytest.raises(InvalidValue):
        await registry.get("mine", {name: value})
    assert builder.asked == []


async def test_options_must_be_a_mapping() -> None:
    with pytest.raises(InvalidValue):
        StoreRegistry().check("memory", ["durability"])  # type: ignore[arg-type]
    StoreRegistry().check("memory", {})


async def test_an_option_cannot_reach_beyond_itself(tmp_path: Path) -> None:
    async with StoreRegistry() as registry:
        url = f"sqlite:{tmp_path}/x.db?durability=machine"
        registry.register("sqlite", url, allow={"durability": str})
        for value in ("process&path=/etc", "process?x", "process#", "a=b"):
            with pytest.raises(StoreError) as refused:
                await registry.get("sqlite", {"durability": value})
            cause = refused.value.__cause__
            assert isinstance(cause, InvalidValue)
            assert (cause.field, cause.problem) == ("durability", f"is {value!r}")
    assert os.listdir(tmp_path) == []


# Who shares, who closes


@pytest.mark.parity("computeragent", 41)
async def test_memory_resumes_within_a_registry() -> None:
    async with StoreRegistry() as registry:
        first = await registry.get("memory")
        await first.append(key("s"), [NewEvent.of("message.received", {"text": "1"})], create=True)
        again = await registry.get("memory", {})
        assert [event.json() async for event in again.read(key("s"))] == [{"text": "1"}]


async def test_those_who_ask_for_the_same_share_one_store() -> None:
    builder = Builder()
    async with StoreRegistry() as registry:
        registry.register("mine", builder, allow={"a": int, "b": (1, True)})
        stores = await asyncio.gather(*(registry.get("mine", {"a": n % 3}) for n in range(30)))
        assert len(builder.built) == len({id(store) for store in stores}) == 3
        one, two = (
            await registry.get("mine", {"a": 1, "b": 1}),
            await registry.get("mine", {"b": 1}),
        )
        assert one is await registry.get("mine", {"b": 1, "a": 1})
        assert two is not await registry.get("mine", {"b": True})


async def test_a_failed_opening_is_tried_again_by_the_next() -> None:
    attempts = 0

    async def build(options: Mapping[str, Any]) -> Store:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        if attempts == 1:
            raise StoreUnavailable(problem=f"no answer from {SECRET}")
        return MemoryStore()

    async with StoreRegistry({"mine": build}) as registry:
        failed = await asyncio.gather(
            *(registry.get("mine") for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(error, StoreUnavailable) for error in failed)
        assert SECRET not in str(failed)
        assert attempts == 1
        assert await registry.get("mine") is await registry.get("mine")
        assert attempts == 2


async def test_one_who_gives_up_does_not_disturb_the_others() -> None:
    let = asyncio.Event()
    built = Counted()

    async def build(options: Mapping[str, Any]) -> Store:
        await let.wait()
        return built

    async with StoreRegistry({"mine": build}) as registry:
        first, second = (asyncio.create_task(registry.get("mine")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        let.set()
        assert await second is built


async def test_the_registry_closes_what_it_opened_once() -> None:
    builder = Builder()
    registry = StoreRegistry({"memory": builder, "mine": builder, "never": builder})
    for kind in ("memory", "mine"):
        await registry.get(kind)
    assert [store.closed for store in builder.built] == [0, 0]
    await asyncio.gather(registry.aclose(), registry.aclose())
    await registry.aclose()
    assert [store.closed for store in builder.built] == [1, 1]
    with pytest.raises(StoreError, match="closed"):
        await registry.get("mine")
    assert len(builder.built) == 2


async def test_a_store_that_is_still_opening_is_closed_too() -> None:
    let = asyncio.Event()
    built = Counted()

    async def build(options: Mapping[str, Any]) -> Store:
        await let.wait()
        return built

    registry = StoreRegistry({"mine": build})
    asking = asyncio.create_task(registry.get("mine"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(registry.aclose())
    await asyncio.sleep(0)
    let.set()
    await closing
    assert built.closed == 1
    assert await asking is built


async def test_one_that_does_not_close_does_not_keep_the_others_open() -> None:
    class Stuck(MemoryStore):
        async def aclose(self) -> None:
            raise StoreUnavailable(problem="stuck")

    builder = Builder()
    registry = StoreRegistry({"a": lambda options: Stuck(), "b": builder})
    await registry.get("a")
    await registry.get("b")
    with pytest.raises(StoreUnavailable, match="stuck"):
        await registry.aclose()
    assert builder.built[0].closed == 1


async def test_a_kind_with_open_stores_is_not_replaced() -> None:
    async with StoreRegistry() as registry:
        await registry.get("memory")
        with pytest.raises(InvalidValue):
            registry.register("memory", Builder())
        registry.register("mine", Builder())


# What is not told


def _raises(error: Exception) -> Callable[[Mapping[str, Any]], Store]:
    def build(options: Mapping[str, Any]) -> Store:
        raise error

    return build


async def test_a_builder_that_raises_is_a_store_error_without_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults: dict[str, tuple[Exception, type[Exception]]] = {
        "value": (ValueError(f"bad url x://u:{SECRET}@h"), StoreError),
        "invalid": (InvalidValue(field="url", problem=SECRET, remedy=""), StoreError),
        "away": (StoreUnavailable(problem=SECRET), StoreUnavailable),
        "extra": (MissingExtra(extra="s3", needed_for="the s3 store"), MissingExtra),
    }
    caplog.set_level(logging.DEBUG)
    async with StoreRegistry({name: _raises(error) for name, (error, _) in faults.items()}) as r:
        for name, (error, kind) in faults.items():
            with pytest.raises(kind) as raised:
                await r.get(name)
            assert SECRET not in f"{raised.value} {raised.value!r}"
            assert raised.value is error or raised.value.__cause__ is error
    assert SECRET not in caplog.text


async def test_a_server_that_is_away_gives_no_secret_away() -> None:
    url = f"postgresql://ann:{SECRET}@127.0.0.1:1/db?patience=1"
    async with StoreRegistry({"postgres": url}) as registry:
        assert SECRET not in f"{registry!r} {registry} {registry._kinds}"
        with pytest.raises(StoreUnavailable) as raised:
            await registry.get("postgres")
        assert SECRET not in f"{raised.value!r} {raised.value} {raised.value.fields}"
        assert "127.0.0.1" not in str(raised.value)
