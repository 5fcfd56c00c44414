"""`holdfast doctor`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import NewEvent, connect, key
from holdfast.events import RunStarted

from .conftest import Cli


def test_it_says_what_there_is(shop: str, cli: Cli) -> None:
    ended = cli("doctor")
    assert ended.code == 0
    said = dict(line.split(maxsplit=1) for line in ended.out.splitlines() if len(line.split()) > 1)
    assert said["opens"] == said["writable"] == "yes"
    assert said["kind"] == "sqlite"
    assert said["durability"].startswith("machine")
    assert {"python", "msgspec", "sqlite", "schema", "limits", "location"} <= set(said)
    assert ended.out.endswith("no problems found\n")


def test_json_is_one_document(shop: str, cli: Cli) -> None:
    found = cli("doctor", "--json").json
    assert found["ok"] is True
    assert found["store"]["opens"] is found["store"]["writable"] is True
    assert found["store"]["info"]["limits"]["append_events"] == 1_000
    assert found["store"]["problems"] == []


def test_a_store_that_is_not_there_is_no_problem_and_is_not_made(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "no" / "such.db"
    ended = cli("doctor", "--store", f"sqlite:{path}")
    assert ended.code == 0
    assert "does not exist yet" in ended.out
    assert not path.parent.exists()


def test_a_store_that_cannot_be_made_is_a_problem(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").touch()
    ended = cli("doctor", "--store", f"sqlite:{tmp_path}/file/such.db")
    assert ended.code == 1
    assert "problem: there is no store, and folder" in ended.out


def test_a_store_that_does_not_open_is_a_problem(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "not.db").write_text("this is not a database, as anyone can see")
    ended = cli("doctor", "--store", f"sqlite:{tmp_path}/not.db", "--json")
    assert ended.code == 1
    assert ended.json["ok"] is False
    assert ended.json["store"]["opens"] is False
    assert ended.json["store"]["problems"][0].startswith("cannot open the store: ")


@pytest.mark.parametrize("url", ["nonsense", "postgresql://user:secret@host/db"])
def test_a_wrong_url_is_a_problem_and_gives_no_secret_away(cli: Cli, url: str) -> None:
    ended = cli("doctor", "--store", url)
    assert ended.code == 1
    assert "secret" not in ended.out + ended.err


def test_a_run_that_no_process_drives_is_listed_with_its_version(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/left.db"
    started = RunStarted(driver="gone", inputs=[2], version="3aea6881a35f184b")
    events = [
        NewEvent.of("session.created", {"agent": "desk"}),
        NewEvent.of("message.received", {"text": "Look"}),
        NewEvent.of("run.started", started, run="r1"),
    ]

    async def left() -> None:
        async with connect(url) as store:
            await store.append(key("s"), events, create=True)

    asyncio.run(left())
    ended = cli("doctor", "--store", url)
    assert ended.code == 0
    assert "s main: waits for a process with desk version 3aea6881a35f184b" in ended.out
    (run,) = cli("doctor", "--store", url, "--json").json["store"]["undriven"]
    assert (run["session"], run["run"], run["version"]) == ("s", "r1", started.version)
