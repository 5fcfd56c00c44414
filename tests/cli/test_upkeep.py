"""`holdfast verify`, `repair`, `delete` and `purge`."""

from __future__ import annotations

import asyncio
import io
import os
import pty
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast import Key, Store, connect, key
from holdfast.harness.sandbox import LocalSandbox
from holdfast.stores.memory import MemoryStore

from .conftest import Cli, created, said, sample, write
from .programs import start

HERE = key("customer-42")


def spoil_row(store: MemoryStore, key: Key = HERE) -> None:
    log = store._logs[key]
    log.row = msgspec.structs.replace(log.row, title="not what the log says")


def spoil_event(store: MemoryStore, key: Key = HERE) -> None:
    store._logs[key].hashes[1] = b"another"


def test_a_sound_store_is_called_sound(shop: str, cli: Cli) -> None:
    ended = cli("verify")
    assert (ended.code, ended.out) == (0, "no damage\n")
    ended = cli("verify", "customer-42", "--thread", "what-if", "--json")
    assert (ended.code, ended.out) == (0, "")


def test_damage_is_listed_and_changes_the_exit_code(memory: MemoryStore, cli: Cli) -> None:
    spoil_event(memory)
    spoil_row(memory, key("customer-42", "what-if"))  # of a log with lost events, no row is known
    ended = cli("verify")
    assert ended.code == 1
    damage = "unreadable, its data does not match its hash"
    assert f"damaged  customer-42 / main event 2: {damage}" in ended.out
    assert "2 findings; `holdfast repair` repairs what can be repaired" in ended.out
    found = cli("verify", "customer-42", "--json").lines
    assert [damage["problem"] for damage in found] == ["unreadable", "row"]
    assert found[0]["key"] == {"tenant": "main", "session": "customer-42", "thread": "main"}
    assert cli("verify", "customer-43").code == 0


def test_a_changed_byte_in_the_file_is_found(tmp_path: Path, url: str, cli: Cli) -> None:
    async def work(store: Store) -> None:
        await store.append(key("s"), [created(), said("a marked text")], create=True)

    write(url, work)
    path = tmp_path / "store.db"
    path.write_bytes(path.read_bytes().replace(b"a marked text", b"a forged text"))
    ended = cli("verify", "--store", url, "--json")
    assert ended.code == 1
    assert {damage["seq"] for damage in ended.lines} >= {2}


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def spoil_pages(path: Path) -> None:
    """Spoil every page but the first."""
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:4_096] + b"\xff" * (size - 4_096))


@pytest.mark.parametrize("harm", [truncate, spoil_pages], ids=lambda harm: harm.__name__)
def test_a_malformed_file_is_reported_as_damage(
    tmp_path: Path, shop: str, cli: Cli, harm: Callable[[Path], None]
) -> None:
    harm(tmp_path / "store.db")
    ended = cli("verify")
    assert ended.code == 1
    assert "damaged  the store: unreadable, " in ended.out
    assert "malformed" in ended.out
    assert "replace it with a backup" in ended.out
    assert "`holdfast repair`" not in ended.out
    ended = cli("verify", "--json")
    assert ended.code == 1
    assert {damage["problem"] for damage in ended.lines} == {"unreadable"}
    assert cli("repair").code == 1
    shown = cli("sessions")
    assert shown.code == 1
    assert "store.db" in shown.err
    assert "`holdfast verify` lists the damage" in shown.err


@pytest.mark.parametrize("harm", [truncate, spoil_pages], ids=lambda harm: harm.__name__)
def test_a_malformed_index_costs_nothing(
    tmp_path: Path, cli: Cli, harm: Callable[[Path], None]
) -> None:
    named = ("--store", f"file:{tmp_path}/files")
    write(named[1], sample)
    harm(tmp_path / "files" / "index.db")
    assert cli("repair", *named).code == 0
    assert cli("verify", *named).code == 0
    assert "customer-42" in cli("sessions", *named).out


def test_repair_lists_what_it_did_and_what_is_left(memory: MemoryStore, cli: Cli) -> None:
    spoil_row(memory)
    ended = cli("repair")
    assert ended.code == 0
    assert "repaired customer-42 / main: row, does not match its log" in ended.out
    assert "1 finding: 1 repaired" in ended.out
    spoil_event(memory)
    ended = cli("repair", "customer-42")
    assert ended.code == 1
    assert "1 finding: 0 repaired, 1 left" in ended.out


@pytest.mark.parametrize("verb", ["verify", "repair", "delete"])
def test_a_session_that_is_not_there_is_not_called_sound(shop: str, cli: Cli, verb: str) -> None:
    ended = cli(verb, "nobody", *(["--yes"] if verb == "delete" else []))
    assert ended.code == 1
    assert "no thread 'main' of session 'nobody'" in ended.err


def test_a_thread_needs_its_session(shop: str, cli: Cli) -> None:
    assert cli("verify", "--thread", "main").code == 2


def test_delete_prints_its_receipt(shop: str, cli: Cli) -> None:
    ended = cli("delete", "customer-42", "--thread", "what-if", "--yes", "--json")
    assert ended.code == 0
    assert ended.json["removed"]["logs"] == 1
    assert cli("show", "customer-42", "--thread", "what-if").code == 1
    ended = cli("delete", "customer-42", "-y")
    assert ended.out.startswith("removed: 1 log, 4 events")
    assert cli("show", "customer-42").code == 1
    assert cli("show", "customer-43").code == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "gone"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_delete_asks_on_a_terminal(
    shop: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, gone: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ended = cli("delete", "customer-42", "--json")
    assert "Delete session 'customer-42' (2 threads, 5 events) permanently? [y/N] " in ended.err
    assert ended.code == (0 if gone else 1)
    assert bool(ended.out) == gone
    assert cli("show", "customer-42").code == (1 if gone else 0)


def test_delete_asks_on_a_real_terminal_too(shop: str, cli: Cli) -> None:
    ours, theirs = pty.openpty()
    with start("delete", "customer-42", stdin=theirs) as delete:
        assert delete.stderr is not None
        assert delete.stderr.read(6) == "Delete"
        os.write(ours, b"y\n")
        delete.communicate()
    os.close(ours)
    os.close(theirs)
    assert delete.returncode == 0
    assert cli("show", "customer-42").code == 1


def test_delete_refuses_where_it_cannot_ask(
    shop: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ended = cli("delete", "customer-42")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert cli("show", "customer-42").code == 0


def test_purge_removes_what_delete_left(tmp_path: Path, shop: str, cli: Cli) -> None:
    assert cli("delete", "customer-42", "--yes").code == 0
    assert cli("purge").out.startswith("removed: ")
    ended = cli("purge", "--json")
    assert ended.code == 0
    assert ended.json["remains"] == []
    for path in tmp_path.glob("store.db*"):
        assert b"It is broken" not in path.read_bytes()


def test_a_purge_removes_the_work_folders_of_deleted_sessions(
    tmp_path: Path, shop: str, cli: Cli
) -> None:
    async def fill() -> None:
        sandbox, store = LocalSandbox(tmp_path / "places"), await connect(shop)
        for session in ("customer-42", "gone"):
            place = await sandbox.open(key(session), agent="a", resources=None)
            await place.write("a.txt", b"kept")
            await sandbox.condemn(key(session).scope, store.info().location)
        await store.aclose()

    asyncio.run(fill())
    (tmp_path / "places" / f"{'0' * 32}.gone-0123456789abcdef").mkdir()
    ended = cli("purge", "--sandbox", f"{tmp_path}/places", "--json")
    assert (ended.code, ended.json["removed"]["folders"]) == (0, 2)
    (folder,) = (tmp_path / "places").iterdir()
    assert (folder / "files/a.txt").read_bytes() == b"kept"
    ended = cli("purge", "--sandbox", f"{tmp_path}/none")
    assert (ended.code, "does not exist" in ended.err) == (2, True)
