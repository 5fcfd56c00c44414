"""The command line run in this process, on stores of its own, far from the user's files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import NewEvent, Store, connect, key
from holdfast.cli import main, options
from holdfast.stores.memory import MemoryStore


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _far_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("HOLDFAST_STORE", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `holdfast` with these arguments."""

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A SQLite store that does not exist yet."""
    return f"sqlite:{tmp_path}/store.db"


@pytest.fixture
def shop(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with a few sessions, named by the environment."""
    write(url, sample)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store that the command line opens under every URL, so that a test can damage it."""
    store = MemoryStore()

    @asynccontextmanager
    async def opened(url: str) -> AsyncGenerator[Store, None]:
        yield store

    monkeypatch.setattr(options, "connect", opened)
    monkeypatch.setenv("HOLDFAST_STORE", "memory:")
    asyncio.run(sample(store))
    return store


def write(url: str, work: Callable[[Store], Awaitable[None]]) -> None:
    """Let `work` write to a store that is then closed."""

    async def opened() -> None:
        async with connect(url) as store:
            await work(store)

    asyncio.run(opened())


def created(**payload: Any) -> NewEvent:
    return NewEvent.of("session.created", payload)


def said(text: str, **rest: Any) -> NewEvent:
    return NewEvent.of("message.received", {"text": text}, **rest)


async def sample(store: Store) -> None:
    """Two sessions of `main`, one with a fork, and one of another tenant."""
    ann = created(agent="shop", user="ann", title="Refund", labels=["vip"], metadata={"n": 3})
    call = {"id": "c1", "name": "refund", "arguments": {"order": "42"}}
    events = [
        ann,
        said("Refund order 42.\nIt is broken.", actor="ann"),
        NewEvent.of("message.completed", {"text": "I will.", "calls": [call]}, run="r1"),
        NewEvent.of("pending.opened", {"id": "p1", "what": "approval", "title": "19.99"}),
    ]
    await store.append(key("customer-42"), events, create=True)
    forked = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
    await store.fork(key("customer-42"), "what-if", at=2, first=forked)
    bob = created(agent="help", user="bob", workspace="w", metadata={"tier": "gold", "n": "3"})
    await store.append(key("customer-43"), [bob], create=True)
    await store.append(key("customer-44", tenant="other"), [created(agent="shop")], create=True)
