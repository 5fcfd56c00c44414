"""`holdfast unseal`, and a move whose file cannot be put in its place."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Row, Store, connect, key
from holdfast.cli import bundle_files
from tests.cli.conftest import Cli, created, said, write
from tests.copy.scene import events_of

MOVE = ("export", "s", "--mode", "local", "--purpose", "move")
WHY = ("--reason", "the stick was lost")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", url)

    async def work(store: Store) -> None:
        await store.append(key("s"), [created(agent="shop"), said("Hi.")], create=True)

    write(url, work)


def look(url: str) -> tuple[Row, list[Event]]:
    async def asked() -> Any:
        async with connect(url) as store:
            return await store.row(key("s")), await events_of(store, key("s"))

    found: tuple[Row, list[Event]] = asyncio.run(asked())
    return found


def test_a_move_is_taken_back_and_the_log_says_by_whom_and_why(cli: Cli, url: str) -> None:
    assert cli(*MOVE).code == 0
    assert look(url)[0].sealed is not None
    refused = cli("unseal", "s", *WHY)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "'a bundle'" in refused.err
    assert look(url)[0].sealed is not None
    ended = cli("unseal", "s", *WHY, "--yes", "--actor", "ann", "--json")
    assert ended.json == {"session": "s", "tenant": "main", "opened": 1}
    row, events = look(url)
    assert row.sealed is None
    assert (events[-1].kind, events[-1].actor) == ("session.reopened", "ann")
    assert events[-1].json() == {"reason": "the stick was lost"}
    again = cli("unseal", "s", *WHY, "--yes")
    assert (again.code, again.out) == (0, "")
    assert "nothing to change" in again.err


def test_people_are_told_in_a_line(cli: Cli, url: str) -> None:
    cli(*MOVE)
    assert cli("unseal", "s", *WHY, "-y").out == "s  reopened  1 thread\n"
    actor = look(url)[1][-1].actor
    assert actor is not None
    assert actor.startswith("cli:")


def test_it_is_not_opened_while_the_other_store_has_it(cli: Cli, url: str, tmp_path: Path) -> None:
    there = f"sqlite:{tmp_path}/there.db"
    cli(*MOVE)
    cli("import", "s.zip", "--store", there, "--create", "--as", "t", "--tenant", "other")
    where = ("--to", there, "--to-tenant", "other", "--as", "t")
    refused = cli("unseal", "s", *WHY, *where, "--yes", "--json")
    assert (refused.code, json.loads(refused.err)["code"]) == (1, "session_exists")
    assert look(url)[0].sealed is not None
    cli("delete", "t", "--store", there, "--tenant", "other", "--yes")
    assert cli("unseal", "s", *WHY, *where).code == 2  # a file can be imported anywhere
    assert cli("unseal", "s", *WHY, *where, "--yes").code == 0
    assert look(url)[0].sealed is None


def test_a_move_between_stores_needs_no_word_once_the_other_is_empty(
    cli: Cli, url: str, tmp_path: Path
) -> None:
    there = f"sqlite:{tmp_path}/there.db"
    assert cli("copy", "s", "--to", there, "--move").code == 0
    assert cli("unseal", "s", *WHY, "--to", there).code == 1
    cli("delete", "s", "--store", there, "--yes")
    assert cli("unseal", "s", *WHY, "--to", there).code == 0
    assert look(url)[0].sealed is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["s", "--yes"], 2),
        (["s", *WHY, "--as", "t"], 2),
        (["s", *WHY, "--to-tenant", "t"], 2),
        (["nobody", *WHY], 1),
        (["s", *WHY, "--to", "sqlite:none.db"], 1),
    ],
)
def test_a_wrong_call_opens_nothing(cli: Cli, url: str, options: list[str], code: int) -> None:
    cli(*MOVE)
    assert cli("unseal", *options).code == code
    assert look(url)[0].sealed is not None
    assert not os.path.exists("none.db")


def test_a_move_whose_file_cannot_be_put_there_has_not_happened(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = bundle_files._put_new

    def late(draft: Path, target: Path) -> None:
        target.write_text("somebody was quicker")
        put(draft, target)

    monkeypatch.setattr(bundle_files, "_put_new", late)
    ended = cli(*MOVE)
    assert ended.code == 1
    assert Path("s.zip").read_text() == "somebody was quicker"
    row, events = look(url)
    assert row.sealed is None
    assert events[-1].json() == {"reason": "the export failed"}


def test_a_move_that_was_made_before_stays_when_it_is_repeated_in_vain(cli: Cli, url: str) -> None:
    assert cli(*MOVE).code == 0
    assert cli(*MOVE).code == 1  # the file is there
    assert look(url)[0].sealed is not None
    assert cli(*MOVE, "--out", "again.zip").code == 0
    assert Path("again.zip").read_bytes() == Path("s.zip").read_bytes()
