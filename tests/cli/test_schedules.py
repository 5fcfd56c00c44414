"""`holdfast schedules`: sets and changes the schedules of a session; no agent takes part."""

from __future__ import annotations

import pytest

from holdfast import Store, key

from .conftest import Cli, created, write


async def begun(store: Store) -> None:
    await store.append(key("s"), [created(agent="shop")], create=True)


def test_schedules_are_set_listed_paused_resumed_and_removed(url: str, cli: Cli) -> None:
    write(url, begun)
    at = ("--store", url)
    report = ("--message", "Report.", "--cron", "0 9 * * 1-5", "--timezone", "Europe/Berlin")
    ended = cli("schedules", "set", "s", "report", *report, "--actor", "ann", *at)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("report fires next: 2")
    made = cli(
        "schedules", "set", "s", "check", "--message", "News?", "--every", "15min", "--json", *at
    )
    assert (made.json["every"], made.json["missed"], made.json["overlap"]) == (
        900.0,
        "once",
        "skip",
    )
    assert cli("schedules", "pause", "s", "check", *at).out == "check is paused\n"
    table = cli("schedules", "list", "s", *at).out.splitlines()
    assert [line.split()[0] for line in table] == ["NAME", "report", "check"]
    assert "0 9 * * 1-5 Europe/Berlin" in table[1]
    assert "paused" in table[2]
    assert cli("schedules", "resume", "s", "check", *at).out.startswith("check fires next: ")
    assert cli("schedules", "remove", "s", "check", *at).out == "check is removed\n"
    gone = cli("schedules", "remove", "s", "check", *at)
    assert (gone.code, gone.out) == (1, "session 's' has no schedule 'check'\n")
    event = cli("show", "s", "--json", *at).json["events"][1]
    assert (event["kind"], event["actor"]) == ("timer.scheduled", "ann")
    assert cli("schedules", "list", "s", "--json", *at).json[0]["name"] == "report"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--cron", "* * * * * *"), "--cron is '* * * * * *'"),
        (("--cron", "0 0 30 2 *"), "--cron is '0 0 30 2 *'"),
        (("--every", "59s"), "--every is 59"),
        (("--cron", "0 9 * * *", "--timezone", "../etc/passwd"), "--timezone is '../etc/passwd'"),
        (("--every", "1h", "--missed", "all"), "add --overlap queue"),
        ((), "--cron cannot be combined with every, and one of them is required"),
    ],
)
def test_what_is_no_schedule_is_an_error(
    url: str, cli: Cli, more: tuple[str, ...], words: str
) -> None:
    write(url, begun)
    ended = cli("schedules", "set", "s", "x", "--message", "go", *more, "--store", url)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err
    assert cli("schedules", "list", "s", "--json", "--store", url).json == []


def test_a_session_that_does_not_exist_is_an_error(url: str, cli: Cli) -> None:
    write(url, begun)
    ended = cli("schedules", "list", "other", "--store", url)
    assert (ended.code, "other" in ended.err) == (1, True)
