"""`holdfast copy`."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
from pathlib import Path

import pytest

from holdfast import Scope, Store, connect, key

from .conftest import Cli, created, said, write
from .programs import start


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"file:{tmp_path}/there"


def test_all_sessions_of_the_tenant_are_copied(shop: str, there: str, cli: Cli) -> None:
    ended = cli("copy", "--to", there)
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == [
        "2 sessions: 2 copied",
        "customer-42  copied  2 threads, 7 events, closed with 2 events",
        "customer-43  copied  1 thread, 1 event",
    ]
    rows = cli("sessions", "--json", "--store", there).json["items"]
    assert {row["session"] for row in rows} == {"customer-42", "customer-43"}
    assert cli("sessions", "--json", "--tenant", "other", "--store", there).json["items"] == []
    assert cli("verify", "--store", there).code == 0
    ended = cli("copy", "--from", shop, "--to", there)
    assert ended.code == 0
    assert ended.out.endswith("2 sessions: 2 same\n")


def test_named_sessions_are_copied_into_a_tenant(shop: str, there: str, cli: Cli) -> None:
    ended = cli("copy", "customer-43", "--to", there, "--to-tenant", "else", "--json")
    assert ended.code == 0
    assert ended.json == {
        "session": "customer-43",
        "status": "copied",
        "threads": [{"thread": "main", "status": "copied", "events": 1}],
        "blobs": 0,
        "claims": 0,
        "held": [],
        "reopened": 0,
        "error": None,
    }
    assert cli("show", "customer-43", "--store", there, "--tenant", "else").code == 0
    assert cli("show", "customer-43", "--store", there).code == 1


def test_a_dry_run_writes_nothing(shop: str, there: str, cli: Cli) -> None:
    ended = cli("copy", "--to", there, "--dry-run")
    assert ended.code == 0
    assert ended.out.endswith("2 sessions: 2 new (dry run)\n")
    assert not Path(there.removeprefix("file:")).exists()
    cli("copy", "customer-43", "--to", there)
    ended = cli("copy", "--to", there, "--dry-run")
    assert ended.out.endswith("2 sessions: 1 new, 1 same (dry run)\n")


def test_a_conflict_and_a_failure_do_not_keep_the_others_back(
    shop: str, there: str, cli: Cli
) -> None:
    async def other(store: Store) -> None:
        await store.append(key("customer-42"), [said("mine")], create=True)

    write(there, other)
    arguments = ("copy", "customer-42", "nobody", "customer-43", "--to", there)
    ended = cli(*arguments)
    assert ended.code == 1
    assert "customer-42  conflict  " in ended.out
    assert "thread main: differs from the thread with the same name in the target\n" in ended.out
    assert "nobody  failed  no thread 'main' of session 'nobody' in tenant 'main': " in ended.out
    assert ended.out.endswith("3 sessions: 1 conflict, 1 failed, 1 copied\n")
    assert len(cli("show", "customer-42", "--store", there, "--json").json["events"]) == 1
    lines = cli(*arguments, "--json").lines
    assert [line["status"] for line in lines] == ["conflict", "failed", "same"]
    assert lines[1]["error"]["code"] == "session_not_found"


def test_a_name_that_is_taken_is_told(shop: str, there: str, cli: Cli) -> None:
    async def claim(store: Store) -> None:
        for session in ("customer-43", "other"):
            await store.append(key(session), [created()], create=True)

    async def named(url: str, session: str) -> None:
        async with connect(url) as store:
            await store.claim("main", "order:1", Scope("main", session))

    write(there, claim)
    asyncio.run(named(shop, "customer-42"))
    asyncio.run(named(there, "other"))
    ended = cli("copy", "customer-42", "--to", there)
    assert ended.code == 1
    assert "    name order:1 belongs to another session of the target\n" in ended.out


def test_damage_is_told_and_nothing_of_it_is_written(
    tmp_path: Path, url: str, there: str, cli: Cli
) -> None:
    async def work(store: Store) -> None:
        await store.append(key("s"), [created(), said("a marked text")], create=True)
        await store.append(key("sound"), [created()], create=True)

    write(url, work)
    path = tmp_path / "store.db"
    path.write_bytes(path.read_bytes().replace(b"a marked text", b"a forged text"))
    ended = cli("copy", "--from", url, "--to", there, "--json")
    assert ended.code == 1
    assert [(line["session"], line["status"]) for line in ended.lines] == [
        ("s", "failed"),
        ("sound", "copied"),
    ]
    assert ended.lines[0]["error"]["code"] == "log_damaged"
    assert ended.lines[0]["error"]["fields"]["seq"] == 2
    assert cli("show", "s", "--store", there).code == 1


def test_a_move_seals_the_source_and_says_how_to_delete_it(shop: str, there: str, cli: Cli) -> None:
    ended = cli("copy", "customer-42", "--move", "--to", there)
    assert ended.code == 0
    assert ended.out.startswith("customer-42  moved  2 threads, 7 events\n")
    assert "holdfast delete SESSION --store URL" in ended.err
    assert re.search(rf"moved to +{there}\n", cli("show", "customer-42").out)
    assert cli("show", "customer-42", "--store", there, "--json").json["row"]["pending"]
    assert cli("copy", "customer-42", "--move", "--to", there).code == 0
    assert cli("delete", "customer-42", "--yes").code == 0


def test_a_move_is_undone_once_nothing_is_left_at_the_target(
    shop: str, there: str, cli: Cli
) -> None:
    undo = ("copy", "--undo", "customer-42", "--to", there)
    assert cli("copy", "customer-42", "--move", "--to", there).code == 0
    ended = cli(*undo, "--json")
    assert (ended.code, ended.json["error"]["code"]) == (1, "session_exists")
    assert cli("delete", "customer-42", "--yes", "--store", there).code == 0
    ended = cli(*undo)
    assert (ended.code, ended.out.splitlines()[0]) == (0, "customer-42  reopened  2 threads")
    assert "moved to" not in cli("show", "customer-42").out
    assert cli(*undo).out.endswith("1 session: 1 same\n")


@pytest.mark.parametrize(
    "wrong",
    [["customer-42"], ["--to", "memory:", "--undo"], ["--to", "memory:", "--undo", "--move", "s"]],
)
def test_wrong_usage(shop: str, cli: Cli, wrong: list[str]) -> None:
    assert cli("copy", *wrong).code == 2


def test_no_sessions_is_no_error(url: str, there: str, cli: Cli) -> None:
    async def nothing(store: Store) -> None:
        pass

    write(url, nothing)
    ended = cli("copy", "--from", url, "--to", there)
    assert (ended.code, ended.out, ended.err) == (0, "", "no sessions\n")
    wrong = cli("copy", "--from", url, "--to", "nosuch:x", "--json")
    assert (wrong.code, json.loads(wrong.err)["code"]) == (1, "invalid_value")


def test_a_terminal_sees_a_bar(shop: str, there: str) -> None:
    ours, theirs = pty.openpty()
    with start("copy", "--to", there, stderr=theirs) as copy:
        os.close(theirs)
        shown = b""
        while True:
            try:
                some = os.read(ours, 1_000)
            except OSError:  # what Linux says when the other end is closed
                break
            if not some:
                break
            shown += some
        out, _ = copy.communicate()
    os.close(ours)
    assert copy.returncode == 0
    assert b"copying" in shown
    assert b"customer-4" in shown
    assert out.endswith("2 sessions: 2 copied\n")
