"""The adapter on files and on SQLite: what stands on disk, and what becomes of damage there."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue, Query, connect
from holdfast.adapters.claude import ClaudeSessionStore

from .words import entry, key, mtime, summary, title

parity = pytest.mark.parity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "holdfast"


async def prepared(folder: Path, session_id: str = "s") -> Path:
    """A transcript of four entries; returns the file that holds its log."""
    async with ClaudeSessionStore(f"file:{folder}") as sessions:
        for n in range(4):
            await sessions.append(key(session_id), [title(f"title {n}", f"u{n}")])
    (file,) = logs(folder)
    return file


def logs(folder: Path) -> list[Path]:
    return sorted((folder / "logs").rglob("*.jsonl"))


@parity("computeragent", 23)
@pytest.mark.parametrize("odd", ["../../etc/passwd", "/etc/passwd", "C:\\x", "a" * 400, "日本"])
async def test_no_id_names_a_file(tmp_path: Path, folder: Path, odd: str) -> None:
    async with ClaudeSessionStore(f"file:{folder}") as sessions:
        await sessions.append(key(odd), [entry("a")])
        await sessions.append(key(odd, project=odd[:50]), [entry("b")])
        assert await sessions.load(key(odd)) == [entry("a")]
    assert len(logs(folder)) == 2
    assert os.listdir(tmp_path) == [folder.name]


@parity("computeragent", 25)
async def test_a_line_that_cannot_be_read_is_reported_and_the_rest_loads(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = await prepared(folder)
    lines = file.read_bytes().splitlines(keepends=True)
    hit = next(n for n, line in enumerate(lines) if b'"uuid":"u1"' in line)
    lines[hit] = lines[hit].replace(b"title 1", b"title 9")
    file.write_bytes(b"".join(lines))
    async with ClaudeSessionStore(f"file:{folder}") as sessions:
        with caplog.at_level(logging.WARNING, "holdfast.adapters.claude"):
            loaded: Any = await sessions.load(key())
        assert [e["uuid"] for e in loaded] == ["u0", "u2", "u3"]
        assert "skipped a damaged entry" in caplog.text
        await sessions.append(key(), [entry("u4")])
        assert await sessions.size(key()) == 4


@parity("computeragent", 26)
@pytest.mark.parametrize("left", [1, 20, -1])
async def test_a_torn_last_line_does_not_harm_the_next_append(folder: Path, left: int) -> None:
    file = await prepared(folder)
    before = file.read_bytes()
    last = before.splitlines(keepends=True)[-2]  # that of an entry; behind it is its note
    file.write_bytes(before[: before.index(last)] + last[:left])
    async with ClaudeSessionStore(f"file:{folder}") as sessions:
        assert await sessions.size(key()) == 3
        assert (await summary(sessions))["custom_title"] == "title 2"
        time = await mtime(sessions)
        await sessions.append(key(), [title("title 3", "u3"), entry("u4")])
        loaded: Any = await sessions.load(key())
        assert [e["uuid"] for e in loaded] == ["u0", "u1", "u2", "u3", "u4"]
        assert (await summary(sessions))["custom_title"] == "title 3"
        assert await mtime(sessions) > time


@parity("computeragent", 26)
async def test_half_a_line_of_a_writer_that_died_is_not_glued_to_the_next(folder: Path) -> None:
    file = await prepared(folder)
    with file.open("ab") as log:
        log.write(b'{"half of a li')
    async with ClaudeSessionStore(f"file:{folder}") as sessions:
        await sessions.append(key(), [entry("u4")])
        loaded: Any = await sessions.load(key())
        assert [e["uuid"] for e in loaded] == ["u0", "u1", "u2", "u3", "u4"]


@parity("computeragent", 27)
async def test_a_second_adapter_on_the_same_folder_sees_everything(folder: Path) -> None:
    await prepared(folder)
    first, second = ClaudeSessionStore(f"file:{folder}"), ClaudeSessionStore(f"file:{folder}")
    async with first, second:
        assert await first.load(key()) == await second.load(key())
        await first.append(key(), [entry("more")])
        assert await second.size(key()) == 5
        assert await second.list_sessions("p") == await first.list_sessions("p")


@parity("computeragent", 34)
async def test_one_uuid_over_two_connections_is_stored_once_and_a_bad_batch_not_at_all(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    async with ClaudeSessionStore(url) as first, ClaudeSessionStore(url) as second:
        for n in range(20):
            both = (s.append(key(), [entry(f"u{n}")]) for s in (first, second))
            await asyncio.gather(*both)
        assert await first.size(key()) == 20
        deep: Any = 1
        for _ in range(5_000):
            deep = [deep]
        for bad in (deep, object()):
            with pytest.raises(InvalidValue):
                await first.append(key(), [entry("good"), entry("bad", value=bad), entry("after")])
        assert await second.size(key()) == 20


async def test_a_session_is_one_for_holdfasts_own_tools_too(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    async with ClaudeSessionStore(url) as sessions:
        await sessions.append(key("a/b", project="-home-ann"), [entry("a")])
    async with connect(url) as store:
        (row,) = (await store.find(Query(workspace="-home-ann", agent="claude"))).items
        assert row.session == "-home-ann/a%2Fb"
        kinds = [event.kind async for event in store.read(row.key)]
        assert kinds == ["session.created", "claude.entry", "metadata.changed"]
        assert [damage async for damage in store.verify()] == []
