"""`holdfast sweep`: what is stale, what expired, and what may be deleted."""

from __future__ import annotations

import io
import json
import signal
from typing import Any

import pytest

from holdfast import NewEvent, Sessions, StoreUnavailable
from holdfast.stores.memory import MemoryStore

from .conftest import Cli
from .lives import DAY, HOUR, live
from .programs import start


@pytest.fixture
def home(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three stale sessions of which one waits for an answer, one that is suspended for longer
    than its time, one that is fresh."""

    async def long_ago(sessions: Sessions) -> None:
        await sessions.create("resting", user="ann", expiry=3_600)
        await sessions.suspend("resting")

    async def before(sessions: Sessions) -> None:
        for name in ("one", "two", "waits"):
            await sessions.create(name, user="ann", surface=("web", name))
        opened = NewEvent.of("pending.opened", {"id": "p1", "what": "approval"})
        await sessions.store.append(sessions.changes.key("waits"), [opened])

    async def now(sessions: Sessions) -> None:
        await sessions.create("fresh", user="ann")

    live(url, long_ago, ago=10 * HOUR)
    live(url, before, ago=2 * HOUR)
    live(url, now)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


@pytest.fixture
def graveyard(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sessions that expired: three long ago, of which one is held and one pinned, and one two
    days ago that was last active long ago."""

    async def long_ago(sessions: Sessions) -> None:
        for name in ("gone", "held", "pinned", "late"):
            await sessions.create(name, user="ann")
        for name in ("gone", "held", "pinned"):
            await sessions.expire(name)
        await sessions.hold("held", "lawsuit 12")
        await sessions.pin("pinned")

    async def lately(sessions: Sessions) -> None:
        await sessions.expire("late")

    live(url, long_ago, ago=100 * DAY)
    live(url, lately, ago=2 * DAY)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def phases(cli: Cli) -> dict[str, str]:
    return {row["session"]: row["phase"] for row in cli("sessions", "--json").json["items"]}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_stale_is_suspended_and_what_rested_long_expires(home: str, cli: Cli) -> None:
    told = cli("sweep", "--json").json
    assert (sorted(told["suspended"]), told["expired"]) == (["one", "two"], ["resting"])
    assert (told["dry_run"], told["purged"]) == (False, None)
    assert phases(cli) == {
        "one": "suspended",
        "two": "suspended",
        "waits": "created",
        "resting": "expired",
        "fresh": "created",
    }
    (move,) = cli("session", "history", "one", "--json").lines
    assert (move["reason"], move["actor"].partition(":")[0]) == ("stale", "cli")
    assert cli("sweep").out == "0 suspended, 0 expired\n"


def test_the_report_for_people_has_a_line_a_session(home: str, cli: Cli) -> None:
    ended = cli("sweep")
    assert (ended.code, ended.err) == (0, "")
    *lines, end = ended.out.splitlines()
    assert sorted(line.split() for line in lines) == [
        ["expired", "resting"],
        ["suspended", "one"],
        ["suspended", "two"],
    ]
    assert end == "2 suspended, 1 expired"


def test_a_ttl_of_the_command_goes_before_that_of_the_session(home: str, cli: Cli) -> None:
    told = cli("sweep", "--ttl", "3h", "--json").json
    assert (told["suspended"], told["expired"], told["skipped"]) == ([], [], {})
    ended = cli("sweep", "--ttl", "1h30min")
    assert ended.out.endswith("2 suspended, 0 expired; skipped: 1 waits for an answer\n")


def test_a_dry_run_changes_nothing(home: str, cli: Cli) -> None:
    before = phases(cli)
    told = cli("sweep", "--dry-run", "--json").json
    assert (sorted(told["suspended"]), told["expired"]) == (["one", "two"], ["resting"])
    assert told["dry_run"]
    ended = cli("sweep", "--dry-run")
    assert "to suspend    one\n" in ended.out
    assert ended.out.endswith("2 to be suspended, 1 to be expired\n")
    assert phases(cli) == before


def test_a_limit_bounds_a_sweep_and_says_that_there_may_be_more(home: str, cli: Cli) -> None:
    ended = cli("sweep", "--limit", "2")
    assert ended.err == "there may be more: run it again, or raise --limit\n"
    assert len(ended.out.splitlines()) == 3
    assert cli("sweep", "--limit", "2").err == ""


def test_only_the_tenant_is_swept(home: str, cli: Cli) -> None:
    assert cli("sweep", "--tenant", "other").out == "0 suspended, 0 expired\n"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("--ttl soon", "--ttl must be a duration"),
        ("--ttl 3600", "--ttl must be a duration"),
        ("--limit 0", "--limit"),
        ("--grace 1d", "--grace needs --retention"),
        ("--every 0s", "at least 1s"),
        ("--retention 90d", "add --yes"),
        ("--retention 90d --every 5min", "add --yes"),
    ],
)
def test_wrong_usage_sweeps_nothing(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, wrong: str, hint: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    before = phases(cli)
    ended = cli("sweep", *wrong.split())
    assert (ended.code, ended.out) == (2, "")
    assert hint in ended.err
    assert phases(cli) == before


def test_a_ttl_of_nothing_is_refused(home: str, cli: Cli) -> None:
    ended = cli("sweep", "--ttl", "0s", "--json")
    assert (ended.code, json.loads(ended.err)["code"]) == (1, "invalid_value")


# Retention


def test_retention_deletes_what_it_may_and_says_why_not_the_rest(graveyard: str, cli: Cli) -> None:
    told = cli("sweep", "--retention", "90d", "--yes", "--json").json["purged"]
    assert told["deleted"] == ["gone"]
    assert told["kept"] == {"held": "held: lawsuit 12", "pinned": "pinned"}
    assert list(told["in_grace"]) == ["late"]
    assert told["removed"]["logs"] == 1
    assert any("holdfast purge" in left["remedy"] for left in told["remains"])
    assert set(phases(cli)) == {"held", "pinned", "late"}
    ended = cli("sweep", "--retention", "90d", "--grace", "1d", "--yes")
    assert "deleted       late\n" in ended.out
    assert "kept          held  held: lawsuit 12\n" in ended.out
    assert "0 suspended, 0 expired, 1 deleted\nremoved: 1 log, 3 events\nremains: " in ended.out
    assert set(phases(cli)) == {"held", "pinned"}


def test_without_retention_nothing_is_deleted(graveyard: str, cli: Cli) -> None:
    assert cli("sweep", "--json").json["purged"] is None
    told = cli("sweep", "--retention", "200d", "--yes", "--json").json["purged"]
    assert (told["deleted"], told["kept"]) == ([], {})
    assert len(phases(cli)) == 4


def test_a_dry_run_of_retention_needs_no_answer_and_deletes_nothing(
    graveyard: str, cli: Cli
) -> None:
    ended = cli("sweep", "--retention", "90d", "--dry-run")
    assert ended.code == 0
    assert "to delete     gone\n" in ended.out
    assert "grace period  late  until 2" in ended.out
    assert ended.out.endswith(", 1 to be deleted\n")
    assert cli("sweep", "--retention", "90d", "--dry-run", "--json").json["purged"]["dry_run"]
    assert len(phases(cli)) == 4


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False), ("", False)])
def test_retention_asks_before_it_deletes(
    graveyard: str,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    gone: bool,
    form: list[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = cli("sweep", "--retention", "90d", *form)
    assert ended.code == (0 if gone else 1)
    assert "to delete     gone\n" in ended.err
    assert "Delete 1 expired session permanently? [y/N] " in ended.err
    assert ("nothing was deleted" in ended.err) == (not gone)
    if form:
        assert ended.json["purged"]["dry_run"] == (not gone)
    assert ("gone" in phases(cli)) == (not gone)


def test_where_there_is_nothing_to_delete_nobody_is_asked(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(""))
    ended = cli("sweep", "--retention", "90d")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("2 suspended, 1 expired, 0 to be deleted\n")


# For ever


def test_it_sweeps_again_and_again_until_ctrl_c(home: str, cli: Cli) -> None:
    async def more(sessions: Sessions) -> None:
        await sessions.create("three", user="ann")

    with start("sweep", "--every", "1s", "--json") as sweep:
        assert sweep.stdout is not None
        assert len(json.loads(sweep.stdout.readline())["suspended"]) == 2
        live(home, more, ago=2 * HOUR)
        while not (told := json.loads(sweep.stdout.readline()))["suspended"]:
            pass
        assert told["suspended"] == ["three"]
        sweep.send_signal(signal.SIGINT)
        sweep.communicate()
    assert sweep.returncode == 130


def test_it_goes_on_after_a_failure_that_may_pass(
    memory: MemoryStore, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, calls = memory.find, 0

    async def fails_once(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StoreUnavailable(problem="the database is away")
        if calls == 3:
            raise KeyboardInterrupt
        return await find(*arguments, **named)

    async def at_once(_: float) -> None:
        pass

    monkeypatch.setattr(memory, "find", fails_once)
    monkeypatch.setattr("holdfast.cli.sweep.asyncio.sleep", at_once)
    ended = cli("sweep", "--every", "1h")
    assert ended.code == 130
    assert ended.err.startswith("error: the database is away; try again")
    assert ended.out == "0 suspended, 0 expired\n"


def test_it_ends_quietly_when_its_reader_leaves(home: str) -> None:
    with start("sweep", "--every", "1h") as sweep:
        assert sweep.stdout is not None
        while "suspended, " not in sweep.stdout.readline():
            pass
        sweep.stdout.close()
        assert sweep.stderr is not None
        assert sweep.stderr.read() == ""
    assert sweep.returncode == 141
