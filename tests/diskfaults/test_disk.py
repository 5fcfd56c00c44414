"""Disks that are full, and places that are no store: typed errors, and nothing is harmed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import HoldfastError, InvalidValue, NewEvent, StoreTooNew, StoreUnavailable, key
from tests.crash.places import KINDS, open_at, url

from .full import SIZES

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parity("user-demand", 42)
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_refuses_and_harms_nothing(kind: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.diskfaults.full", kind, str(tmp_path)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stderr) == (0, "")
    failed = json.loads(run.stdout)
    assert failed[0] == len(SIZES), "with no room at all, each of those who share a batch fails"
    assert sum(failed) > failed[0]


# Opening what is no store


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder, without the lock files, which hold nothing."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.suffix != ".lock"
    }


def opened(folder: Path) -> list[str]:
    """The open files under a folder; those elsewhere may be somebody else's in this process."""
    found = []
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # closed since
            found.append(os.readlink(f"/dev/fd/{number}"))
    return sorted(name for name in found if name.startswith(f"{folder.resolve()}{os.sep}"))


@contextlib.contextmanager
def leaving_all_as_it_was(folder: Path) -> Iterator[None]:
    """No file changes, no file stays open, and nothing is left to the garbage collector."""
    before = contents(folder)
    gc.collect()
    open_files = opened(folder)
    yield
    assert opened(folder) == open_files
    gc.collect()
    assert contents(folder) == before


async def refused(address: str) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        async with holdfast.connect(address):
            pass
    error = caught.value
    assert not error.retryable, "opening it again does not help"
    return error


@pytest.mark.parametrize("kind", KINDS)
async def test_a_folder_that_does_not_exist(kind: str, tmp_path: Path) -> None:
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url(kind, tmp_path / "nowhere"))
    assert isinstance(error, InvalidValue)
    assert "nowhere" in str(error)
    assert error.remedy


async def test_a_folder_in_place_of_a_database(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").mkdir()
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url("sqlite", tmp_path))
    assert isinstance(error, InvalidValue)
    assert error.remedy


async def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "holdfast").write_text("a letter")
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url("file", tmp_path))
    assert isinstance(error, InvalidValue)
    assert error.remedy


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_text("a long letter, not a database " * 100)
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url("sqlite", tmp_path))
    assert isinstance(error, InvalidValue)
    assert "holdfast.db" in str(error)
    assert error.remedy


def make_foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE letters (text)")
        conn.execute("INSERT INTO letters VALUES ('dear')")
        conn.commit()


async def test_a_database_of_another_program(tmp_path: Path) -> None:
    make_foreign(tmp_path / "holdfast.db")
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url("sqlite", tmp_path))
    assert isinstance(error, InvalidValue)
    assert "another program" in error.problem
    assert error.remedy


async def test_a_folder_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "holdfast").mkdir()
    make_foreign(tmp_path / "holdfast" / "index.db")
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url("file", tmp_path))
    assert isinstance(error, InvalidValue)
    assert error.remedy


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"holdfast": "one"}', '{"other": 1}'])
async def test_a_format_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    await fill("file", tmp_path)
    (tmp_path / "holdfast" / "format.json").write_text(text)
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url("file", tmp_path))
    assert "format.json" in str(error)


async def fill(kind: str, folder: Path) -> None:
    store = await open_at(kind, folder)
    await store.append(key("a"), [NewEvent.of("note.made", {"text": "hello"})], create=True)
    await store.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_that_a_newer_version_wrote(kind: str, tmp_path: Path) -> None:
    await fill(kind, tmp_path)
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db")) as conn:
            conn.execute("PRAGMA user_version = 999")
    else:
        (tmp_path / "holdfast" / "format.json").write_text('{"holdfast": 999}')
    with leaving_all_as_it_was(tmp_path):
        error = await refused(url(kind, tmp_path))
    assert isinstance(error, StoreTooNew)
    assert (error.found, error.known) == (999, 1)
    assert "999" in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_store(kind: str, tmp_path: Path) -> None:
    store = await open_at(kind, tmp_path)
    name, event = key("a"), NewEvent.of("note.made")
    await store.append(name, [event], create=True)
    await store.aclose()
    with leaving_all_as_it_was(tmp_path):
        await store.aclose()
        for call in (
            store.append(name, [event]),
            store.row(name),
            store.delete(name),
            store.delete(name.scope),
            store.purge(),
            store.acquire(name, "me"),
            anext(store.read(name)),
            anext(store.follow(name)),
            anext(store.verify()),
        ):
            with pytest.raises(StoreUnavailable, match="closed"):
                await call
    assert store.info().kind == kind


@pytest.mark.parametrize("kind", KINDS)
async def test_opening_and_closing_leaves_no_file_open(kind: str, tmp_path: Path) -> None:
    await fill(kind, tmp_path)
    gc.collect()
    before = sorted(os.listdir("/dev/fd"))
    await fill(kind, tmp_path)
    gc.collect()
    assert sorted(os.listdir("/dev/fd")) == before
