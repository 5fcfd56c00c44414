"""A session that waits for a person goes to another machine as a file, and goes on there."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from holdfast import NewEvent, Store, key
from tests.cli.agents import effects
from tests.cli.conftest import Cli, write
from tests.cli.programs import start

AGENT = ("--agent", "shop:serve")


@pytest.fixture
def there(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/there.db"


@pytest.fixture
def waiting(cli: Cli, url: str, shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program whose session `s` waits for an approval."""
    monkeypatch.setenv("HOLDFAST_STORE", url)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # that of another test's folder

    async def work(store: Store) -> None:
        begun = NewEvent.of("session.created", {"agent": "shop"})
        message = NewEvent.of("message.received", {"text": "refund"})
        await store.append(key("s"), [begun, message], create=True)

    write(url, work)
    assert cli("resume", "s", *AGENT).code == 0
    assert cli("pending", "--json").json["items"][0]["what"] == "approval"
    return shop_folder


def test_it_is_moved_approved_elsewhere_and_its_tool_runs_once(
    cli: Cli, there: str, waiting: Path
) -> None:
    moved = cli("export", "s", "--mode", "local", "--purpose", "move", "--out", "s.zip", "--json")
    assert moved.code == 0, moved.err
    assert moved.json["liveness"] == "continuable"
    assert json.loads(cli("approve", "s", "--json").err)["code"] == "session_moved"
    done = cli("import", "s.zip", "--store", there, "--create")
    assert done.code == 0, done.err
    assert "holdfast resume s" in done.err
    # Whoever drove it there died before it was approved.
    with start("resume", "s", *AGENT, "--forever", "--json", "--store", there) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        driver.send_signal(signal.SIGKILL)
    assert cli("approve", "s", "--store", there).code == 0
    ended = cli("resume", "s", *AGENT, "--store", there, "--json")
    assert ended.code == 0, ended.err
    assert [line["end"] for line in ended.lines if "end" in line] == ["done"]
    assert effects(waiting) == ["42 1999"]
    assert cli("resume", "s", *AGENT).code == 0
    assert effects(waiting) == ["42 1999"]


def test_in_a_copy_nothing_is_open_and_it_goes_on(cli: Cli, there: str, waiting: Path) -> None:
    assert cli("export", "s", "--mode", "local", "--out", "shared.zip").code == 0
    refused = cli("import", "shared.zip", "--store", there, "--create")
    assert refused.code == 1  # what is open in it may go on in its source
    cli("export", "s", "--mode", "local", "--purpose", "copy", "--out", "s.zip")
    assert cli("import", "s.zip", "--store", there, "--create", "--as", "t", "--json").code == 0
    assert cli("pending", "--store", there, "--json").json["items"] == []

    async def work(store: Store) -> None:
        await store.append(key("t"), [NewEvent.of("message.received", {"text": "hello"})])

    write(there, work)
    assert cli("resume", "t", *AGENT, "--store", there).code == 0
    assert cli("show", "t", "--store", there).out.count("Good day to you.") == 1
    assert effects(waiting) == []
    assert cli("pending", "--json").json["items"][0]["session"] == "s"  # the source waits still


def test_what_came_from_elsewhere_replays(cli: Cli, there: str, waiting: Path) -> None:
    cli("export", "s", "--mode", "local", "--purpose", "move", "--out", "s.zip")
    cli("import", "s.zip", "--store", there, "--create")
    cli("approve", "s", "--store", there)
    cli("resume", "s", *AGENT, "--store", there)
    cli("export", "s", "--mode", "local", "--store", there, "--out", "end.zip")
    ended = cli("bundle", "replay", "end.zip", "--agent", "shop:support")
    assert ended.code == 0, ended.out
    assert ended.out.startswith("same: 2 model calls")
    assert effects(waiting) == ["42 1999"]
