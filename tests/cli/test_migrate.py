"""`holdfast migrate`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import connect
from holdfast.stores.migrations import SchemaState, schema_of
from tests import servers

from .conftest import Cli, sample, write

STORES = {"sqlite": "sqlite:{}/here/store.db", "file": "file:{}/here"}


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "here").mkdir()
    return STORES[request.param].format(tmp_path)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def set_version(url: str, version: int) -> None:
    path = url.partition(":")[2]
    if url.startswith("file:"):
        (Path(path) / "format.json").write_text(json.dumps({"holdfast": version}))
        return
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(f"PRAGMA user_version = {version}")


def test_a_store_that_is_up_to_date(shop: str, tmp_path: Path, cli: Cli) -> None:
    before = files(tmp_path / "here")
    ended = cli("migrate", "--check")
    assert (ended.code, ended.out) == (0, "store has schema 1, program has 1: up to date\n")
    assert files(tmp_path / "here") == before
    ended = cli("migrate", "--json")
    assert (ended.code, ended.json) == (
        0,
        {"found": 1, "known": 1, "migrated": False, "due": False, "too_new": False},
    )


@pytest.mark.parity("user-demand", 49)
def test_a_store_that_is_too_new(shop: str, tmp_path: Path, cli: Cli) -> None:
    set_version(shop, 9)
    before = files(tmp_path / "here")
    ended = cli("migrate", "--check")
    assert ended.code == 1
    assert ended.out.startswith("store has schema 9, program has 1: too new; upgrade with: ")
    assert cli("migrate", "--check", "--json").json["too_new"] is True
    assert files(tmp_path / "here") == before
    assert json.loads(cli("migrate", "--json").err)["code"] == "store_too_new"


def test_an_empty_store_is_migrated(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    named = ("--store", f"sqlite:{path}")
    ended = cli("migrate", "--check", *named)
    assert ended.code == 1
    assert ended.out.startswith("store has schema 0, program has 1: a migration is needed; ")
    assert path.read_bytes() == b""
    assert cli("migrate", *named).out == "store has schema 0, program has 1: migrated to 1\n"
    assert cli("migrate", "--check", *named).code == 0


def test_a_store_in_use_is_seen_as_it_is(url: str, cli: Cli) -> None:
    async def look() -> SchemaState:
        async with connect(url) as store:
            await sample(store)
            return await schema_of(url)

    state = asyncio.run(look())
    assert (state.found, state.known) == (1, 1)


def test_what_is_no_store_is_told(tmp_path: Path, cli: Cli) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as conn:
        conn.execute("CREATE TABLE theirs (x)")
    (tmp_path / "text").write_text("this is no database, as anyone can see" * 100)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "format.json").write_text("{")
    for store, problem in [
        ("sqlite:{}/other.db", "is a database of another program"),
        ("sqlite:{}/text", "is not an SQLite database"),
        ("file:{}/dir", "has no readable format.json"),
        ("nosuch:{}", "has an unknown scheme"),
    ]:
        ended = cli("migrate", "--check", "--store", store.format(tmp_path))
        assert (ended.code, ended.out) == (1, "")
        assert problem in ended.err


async def test_memory_is_always_up_to_date() -> None:
    state = await schema_of("memory:")
    assert not state.due
    assert not state.too_new


def test_the_sample_survives(url: str, cli: Cli) -> None:
    write(url, sample)
    assert cli("migrate", "--store", url).code == 0
    assert cli("verify", "--store", url).code == 0


@pytest.mark.parity("user-demand", 49)
@pytest.mark.parametrize("kind", ["postgres", "mongodb"])
def test_a_database_is_migrated(kind: str, tmp_path: Path, cli: Cli) -> None:
    named = ("--store", servers.url(kind, tmp_path))
    ended = cli("migrate", "--check", *named)
    assert (ended.code, ended.out.partition(",")[0]) == (1, "store has schema 0")
    assert cli("migrate", "--check", "--json", *named).json["due"] is True
    assert cli("migrate", "--json", *named).json["migrated"] is True
    ended = cli("migrate", "--check", *named)
    assert (ended.code, ended.out.partition(": ")[2]) == (0, "up to date\n")


@pytest.mark.parametrize("kind", ["postgres", "mongodb"])
def test_no_other_verb_makes_or_migrates_a_database(kind: str, tmp_path: Path, cli: Cli) -> None:
    url = servers.url(kind, tmp_path)
    source = tmp_path / "source"
    write(f"file:{source}", sample)
    transcript = tmp_path / "t.jsonl"
    transcript.write_text('{"type":"user","uuid":"u1","sessionId":"s"}\n')
    for verb in (["sessions"], ["show", "s"], ["verify"], ["claude", "import", str(transcript)]):
        ended = cli(*verb, "--store", url, "--json")
        assert ended.code == 1
        refused = json.loads(ended.err)
        assert (refused["code"], refused["fields"]["field"]) == ("invalid_value", "store")
        assert "`holdfast migrate`" in refused["message"]
    assert cli("doctor", "--store", url, "--json").json["store"]["exists"] is False
    ended = cli("copy", "--from", f"file:{source}", "--to", url, "--dry-run")
    assert ended.out.endswith("2 sessions: 2 new (dry run)\n")
    dry = ("claude", "import", str(transcript), "--create", "--dry-run", "--store", url)
    assert cli(*dry).code == 0
    assert asyncio.run(schema_of(url)).found == 0
    assert cli("copy", "--from", f"file:{source}", "--to", url).code == 0
    assert cli("sessions", "--store", url).code == 0


def test_an_empty_file_is_left_empty_by_other_verbs(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    for verb in ("sessions", "doctor"):
        assert cli(verb, "--store", f"sqlite:{path}").code == 1
        assert path.read_bytes() == b""


def test_programs_that_must_not_migrate_find_it_done(tmp_path: Path, cli: Cli) -> None:
    url = servers.url("postgres", tmp_path)
    named = ("--store", f"{url}{'&' if '?' in url else '?'}migrate=never")
    assert "`holdfast migrate`" in cli("sessions", *named).err
    assert cli("migrate", *named).code == 0
    assert cli("sessions", *named).code == 0
