"""A command that fails leaves no store behind, nor a folder that it made for one; and it takes
nothing away that somebody else has put there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import sys
from pathlib import Path

import pytest

from holdfast import Store, connect, key
from holdfast.stores.creation import StoreCreation

from .conftest import Cli, created, sample, write

PROGRAM = """
from holdfast import Agent, Harness
agent = Agent("shop", instructions="Help.")
def broken(**settings):
    raise ValueError("no such luck")
"""
NEW = ["sqlite:{}/new/deep/store.db", "file:{}/new/deep/store"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the commands are run in; what they make is beside it."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "leftshop.py").write_text(PROGRAM)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    monkeypatch.delitem(sys.modules, "leftshop", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    return here


def there(tmp_path: Path) -> list[str]:
    """What is in the folder, but for what the test itself has put there."""
    ours = {"here", "store.db", "store.db.lock", "home"}
    return sorted(path.name for path in tmp_path.iterdir() if path.name not in ours)


@pytest.fixture
def bundle(shop: str, cli: Cli, place: Path) -> str:
    """A bundle that cannot go on as it is: it is redacted, and something in it is open."""
    assert cli("export", "customer-42", "--out", "b.zip").code == 0
    return "b.zip"


@pytest.mark.parametrize("at", NEW)
def test_an_import_that_fails_makes_no_store(
    tmp_path: Path, bundle: str, cli: Cli, at: str
) -> None:
    target = at.format(tmp_path)
    (tmp_path / "here" / "no.zip").write_text("no bundle")
    for words in (
        [bundle],
        [bundle, "--as", "x" * 2_000, "--read-only"],
        [bundle, "--tenant", "", "--read-only"],
        ["no.zip"],
        ["none.zip"],
        [bundle, "--read-only", "--store", f"{target}?nonsense=1"],
    ):
        store = [] if "--store" in words else ["--store", target]
        assert cli("import", *words, "--create", *store).code == 1
        assert there(tmp_path) == []
    assert cli("import", bundle, "--create", "--read-only", "--store", target).code == 0
    assert cli("import", bundle, "--create", "--store", target).code == 1
    assert cli("verify", "customer-42", "--store", target).code == 0


def test_an_import_that_fails_half_way_makes_no_store(
    tmp_path: Path, bundle: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.errors import StoreError
    from holdfast.stores.sqlite.store import SqliteStore

    async def full(self: SqliteStore, *given: object, **more: object) -> None:
        raise StoreError(problem="the disk is full")

    monkeypatch.setattr(SqliteStore, "restore", full)
    target = f"sqlite:{tmp_path}/new/store.db"
    ended = cli("import", bundle, "--create", "--read-only", "--store", target)
    assert ended.code == 1
    assert "the disk is full" in ended.err
    assert there(tmp_path) == []


@pytest.mark.parametrize("at", ["sqlite:{}/new.db", "file:{}/new"])
def test_a_copy_of_which_nothing_arrives_makes_no_store(
    tmp_path: Path, shop: str, cli: Cli, at: str
) -> None:
    target = at.format(tmp_path)
    assert cli("copy", "--to", target, "nobody").code == 1
    assert cli("copy", "--to", target, "customer-42", "--to-tenant", "x" * 2_000).code == 1
    assert cli("copy", "--to", target, "--from", f"sqlite:{tmp_path}/none.db").code == 1
    assert there(tmp_path) == []
    assert cli("copy", "--to", target, "nobody", "customer-42").code == 1
    assert cli("verify", "customer-42", "--store", target).code == 0


def test_transcripts_of_which_none_is_taken_make_no_store(
    tmp_path: Path, place: Path, cli: Cli
) -> None:
    project = place / "-home-ann"
    project.mkdir()
    target = ["--create", "--store", f"sqlite:{tmp_path}/new/claude.db"]
    assert cli("claude", "import", "nowhere", *target).code == 1
    assert there(tmp_path) == []
    name = project / "0199a3b2-5e1c-7d40-9c11-0a5b8e2f7d63.jsonl"
    name.write_text("this is no entry\n")
    assert cli("claude", "import", str(project), *target).code == 1
    assert there(tmp_path) == []


def test_a_chat_that_cannot_begin_makes_no_store(tmp_path: Path, cli: Cli) -> None:
    target = ["--store", f"sqlite:{tmp_path}/new.db"]
    for words in (
        ["--agent", "leftshop:nothing"],
        ["--agent", "leftshop:broken"],
        ["--agent", "leftshop:agent", "--model", "bogus"],
        ["x" * 2_000],
        ["--thread", "x" * 2_000],
        ["--tenant", ""],
    ):
        assert cli("chat", *words, *target).code == 1, words
        assert cli("chat", *words).code == 1  # in the data folder
        assert there(tmp_path) == [], words


def test_a_key_that_cannot_be_made_makes_no_store(tmp_path: Path, cli: Cli) -> None:
    for words in (["ann", "--scope", "zz"], [""], ["ann", "--tenant", "~x"]):
        assert cli("keys", "create", *words, "--store", f"sqlite:{tmp_path}/new.db").code == 1
        assert cli("keys", "create", *words).code == 1
        assert there(tmp_path) == []


def test_a_server_that_cannot_begin_makes_no_store(tmp_path: Path, place: Path, cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = ["--port", str(taken.getsockname()[1])]
        (place / "s.toml").write_text(
            f'[agents]\nshop = "leftshop:agent"\n[stores]\nsqlite = "sqlite:{tmp_path}/new.db"\n'
            '[harness]\ndefault_model = "scripted/offline"\n'
        )
        for words in (
            ["leftshop:agent", "--store", f"sqlite:{tmp_path}/new.db"],
            ["leftshop:agent"],
            ["--config", "s.toml"],
        ):
            ended = cli("serve", *words, *port)
            assert ended.code == 1
            assert "cannot listen on" in ended.err
            assert there(tmp_path) == []


# What stays


@pytest.mark.parametrize("at", ["sqlite:{}/new.db", "file:{}/new"])
def test_a_store_that_was_there_stays(tmp_path: Path, bundle: str, cli: Cli, at: str) -> None:
    target = at.format(tmp_path)

    async def nothing(store: Store) -> None:
        return None

    write(target, nothing)
    assert cli("import", bundle, "--create", "--store", target).code == 1
    assert cli("sessions", "--store", target).code == 0


@pytest.mark.parametrize("at", ["sqlite:{}/new.db", "file:{}/new"])
async def test_a_store_that_somebody_uses_meanwhile_stays(tmp_path: Path, at: str) -> None:
    target = at.format(tmp_path)
    async with connect(target) as other:  # another process, that has written nothing yet
        await asyncio.to_thread(_fail, target)
        await other.append(key("a"), [created()], create=True)
    await asyncio.to_thread(_fail, target)
    async with connect(target) as store:
        assert await store.row(key("a")) is not None


def _fail(url: str) -> None:
    """Have a command fail that was about to make the store, and was not the first to."""
    creation = StoreCreation(f"{url}.not-yet")
    with contextlib.suppress(ValueError), creation:
        creation._path = StoreCreation(url)._path
        raise ValueError("failed")


def test_an_encrypted_store_that_nothing_came_into_goes_too(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "here" / "vault.toml").write_text(cli("vault", "new", "k").out)
    (tmp_path / "here" / "vault.toml").chmod(0o600)
    target = f"sqlite:{tmp_path}/new.db?vault=vault.toml"
    assert cli("keys", "create", "ann", "--scope", "zz", "--store", target).code == 1
    assert there(tmp_path) == []


def test_what_was_written_stays_when_a_later_part_fails(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/new.db"
    with contextlib.suppress(ValueError), StoreCreation(url):
        write(url, sample)
        raise ValueError("later")
    assert len(cli("sessions", "--json", "--store", url).json["items"]) == 2
