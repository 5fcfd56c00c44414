"""A place's files as a person sees them: shown, moved, removed, and never outside the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import OutsideSandbox, SandboxError
from holdfast.harness.sandbox import DirectoryEntry, NoSandbox, Place


def shown(entries: list[DirectoryEntry]) -> list[tuple[str, str]]:
    return [(entry.path, entry.type) for entry in entries]


async def test_a_tree_shows_what_is_there_down_to_a_depth(place: Place, root: Path) -> None:
    await place.write("a/b/c/deep.txt", b"12345")
    await place.write("top.txt", b"123")
    (root / "link").symlink_to("a")
    assert shown(await place.tree()) == [("a", "folder"), ("link", "link"), ("top.txt", "file")]
    assert shown(await place.tree(depth=2))[1] == ("a/b", "folder")
    whole = await place.tree(depth=8)
    assert [entry.path for entry in whole] == [
        *("a", "a/b", "a/b/c", "a/b/c/deep.txt", "link", "top.txt"),
    ]
    assert (whole[3].size, whole[3].mode & 0o600) == (5, 0o600)
    assert whole[3].changed > 1_600_000_000_000
    assert shown(await place.tree("a/b", depth=2)) == [
        ("a/b/c", "folder"),
        ("a/b/c/deep.txt", "file"),
    ]
    assert len(await place.tree(depth=8, limit=2)) == 2


async def test_a_file_and_a_folder_are_moved(place: Place) -> None:
    await place.write("a/one.txt", b"one")
    await place.move("a/one.txt", "b/c/two.txt")
    assert await place.read("b/c/two.txt") == b"one"
    await place.move("b", "d")
    assert await place.list(limit=9) == ["d/c/two.txt"]
    await place.write("e", b"there")
    for taken in ("e", "d", "."):
        with pytest.raises(SandboxError, match="exists"):
            await place.move("d/c/two.txt", taken)
    with pytest.raises(SandboxError, match="No such file"):
        await place.move("none", "f")
    assert await place.read("e") == b"there"


async def test_a_folder_is_removed_whole_only_where_that_is_asked_for(place: Place) -> None:
    await place.write("a/b/c.txt", b"x")
    await place.make("empty/inner")
    await place.make("empty/inner")
    with pytest.raises(SandboxError, match="not empty"):
        await place.remove("a")
    await place.remove("empty/inner")
    await place.remove("a", all=True)
    assert shown(await place.tree(depth=3)) == [("empty", "folder")]
    for path in (".", "empty/..", place.folder):
        with pytest.raises(SandboxError, match="itself"):
            await place.remove(path, all=True)


async def test_what_is_outside_stays_as_it_was(place: Place, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "way").symlink_to(outside)
    (root / "gone").symlink_to(outside / "new")
    for path in ("../outside", "way", "way/secret", "/etc"):
        with pytest.raises(OutsideSandbox):
            await place.tree(path)
    for path in ("way/new", "gone/new", "../new"):
        with pytest.raises(OutsideSandbox):
            await place.make(path)
        await place.write("mine", b"m")
        with pytest.raises(OutsideSandbox):
            await place.move("mine", path)
    with pytest.raises(OutsideSandbox):
        await place.move("way/secret", "mine-now")
    with pytest.raises(OutsideSandbox):
        await place.remove("way/secret")
    await place.remove("way", all=True)  # the link, not where it leads
    await place.remove("gone")
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert sorted(os.listdir(root)) == ["mine"]


async def test_without_a_sandbox_there_is_nothing_to_show() -> None:
    nowhere = await NoSandbox().open(None, agent="a", resources=None)  # type: ignore[arg-type]
    for asked in (nowhere.tree(), nowhere.make("a"), nowhere.move("a", "b"), nowhere.remove("a")):
        with pytest.raises(SandboxError, match="no sandbox"):
            await asked
