"""Work folders of sessions that are deleted: gone, or in the receipt and removed later."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.harness.sandbox import LocalSandbox
from tests.harness.sandbox.unremovable import (
    lock,
    needs_root,
    public_folder,
    unlock,
    work_as_nobody,
    work_as_oneself,
)

from .scene import PATIENCE, Api, serving, settings

WRITE = "/sessions/one/files/content"


def made(folder: Path, stores: Any = "memory:", **more: Any) -> Any:
    return settings(stores, harness={"sandbox": LocalSandbox(folder)}, **more)


async def put(api: Api, path: str = "a.txt", **more: Any) -> None:
    await api("PUT", "/sessions/one", **more)
    await api("PUT", WRITE, params={"path": path}, content=b"kept", **more)


def inside(folder: Path) -> Path:
    """The files of the only session."""
    (session,) = (name for name in os.listdir(folder) if "." not in name)
    return folder / session / "files"


async def emptied(folder: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while os.listdir(folder):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@needs_root
async def test_deleting_a_session_tells_which_files_remain_and_the_next_start_removes_them() -> (
    None
):
    with public_folder() as folder:
        async with serving(made(folder)) as api:
            work_as_nobody()  # only now: nobody may not be allowed to read the program
            await put(api)
            locked = lock(inside(folder))
            receipt = await api("DELETE", "/sessions/one", status=200)
            assert receipt["removed"]["logs"] == 1
            (left,) = [one for one in receipt["remains"] if "folder" in one["where"]]
            assert "files/locked" in left["what"]
            assert "Permission denied" in left["what"]
            assert str(folder) not in str(receipt)
            await api.fails("session_not_found", "DELETE", "/sessions/one")
            await put(api, "new.txt")  # a new session of that name finds nothing of the old one
            tree = await api("GET", "/sessions/one/files/tree")
            assert [entry["path"] for entry in tree["entries"]] == ["new.txt"]
            await api("DELETE", "/sessions/one")
        (gone,) = (name for name in os.listdir(folder) if ".gone-" in name)
        (moved,) = folder.glob(f"{gone}/**/kept.txt")
        unlock(moved.parent)
        work_as_oneself()
        assert locked.name == "locked"
        async with serving(made(folder)):
            await emptied(folder)


@needs_root
async def test_erasing_a_person_goes_on_where_a_file_cannot_be_removed() -> None:
    with public_folder() as folder:
        async with serving(made(folder)) as api:
            work_as_nobody()  # only now: nobody may not be allowed to read the program
            await put(api)
            lock(inside(folder))
            erased = await api("DELETE", "/people/ann?reason=asked")
            assert erased["sessions"] == ["one"]
            assert any("files/locked" in one["what"] for one in erased["remains"])
            await api.fails("session_not_found", "GET", "/sessions/one")


@pytest.mark.parametrize("levels", [2_000])
async def test_a_folder_of_any_depth_is_deleted_with_its_session(
    tmp_path: Path, levels: int
) -> None:
    async with serving(made(tmp_path)) as api:
        await put(api)
        await asyncio.to_thread(dig, inside(tmp_path), levels)
        await api("DELETE", "/sessions/one/files", params={"path": "d", "all": "true"})
        tree = await api("GET", "/sessions/one/files/tree")
        assert [entry["path"] for entry in tree["entries"]] == ["a.txt"]
        await asyncio.to_thread(dig, inside(tmp_path), levels)
        receipt = await api("DELETE", "/sessions/one")
        assert receipt["removed"]["logs"] == 1
        assert os.listdir(tmp_path) == []


def dig(folder: Path, levels: int) -> None:
    """Make folders in each other, as a command may, with a file in the last."""
    opened = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=opened)
        below = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=opened))
    os.close(opened)


async def test_clients_cannot_make_folders_that_are_too_deep(tmp_path: Path) -> None:
    async with serving(made(tmp_path)) as api:
        await put(api)
        deep = "/".join("d" * 102)
        for method, path, body, more in (
            ("PUT", WRITE, None, {"params": {"path": deep}, "content": b"x"}),
            ("POST", "/sessions/one/files/folders", {"path": deep}, {}),
            ("POST", "/sessions/one/files/move", {"path": "a.txt", "to": deep}, {}),
        ):
            fields = await api.fails("sandbox_failed", method, path, body, **more)
            assert "100" in fields["problem"]
        assert os.listdir(inside(tmp_path)) == ["a.txt"]
        half = "/".join("d" * 60)
        await api("POST", "/sessions/one/files/folders", {"path": half})
        await api("POST", "/sessions/one/files/folders", {"path": "/".join("e" * 59)})
        move = {"path": "e", "to": f"{half}/e"}
        await api.fails("sandbox_failed", "POST", "/sessions/one/files/move", move)
        files = [{"path": deep, "content": ""}]
        fields = await api.fails("invalid_value", "PUT", "/sessions/two", {"files": files})
        assert (fields["field"], fields["limit"]) == ("path", 100)
        await api.fails("session_not_found", "GET", "/sessions/two")
