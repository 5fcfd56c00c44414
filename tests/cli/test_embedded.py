"""The verbs from end to end on each store that lives at a path, and on one that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Store, key

from .conftest import Cli, created, said, sample, write

STORES = ["sqlite:{}/store.db", "file:{}/store"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def test_every_verb_works(url: str, cli: Cli) -> None:
    write(url, sample)
    named = ("--store", url)
    listed = cli("sessions", "--json", *named).json["items"]
    assert {row["session"] for row in listed} == {"customer-42", "customer-43"}
    assert cli("show", "customer-42", *named).code == 0
    assert len(cli("tail", "customer-42", "--no-follow", "--json", *named).lines) == 4
    assert cli("doctor", *named).code == 0
    assert cli("verify", *named).code == 0
    assert cli("repair", *named).code == 0
    assert cli("delete", "customer-42", "--yes", "--json", *named).json["removed"]["logs"] == 2
    assert cli("purge", "--json", *named).json["remains"] == []
    assert cli("verify", *named).code == 0


def forge(folder: Path, old: bytes, new: bytes) -> None:
    """Change bytes wherever they stand in the files of a store that nobody has open."""
    for path in folder.rglob("*"):
        if path.is_file() and old in (data := path.read_bytes()):
            path.write_bytes(data.replace(old, new))


# What makes event 3 unreadable: its format byte in SQLite, its line in a file.
UNREADABLE = [
    (STORES[0], b'{"text":"a marked text"}', b'{"text":"a morked text"}'),
    (STORES[1], b"a marked text", b'a mark"d text'),
]
NOT_JSON = (STORES[0], b"a marked text", b'a mark"d text')


def damaged(folder: Path, store: str, old: bytes, new: bytes) -> tuple[str, str]:
    """A store whose event 3 is damaged, as the options that name it."""

    async def work(store: Store) -> None:
        events = [created(), said("one"), said("a marked text"), said("another")]
        await store.append(key("s"), events, create=True)

    write(store.format(folder), work)
    forge(folder, old, new)
    return "--store", store.format(folder)


@pytest.mark.parametrize(("store", "old", "new"), [*UNREADABLE, NOT_JSON])
def test_a_damaged_event_is_found_and_hides_no_other(
    tmp_path: Path, cli: Cli, store: str, old: bytes, new: bytes
) -> None:
    named = damaged(tmp_path, store, old, new)
    found = cli("verify", "--json", *named)
    assert found.code == 1
    assert 3 in {damage["seq"] for damage in found.lines}
    shown = cli("show", "s", "--json", *named)
    assert shown.code == 1
    assert [event["seq"] for event in shown.json["events"]] == [1, 2, 3, 4]
    assert shown.json["events"][2]["error"]["code"] == "log_damaged"
    assert shown.json["events"][3]["data"]["text"] == "another"
    assert "     3  unreadable  " in cli("show", "s", *named).out


@pytest.mark.parametrize(("store", "old", "new"), UNREADABLE)
def test_an_unreadable_event_is_given_up_on_request(
    tmp_path: Path, cli: Cli, store: str, old: bytes, new: bytes
) -> None:
    named = damaged(tmp_path, store, old, new)
    repaired = cli("repair", "s", *named)
    assert repaired.code == 0, repaired.out
    assert "repaired s / main event 3: " in repaired.out
    assert cli("verify", *named).code == 0
    assert "erased" in cli("show", "s", "--json", *named).json["events"][2]["data"]
