"""Who may open the files of a store: its owner, unless the URL says otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import InvalidValue, NewEvent, connect, key

ENDS = ("", "-wal", "-shm", ".lock")


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    return {end: os.stat(f"{path}{end}").st_mode & 0o777 for end in ENDS}


async def modes_while_open(path: Path, options: str = "") -> dict[str, int]:
    async with connect(f"sqlite:{path}{options}") as store:
        await store.append(key("s"), [NewEvent.of("note.made")], create=True)
        return modes(path)


async def test_the_files_of_a_sqlite_store_are_private(tmp_path: Path) -> None:
    assert await modes_while_open(tmp_path / "s.db") == dict.fromkeys(ENDS, 0o600)
    assert await modes_while_open(tmp_path / "s.db") == dict.fromkeys(ENDS, 0o600)


@pytest.mark.parametrize(("text", "mode"), [("0640", 0o640), ("660", 0o660), ("0600", 0o600)])
async def test_the_url_says_who_else_may_open_them(tmp_path: Path, text: str, mode: int) -> None:
    found = await modes_while_open(tmp_path / "s.db", f"?mode={text}&durability=process")
    assert found == dict.fromkeys(ENDS, mode)


async def test_files_that_exist_keep_their_permissions(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await modes_while_open(path)
    path.chmod(0o664)
    os.unlink(f"{path}.lock")
    assert await modes_while_open(path, "?mode=0600") == dict.fromkeys(ENDS, 0o664)


@pytest.mark.parametrize("text", ["", "rw", "8", "0777", "0400", "-600", "06000", "0o600"])
async def test_a_mode_that_is_none_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        await connect(f"sqlite:{tmp_path / 's.db'}?mode={text}")
    assert caught.value.field == "mode"
    assert os.listdir(tmp_path) == []


async def test_the_files_of_a_folder_are_private(tmp_path: Path) -> None:
    async with connect(f"file:{tmp_path / 'store'}") as store:
        await store.append(key("s"), [NewEvent.of("note.made")], create=True)
        await store.put_blob(key("s").scope, b"blob")
        await store.claim("main", "name", key("s").scope)
        for path in (tmp_path / "store").rglob("*"):
            wanted = 0o700 if path.is_dir() else 0o600
            assert path.stat().st_mode & 0o777 == wanted, path
