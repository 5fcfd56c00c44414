"""`holdfast session`: the life of one session, told by its verbs."""

from __future__ import annotations

import getpass
import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import Sessions, Store, key
from holdfast.cli.app import options_behind_verb
from holdfast.cli.verbs import GROUPS

from .conftest import Cli, Ended, said, write
from .lives import HOUR, live
from .programs import start

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SECTIONS = dict(re.findall(r"^## `holdfast (\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
TWO_WORDS = [(group, verb.rstrip("_")) for group, (_, _, verbs) in GROUPS.items() for verb in verbs]
COMMON = {"--store", "--tenant", "--json", "--help", "--version"}


@pytest.fixture
def home(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with Ann's session and Bob's, an hour and a half old."""

    async def life(sessions: Sessions) -> None:
        await sessions.create(
            "s", user="ann", surface=("web", "t:1"), metadata={"locale": "en", "trial": True}
        )
        await sessions.touch("s")
        await sessions.create("other", user="bob", surface=("slack", "U1"))

    live(url, life, ago=HOUR * 3 // 2)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def changed(cli: Cli, *arguments: str) -> Any:
    ended = cli("session", *arguments, "--json")
    assert (ended.code, ended.err) == (0, "")
    return ended.json


def error(ended: Ended) -> tuple[int, Any]:
    return ended.code, json.loads(ended.err)["code"]


def last_event(cli: Cli, session: str = "s") -> Any:
    return cli("show", session, "--events", "1", "--json").json["events"][0]


# What every one of them has


@pytest.mark.parametrize(("group", "verb"), TWO_WORDS)
def test_every_verb_has_help_with_an_example(cli: Cli, group: str, verb: str) -> None:
    ended = cli(group, verb, "--help")
    assert ended.code == 0
    assert f" holdfast {group} {verb}" in ended.out.partition("\n")[2]
    assert "--json" in ended.out
    assert verb in cli(group, "--help").out
    assert group in cli("--help").out


@pytest.mark.parametrize(("group", "verb"), TWO_WORDS)
def test_every_verb_and_option_is_explained(cli: Cli, group: str, verb: str) -> None:
    assert f"$ holdfast {group} {verb}" in SECTIONS[group]
    names = set(re.findall(r" (--[a-z][a-z-]+)", cli(group, verb, "--help").out)) - COMMON
    assert [name for name in sorted(names) if f"`{name}" not in SECTIONS[group]] == []


@pytest.mark.parametrize("verb", list(GROUPS["session"][2]))
def test_no_verb_makes_a_store_or_a_session(home: str, cli: Cli, tmp_path: Path, verb: str) -> None:
    more = ["--reason", "r"] if verb == "hold" else []
    ended = cli("session", verb, "s", *more, "--store", f"sqlite:{tmp_path}/typo.db")
    assert ended.code == 1
    assert ended.err.startswith("error: store: there is no store at ")
    assert error(cli("session", verb, "nobody", *more, "--json")) == (1, "session_not_found")
    assert "`holdfast sessions` lists the sessions" in cli("session", verb, "nobody", *more).err
    assert len(cli("sessions", "--json").json["items"]) == 2


def test_the_common_options_may_stand_before_the_verb(home: str, cli: Cli) -> None:
    ended = cli("--json", "--store", home, "--tenant=main", "session", "touch", "s")
    assert ended.json["row"]["session"] == "s"
    assert options_behind_verb(["--json", "person", "erase", "a"]) == [
        "person",
        "erase",
        "--json",
        "a",
    ]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("session nope", "holdfast session --help"),
        ("session touch", "holdfast session touch --help"),
        ("session hold s", "holdfast session hold --help"),
        ("session metadata s --set novalue", "--set must be KEY=VALUE"),
        ("session metadata s --reason r", "but this command only reads"),
        ("session surfaces s --actor me", "but this command only reads"),
        ("session surfaces s --move", "--move needs --attach"),
        ("session surfaces s --attach a b --detach c d", "not both"),
        ("session surfaces s --attach slack", "--attach"),
        ("session ttl s soon", "TTL must be a duration such as"),
        ("session ttl s --expiry 3", "--expiry must be a duration such as"),
        ("session history s --after -1", "--after"),
    ],
)
def test_wrong_usage_is_told(home: str, cli: Cli, line: str, hint: str) -> None:
    ended = cli(*shlex.split(line))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert hint in ended.err


# The phase


def test_the_phases_of_a_life(home: str, cli: Cli) -> None:
    moves = [
        ("suspend", "active", "suspended"),
        ("resume", "suspended", "active"),
        ("expire", "active", "expired"),
        ("reopen", "expired", "active"),
    ]
    for verb, before, after in moves:
        told = changed(cli, verb, "s", "--reason", f"to {verb}")
        assert (told["changed"], told["before"]["phase"]) == (True, before)
        assert told["row"]["phase"] == after
        event = last_event(cli)
        assert event["actor"] == f"cli:{getpass.getuser()}"
        assert event["data"]["reason"] == f"to {verb}"


def test_people_see_what_changed_and_then_the_row(home: str, cli: Cli) -> None:
    ended = cli("session", "suspend", "s", "--actor", "ops", "--reason", "on \x1b[2J holiday")
    assert (ended.code, ended.err) == (0, "")
    change, _, row = ended.out.partition("\n\n")
    assert change == "phase       active → suspended"
    assert row.startswith("session     s\n")
    assert "surfaces    web t:1\n" in row
    assert last_event(cli)["actor"] == "ops"


def test_what_is_so_already_changes_nothing(home: str, cli: Cli) -> None:
    before = cli("show", "s", "--json").json["row"]
    ended = cli("session", "resume", "s")
    assert ended.err == "nothing to change\n"
    assert ended.out.startswith("session     s\n")
    told = changed(cli, "resume", "s")
    assert (told["changed"], told["before"]) == (False, {})
    assert cli("show", "s", "--json").json["row"] == before


def test_a_touch_counts_from_now_on(home: str, cli: Cli) -> None:
    told = changed(cli, "touch", "s")
    assert told["changed"]
    assert told["row"]["active"] >= told["before"]["active"] + 5400
    again = cli("session", "touch", "s")
    assert (again.code, again.err) == (0, "")


def test_a_move_that_the_phase_does_not_allow_is_refused(home: str, cli: Cli) -> None:
    assert cli("session", "resume", "other").err.startswith(
        "error: session 'other' is created: resume is not allowed"
    )
    cli("session", "expire", "s")
    for line in (
        "touch s",
        "suspend s",
        "metadata s --set a=1",
        "surfaces s --attach a b",
        "ttl s 2h",
    ):
        assert error(cli("session", *line.split(), "--json")) == (1, "phase_error")
    ended = cli("session", "touch", "s")
    assert ended.err == (
        "error: session 's' is expired: touch is not allowed; "
        "`holdfast session reopen` reopens an expired session (docs/errors#phase_error)\n"
    )
    told = json.loads(cli("session", "touch", "s", "--json").err)["fields"]
    assert told == {"tenant": "main", "session": "s", "phase": "expired", "move": "touch"}


# The past


def test_history_tells_when_by_whom_and_why(home: str, cli: Cli) -> None:
    cli("session", "suspend", "s", "--reason", "on \x1b[2J holiday", "--actor", "ann")
    moves = cli("session", "history", "s", "--json").lines
    assert [(m["before"], m["phase"], m["actor"], m["reason"]) for m in moves] == [
        ("created", "active", "app", None),
        ("active", "suspended", "ann", "on \x1b[2J holiday"),
    ]
    later = cli("session", "history", "s", "--after", str(moves[0]["seq"]), "--json").lines
    assert later == moves[1:]
    first, second = cli("session", "history", "s").out.splitlines()
    assert re.match(r" +3  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  created → active  session", first)
    assert second.endswith("active → suspended  session.suspended  ann  on \\x1b[2J holiday")


def test_a_session_that_never_moved_says_so(home: str, cli: Cli) -> None:
    ended = cli("session", "history", "other")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "no phase changes\n"
    assert cli("session", "history", "other", "--json").err == ""


def test_history_follows_what_comes_until_ctrl_c(home: str, cli: Cli) -> None:
    with start("session", "history", "s", "--follow", "--json") as history:
        assert history.stdout is not None
        assert json.loads(history.stdout.readline())["phase"] == "active"
        cli("session", "suspend", "s")
        assert json.loads(history.stdout.readline())["phase"] == "suspended"
        write(home, _say)
        assert json.loads(history.stdout.readline())["kind"] == "message.received"
        history.send_signal(signal.SIGINT)
        out, err = history.communicate()
    assert (history.returncode, out, err) == (130, "", "")


async def _say(store: Store) -> None:
    await store.append(key("s"), [said("back again")])


# Surfaces, metadata, times


def test_surfaces_are_listed_attached_and_detached(home: str, cli: Cli) -> None:
    ended = cli("session", "surfaces", "s", "--attach", "telegram", "-100:42")
    assert ended.out.startswith("surfaces    + telegram -100:42\n")
    listed = cli("session", "surfaces", "s", "--json").json["surfaces"]
    assert [(place["surface"], place["address"]) for place in listed] == [
        ("web", "t:1"),
        ("telegram", "-100:42"),
    ]
    assert listed[0]["at"] < listed[1]["at"]
    assert listed[1]["detail"] == {}
    lines = cli("session", "surfaces", "s").out.splitlines()
    assert [line.partition(" (since ")[0] for line in lines] == ["web t:1", "telegram -100:42"]
    assert not changed(cli, "surfaces", "s", "--attach", "web", "t:1")["changed"]
    ended = cli("session", "surfaces", "s", "--detach", "web", "t:1")
    assert ended.out.startswith("surfaces    - web t:1\n")
    assert not changed(cli, "surfaces", "s", "--detach", "web", "t:1")["changed"]
    assert changed(cli, "surfaces", "s", "--detach", "telegram", "-100:42")["changed"]
    ended = cli("session", "surfaces", "s")
    assert (ended.out, ended.err) == ("", "no surfaces\n")


def test_a_surface_of_another_is_taken_only_on_purpose(home: str, cli: Cli) -> None:
    attach = ("surfaces", "s", "--attach", "slack", "U1")
    assert error(cli("session", *attach, "--json")) == (1, "surface_taken")
    assert cli("session", *attach).err == (
        "error: surface slack 'U1' belongs to session 'other'; add --move to take it over "
        "(docs/errors#surface_taken)\n"
    )
    assert changed(cli, *attach, "--move", "--reason", "new phone")["changed"]
    assert cli("session", "surfaces", "other", "--json").json == {"surfaces": []}
    found = cli("sessions", "--surface", "slack", "U1", "--json").json["items"]
    assert [row["session"] for row in found] == ["s"]


def test_metadata_is_listed_set_and_dropped(home: str, cli: Cli) -> None:
    sets = ("--set", "locale=en-US", "--set", 'seats={"n": 3}', "--drop", "trial")
    told = changed(cli, "metadata", "s", *sets)
    assert told["row"]["metadata"] == {"locale": "en-US", "seats": {"n": 3}}
    assert told["before"] == {"metadata": {"locale": "en", "trial": True}}
    assert cli("session", "metadata", "s", "--json").json["metadata"]["seats"] == {"n": 3}
    assert cli("session", "metadata", "s").out == 'locale = "en-US"\nseats = {"n":3}\n'
    ended = cli("session", "metadata", "s", "--set", "seats=4", "--drop", "locale")
    assert ended.out.splitlines()[:2] == [
        'metadata    locale: "en-US" → none',
        'metadata    seats: {"n":3} → 4',
    ]
    assert cli("session", "metadata", "other").err == "no metadata\n"


def test_stored_names_do_not_steer_the_terminal(home: str, cli: Cli) -> None:
    cli("session", "metadata", "s", "--set", "a\x1b[2J=1")
    cli("session", "surfaces", "s", "--attach", "b\x1b[2J", "c\x1b[2J")
    for verb in ("metadata", "surfaces", "touch"):
        out = cli("session", verb, "s").out
        assert "\\x1b[2J" in out or "\\u001b[2J" in out
        assert "\x1b" not in out


def test_a_session_gets_times_of_its_own(home: str, cli: Cli) -> None:
    assert cli("session", "ttl", "s", "--json").json["ttl"] == 3600
    assert cli("session", "ttl", "s", "1h30min").out.startswith("ttl         3600 s → 5400 s\n")
    told = changed(cli, "ttl", "s", "--expiry", "3d")
    assert (told["row"]["ttl"], told["row"]["expiry"]) == (5400, 3 * 86_400)
    assert changed(cli, "ttl", "s", "2w")["row"]["expiry"] == 3 * 86_400
    shown = cli("session", "ttl", "s").out.splitlines()
    assert shown[:2] == ["ttl         1209600 s", "expiry      259200 s"]
    assert shown[2].startswith("stale at    2")
    assert changed(cli, "ttl", "s", "never", "--expiry", "never")["row"]["stale_at"] is None
    assert cli("session", "ttl", "s").out == "ttl         never\nexpiry      never\n"
    assert error(cli("session", "ttl", "s", "0s", "--json")) == (1, "invalid_value")


# Pins and holds


def test_a_pinned_session_does_not_go_stale(home: str, cli: Cli) -> None:
    assert cli("session", "pin", "s").out.startswith("pinned      no → yes\n")
    assert changed(cli, "pin", "s")["changed"] is False
    assert cli("sweep", "--json").json["suspended"] == ["other"]
    assert changed(cli, "unpin", "s")["row"]["pinned"] is False
    assert cli("sweep", "--json").json["suspended"] == ["s"]


def test_a_held_session_is_not_deleted_until_the_hold_is_lifted(home: str, cli: Cli) -> None:
    ended = cli("session", "hold", "s", "--reason", "lawsuit 12")
    assert ended.out.startswith("hold        none → lawsuit 12\n")
    ended = cli("delete", "s", "--yes")
    assert ended.code == 1
    assert ended.err == (
        "error: session 's' cannot be deleted: held: lawsuit 12; "
        "`holdfast session hold SESSION --lift` lifts a hold (docs/errors#deletion_refused)\n"
    )
    assert error(cli("delete", "s", "--yes", "--json")) == (1, "deletion_refused")
    assert changed(cli, "hold", "s", "--lift", "--reason", "settled")["row"]["hold"] is None
    assert last_event(cli)["data"] == {"hold": None, "reason": "settled"}
    assert cli("delete", "s", "--yes").code == 0


def test_nobody_is_asked_to_delete_what_is_held(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    cli("session", "hold", "s", "--reason", "lawsuit 12")
    ended = cli("delete", "s")
    assert ended.code == 1
    assert "[y/N]" not in ended.err


def test_without_a_user_name_the_actor_is_still_one(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise OSError("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert changed(cli, "touch", "s")["changed"]
    assert last_event(cli)["actor"] == "cli:unknown"
