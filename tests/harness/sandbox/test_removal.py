"""Work folders that are removed: also those whose removal was cut short, and those that cannot be
removed yet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Harness, Store, StoreUnavailable, connect, key
from holdfast.errors import SandboxError
from holdfast.harness.sandbox import LocalSandbox
from holdfast.harness.session.session import core_of
from holdfast.models import offline

from .unremovable import lock, needs_root, public_folder, unlock, work_as_nobody

SHOP = Agent("shop", instructions="Help.")
SCOPE = key("s").scope


class Cut:
    """A store of which nobody hears whether it has deleted a session, as when a process is killed
    right then."""

    def __init__(self, store: Store, *, deletes: bool) -> None:
        self._store, self._deletes = store, deletes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete(self, *target: Any, **more: Any) -> Any:
        if self._deletes:
            await self._store.delete(*target, **more)
        raise StoreUnavailable(problem="the connection is lost")


def harness(store: Any, sandbox: Any) -> Harness:
    return Harness(SHOP, store=store, sandbox=sandbox, default_model=offline())


def nest(folder: str, depth: int) -> None:
    """Make a folder in a folder, so deep, and a file at the bottom. A shell looks its whole path
    up at each step."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("n", dir_fd=at)
        above, at = at, os.open("n", os.O_RDONLY, dir_fd=at)
        os.close(above)
    os.close(os.open("z", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


async def until_there_are(folder: Path, count: int) -> list[str]:
    async with asyncio.timeout(30):
        while len(found := os.listdir(folder)) > count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("deleted", [True, False])
async def test_a_deletion_that_was_cut_short_is_finished_by_the_next_start(
    tmp_path: Path, deleted: bool
) -> None:
    store = await connect(f"sqlite:{tmp_path}/shop.db")
    sandbox = LocalSandbox(tmp_path / "places")
    async with harness(Cut(store, deletes=deleted), sandbox) as first:
        session = await first.get_or_create("s")
        place = await core_of(session).place()
        await place.write("a.txt", b"kept")
        with pytest.raises(StoreUnavailable):
            await first.delete("s")
    assert (await store.row(key("s")) is None) == deleted
    async with harness(store, sandbox) as second:
        found = await until_there_are(tmp_path / "places", 0 if deleted else 1)
        if not deleted:
            assert (tmp_path / "places" / found[0] / "files/a.txt").read_bytes() == b"kept"
            await second.delete("s")
        assert os.listdir(tmp_path / "places") == []
    await store.aclose()


async def test_sessions_of_other_stores_and_tenants_keep_their_folders(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "places")
    for scope, store in ((SCOPE, "elsewhere.db"), (key("s", tenant="t").scope, "memory")):
        place = await sandbox.open(key("s", tenant=scope.tenant), agent="a", resources=None)
        await place.write("a.txt", b"kept")
        await sandbox.condemn(scope, store)
    async with harness("memory:", sandbox) as one:
        swept = await one.sweep_folders()
        assert (swept.folders, swept.remains) == (0, ())
    assert len([*(tmp_path / "places").glob("*/files/a.txt")]) == 2


async def test_a_folder_that_was_made_after_its_removal_began_stays(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path)
    place = await sandbox.open(key("s"), agent="a", resources=None)
    await sandbox.condemn(SCOPE, "memory")
    os.rename(Path(place.folder).parent, tmp_path / "aside")
    again = await sandbox.open(key("s"), agent="a", resources=None)
    await again.write("new.txt", b"new")
    await sandbox.destroy(SCOPE)
    assert await again.read("new.txt") == b"new"


async def test_a_folder_that_was_written_into_after_its_removal_began_goes(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path)
    place = await sandbox.open(key("s"), agent="a", resources=None)
    await sandbox.condemn(SCOPE, "memory")
    (Path(place.folder).parent / "late").write_bytes(b"by a process that had not ended yet")
    await sandbox.destroy(SCOPE)
    assert os.listdir(tmp_path) == []


@needs_root
async def test_what_cannot_be_removed_is_told_once_and_removed_when_it_can_be() -> None:
    work_as_nobody()
    with public_folder() as folder:
        sandbox = LocalSandbox(folder)
        place = await sandbox.open(key("s"), agent="a", resources=None)
        for name in ("a/b/c.txt", "d.txt"):
            await place.write(name, b"x")
        lock(Path(place.folder) / "a")
        with pytest.raises(SandboxError, match=r"1 entry .*'files/a/locked': Permission denied"):
            await sandbox.destroy(SCOPE)
        left = [*folder.rglob("*.txt")]
        assert [file.name for file in left] == ["kept.txt"]
        async with harness("memory:", sandbox) as one:
            assert "Permission denied" in (await one.sweep_folders()).remains[0].what
            unlock(left[0].parent)
            assert (await one.sweep_folders()).remains == ()
        assert os.listdir(folder) == []


async def test_a_wide_and_deep_folder_is_removed(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path)
    place = await sandbox.open(key("s"), agent="a", resources=None)
    line = "for a in 1 2 3; do mkdir -p d$a/e/f/g; touch d$a/x d$a/e/f/g/y; chmod 0 d$a/e/f; done"
    assert (await place.run(line)).exit_code == 0
    nest(place.folder, 1200)
    (tmp_path / "kept").mkdir()
    os.symlink(tmp_path / "kept", f"{place.folder}/link")
    await sandbox.destroy(SCOPE)
    assert os.listdir(tmp_path) == ["kept"]
