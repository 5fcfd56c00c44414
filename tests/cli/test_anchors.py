"""`holdfast anchors`, and `verify` against them: what only a link that was kept elsewhere tells."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast import Store, key
from holdfast.events import NewEvent
from holdfast.log.catalog import Row
from holdfast.log.codec import fingerprint
from holdfast.stores import hash_chain, rules
from holdfast.stores.frames import packed

from .conftest import Cli, created, said, sample, write

pytestmark = pytest.mark.parity("user-demand", 65)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def named(path: Path) -> tuple[str, str]:
    write(f"sqlite:{path}", sample)
    return "--store", f"sqlite:{path}"


def anchored(cli: Cli, named: tuple[str, str], folder: Path) -> tuple[str, str]:
    file = folder / "anchors.jsonl"
    file.write_text(cli("anchors", *named).out)
    return "--anchors", str(file)


@contextmanager
def tables(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as conn, conn:
        yield conn


def rewrite(path: Path) -> None:
    """Alter what was said second in session `s`, and make all of the log agree with it."""
    with tables(path) as conn:
        id, doc = conn.execute("SELECT id, doc FROM logs WHERE session = 's'").fetchone()
        row = msgspec.json.decode(doc, type=Row)
        events = [
            NewEvent(kind=kind, data=msgspec.Raw(data[5:]), id=name, v=v).numbered(seq, at)
            for seq, name, kind, v, at, data in conn.execute(
                "SELECT seq, id, kind, v, at, data FROM events WHERE log = ? ORDER BY seq", (id,)
            )
        ]
        other = b'{"text":"tvo"}'
        assert len(events[2].data) == len(other)
        events[2] = msgspec.structs.replace(events[2], data=msgspec.Raw(other))
        empty = msgspec.structs.replace(
            rules.empty_row(row, 0), link=hash_chain.origin(row.key, row.log).hex()
        )
        kept, link = hash_chain.linked(empty, events, hash_chain.seals(events))
        for event, one in zip(events, kept, strict=True):
            conn.execute(
                "UPDATE events SET hash = ?, data = ?, link = ? WHERE log = ? AND seq = ?",
                (fingerprint(event), packed(event.data), one, id, event.seq),
            )
        after = msgspec.structs.replace(row, link=link)
        conn.execute("UPDATE logs SET doc = ? WHERE id = ?", (msgspec.json.encode(after), id))


def test_they_are_a_line_each_and_hold(cli: Cli, named: tuple[str, str], tmp_path: Path) -> None:
    lines = [msgspec.json.decode(line) for line in cli("anchors", *named).out.splitlines()]
    assert {(line["session"], line["thread"]) for line in lines} == {
        ("customer-42", "main"),
        ("customer-42", "what-if"),
        ("customer-43", "main"),
    }
    assert all(len(line["link"]) == len(hashlib.sha256().hexdigest()) for line in lines)
    kept = anchored(cli, named, tmp_path)

    async def go_on(store: Store) -> None:
        await store.append(key("customer-42"), [said("more")])

    write(named[1], go_on)
    found = cli("verify", *named, *kept)
    assert (found.code, found.out.strip()) == (0, "no damage")
    assert len(cli("anchors", "customer-43", *named).out.splitlines()) == 1


def test_a_log_that_was_rewritten_with_all_its_links_is_told(
    cli: Cli, named: tuple[str, str], path: Path, tmp_path: Path
) -> None:
    async def talk(store: Store) -> None:
        await store.append(key("s"), [created(), said("one"), said("two"), said("3")], create=True)

    write(named[1], talk)
    kept = anchored(cli, named, tmp_path)
    rewrite(path)
    assert cli("verify", *named).code == 0, "links alone cannot tell"
    (found,) = cli("verify", "--json", *named, *kept).lines
    assert (found["problem"], found["key"]["session"], found["seq"]) == ("broken", "s", 4)


def test_a_log_that_is_gone_is_told(cli: Cli, named: tuple[str, str], tmp_path: Path) -> None:
    kept = anchored(cli, named, tmp_path)
    assert cli("delete", "customer-43", "--yes", *named).code == 0

    async def begin_anew(store: Store) -> None:
        await store.append(key("customer-43"), [created(), said("anew")], create=True)

    write(named[1], begin_anew)
    found = cli("verify", "--json", *named, *kept)
    assert found.code == 1
    assert [(line["problem"], line["key"]["session"]) for line in found.lines] == [
        ("missing", "customer-43")
    ]


def test_an_event_without_a_link_is_a_note(cli: Cli, named: tuple[str, str], path: Path) -> None:
    with tables(path) as conn:
        conn.execute(
            "UPDATE events SET link = NULL WHERE seq = 4 AND log ="
            " (SELECT id FROM logs WHERE session = 'customer-42' AND thread = 'main')"
        )
    found = cli("verify", *named)
    assert (found.code, "customer-42 / main event 4: unlinked" in found.out) == (0, True)
    assert "1 event without a hash link" in found.out


def test_what_was_altered_is_named_and_not_said_to_be_mendable(
    cli: Cli, named: tuple[str, str], path: Path
) -> None:
    with tables(path) as conn:
        conn.execute("UPDATE events SET actor = 'eve' WHERE actor = 'ann'")
    found = cli("verify", *named)
    assert found.code == 1
    assert "customer-42 / main event 2: broken" in found.out
    assert "1 finding; this damage cannot be repaired: restore a backup" in found.out


@pytest.mark.parametrize("text", ["no JSON", '{"session": "s"}', "[]"])
def test_what_is_no_anchor_is_refused(
    cli: Cli, named: tuple[str, str], tmp_path: Path, text: str
) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(text)
    refused = cli("verify", *named, "--anchors", str(file))
    assert refused.code != 0
    assert "--anchors" in refused.err
    assert "holdfast anchors" in refused.err
