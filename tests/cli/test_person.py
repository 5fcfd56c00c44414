"""`holdfast person`: all that is stored of one person, given out or gone."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
from pathlib import Path

import pytest

from holdfast import NewEvent, Sessions, Store, key

from .conftest import Cli, created, said, write
from .programs import start


@pytest.fixture
def home(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two sessions of Ann's, one with a fork, and one of Bob's in which she wrote."""

    async def work(store: Store) -> None:
        await store.append(key("a1"), [created(user="ann"), said("my secret")], create=True)
        forked = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
        await store.fork(key("a1"), "what-if", at=2, first=forked)
        await store.append(key("a2"), [created(user="ann")], create=True)
        shared = [created(user="bob"), said("hello, Ann", actor="bob")]
        shared.append(said("my other secret", actor="ann"))
        await store.append(key("b1"), shared, create=True)
        await store.append(key("x1", tenant="other"), [created(user="ann")], create=True)

    write(url, work)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def hold(url: str, session: str) -> None:
    async def work(store: Store) -> None:
        await Sessions(store).hold(session, "lawsuit 12")

    write(url, work)


def texts(cli: Cli, session: str) -> list[str | None]:
    events = cli("show", session, "--json", "--all").json["events"]
    return [event["data"].get("text") for event in events]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# Giving out


def test_an_export_has_own_sessions_whole_and_own_events_elsewhere(home: str, cli: Cli) -> None:
    ended = cli("person", "export", "ann")
    assert (ended.code, ended.err) == (0, "")
    rows = [(r["session"], r["thread"]) for r in ended.lines if "row" in r]
    assert sorted(rows) == [("a1", "main"), ("a1", "what-if"), ("a2", "main")]
    assert all(r["own"] for r in ended.lines if "row" in r)
    elsewhere = [r for r in ended.lines if not r["own"]]
    assert [(r["session"], r["event"]["data"]) for r in elsewhere] == [
        ("b1", {"text": "my other secret"})
    ]
    assert "hello, Ann" not in ended.out
    assert cli("person", "export", "ann", "--json").out == ended.out


def test_own_only_leaves_the_sessions_of_others_alone(home: str, cli: Cli) -> None:
    lines = cli("person", "export", "ann", "--own-only").lines
    assert {record["session"] for record in lines} == {"a1", "a2"}
    told = cli("person", "erase", "ann", "--own-only", "--reason", "r", "--yes", "--json").json
    assert (sorted(told["sessions"]), told["events"]) == (["a1", "a2"], {})
    assert texts(cli, "b1") == [None, "hello, Ann", "my other secret"]


def test_a_file_is_put_in_place_whole_and_for_its_owner_alone(
    home: str, cli: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "ann.jsonl"
    path.write_text("what was there")
    ended = cli("person", "export", "ann", "--out", str(path))
    assert (ended.code, ended.err) == (0, "")
    records = path.read_text().splitlines()
    assert ended.out == f"wrote {len(records)} records of 3 sessions to {path}\n"
    assert path.read_text() == cli("person", "export", "ann").out
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert list(folder.iterdir()) == [path]
    ended = cli("person", "export", "ann", "--out", str(path), "--json")
    assert ended.json == {"records": len(records), "sessions": 3, "file": str(path)}


def test_an_export_that_fails_leaves_the_file_as_it_was(
    home: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "ann.jsonl"
    path.write_text("what was there")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.cli.person.os.fsync", full)
    ended = cli("person", "export", "ann", "--own-only", "--out", str(path))
    assert ended.code == 1
    assert ended.err == (
        f"error: --out: '{path}' cannot be written (No space left on device); choose another file "
        "(docs/errors#invalid_value)\n"
    )
    assert path.read_text() == "what was there"
    assert list(folder.iterdir()) == [path]
    ended = cli("person", "export", "ann", "--out", str(tmp_path / "no" / "x"), "--json")
    assert (ended.code, json.loads(ended.err)["code"]) == (1, "invalid_value")


def test_many_records_are_written_piece_by_piece(home: str, cli: Cli, tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        for number in range(5):
            await store.append(key("a2"), [said(f"{number}" * 400_000)])

    write(home, work)
    path = tmp_path / "ann.jsonl"
    assert cli("person", "export", "ann", "--out", str(path), "--own-only").code == 0
    out = cli("person", "export", "ann", "--own-only")
    assert path.read_text() == out.out
    written = [r for r in out.lines if r["session"] == "a2" and "event" in r]
    assert [record["event"]["seq"] for record in written] == [1, 2, 3, 4, 5, 6]
    assert path.stat().st_size > 2_000_000


def test_progress_is_shown_where_somebody_watches_and_never_in_the_result(
    home: str, cli: Cli
) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    with start("person", "export", "ann", stderr=theirs, env=env) as export:
        out, _ = export.communicate()
    os.close(theirs)
    assert b"exporting" in os.read(ours, 1 << 16)
    os.close(ours)
    assert out == cli("person", "export", "ann").out


def test_of_somebody_unknown_there_is_nothing(home: str, cli: Cli, tmp_path: Path) -> None:
    ended = cli("person", "export", "nobody")
    assert (ended.code, ended.out, ended.err) == (0, "", "no data is stored for 'nobody'\n")
    ended = cli("person", "erase", "nobody", "--reason", "r", "--yes")
    assert (ended.code, ended.out) == (0, "no data is stored for 'nobody'\nremoved: nothing\n")


def test_an_empty_name_is_refused(home: str, cli: Cli) -> None:
    assert cli("person", "export", "").code == 1
    assert cli("person", "erase", "", "--reason", "r", "--yes").code == 1
    assert cli("person", "erase", "ann", "--reason", "", "--yes").code == 1
    assert cli("person", "erase", "ann", "--yes").code == 2


@pytest.mark.parametrize("verb", [["export", "ann"], ["erase", "ann", "--reason", "r", "-y"]])
def test_no_verb_makes_a_store(cli: Cli, tmp_path: Path, verb: list[str]) -> None:
    ended = cli("person", *verb, "--store", f"sqlite:{tmp_path}/typo.db")
    assert ended.code == 1
    assert ended.err.startswith("error: store: there is no store at ")
    assert list(tmp_path.glob("typo*")) == []


# Erasing


def test_a_person_is_erased_with_a_receipt(home: str, cli: Cli, tmp_path: Path) -> None:
    ended = cli("person", "erase", "ann", "--reason", "request 12", "--yes")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert sorted(lines[:3]) == ["a1  deleted", "a2  deleted", "b1  1 event erased"]
    assert lines[3].startswith("removed: 3 logs, ")
    assert lines[4].startswith("remains: ")
    assert "holdfast purge" in lines[4]
    assert cli("show", "a1").code == 1
    assert texts(cli, "b1") == [None, "hello, Ann", None]
    assert "erased: request 12" in cli("show", "b1").out
    assert cli("verify").code == 0
    assert len(cli("sessions", "--tenant", "other", "--json").json["items"]) == 1
    assert cli("purge").code == 0
    for path in tmp_path.glob("store.db*"):
        assert b"secret" not in path.read_bytes()


def test_a_dry_run_says_what_would_go(home: str, cli: Cli) -> None:
    ended = cli("person", "erase", "ann", "--reason", "r", "--dry-run")
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == [
        "a1  would be deleted",
        "a2  would be deleted",
        "b1  1 event would be erased",
    ]
    told = cli("person", "erase", "ann", "--reason", "r", "--dry-run", "--json").json
    assert told["dry_run"]
    assert (told["events"], told["removed"]) == ({"b1": 1}, {})
    assert cli("show", "a1").code == 0


def test_what_is_held_is_refused_and_the_rest_goes_on(home: str, cli: Cli) -> None:
    hold(home, "a1")
    ended = cli("person", "erase", "ann", "--reason", "r", "--dry-run")
    assert (ended.code, "a1  refused  held: lawsuit 12" in ended.out) == (1, True)
    ended = cli("person", "erase", "ann", "--reason", "r", "--yes", "--json")
    assert ended.code == 1
    assert ended.json["refused"] == {"a1": "held: lawsuit 12"}
    assert ended.json["sessions"] == ["a2"]
    assert cli("show", "a1").code == 0


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False), ("", False)])
def test_it_shows_what_would_go_and_asks(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, gone: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = cli("person", "erase", "ann", "--reason", "r", "--json")
    assert ended.code == (0 if gone else 1)
    assert "a1  would be deleted\n" in ended.err
    assert "Erase this data of 'ann' permanently? [y/N] " in ended.err
    assert ("nothing was erased" in ended.err) == (not gone)
    assert bool(ended.out) == gone
    assert cli("show", "a1").code == (1 if gone else 0)


def test_nobody_is_asked_where_there_is_nothing_to_erase(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    ended = cli("person", "erase", "nobody", "--reason", "r")
    assert (ended.code, ended.err) == (0, "no data is stored for 'nobody'\n")


def test_it_refuses_where_it_cannot_ask(
    home: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ended = cli("person", "erase", "ann", "--reason", "r")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert cli("show", "a1").code == 0
