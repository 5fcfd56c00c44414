"""Files of a sandbox by path, the patterns of a list, and the life of a session's folder."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.errors import OutsideSandbox, SandboxError
from holdfast.events import Key, key
from holdfast.harness.sandbox import LocalSandbox, Place, Sandbox
from holdfast.harness.sandbox.patterns import Pattern

ROW = "harness-kernel"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


async def opened(sandbox: Sandbox, session: Key) -> Place:
    return await sandbox.open(session, agent="a", resources=None)


async def test_what_is_written_is_read(place: Place) -> None:
    await place.write("a/b/c.txt", b"one")
    assert await place.read("a/b/c.txt") == b"one"
    await place.write("a/b/c.txt", b"two", append=True)
    assert await place.read(f"{place.folder}/a/./b/../b/c.txt") == b"onetwo"
    assert await place.read("a/b/c.txt", limit=4) == b"onet"
    await place.write("a/b/c.txt", b"")
    assert await place.read("a/b/c.txt") == b""
    await place.write("new", b"x", append=True)
    assert await place.list(limit=10) == ["new", "a/b/c.txt"]


async def test_a_file_that_is_written_anew_keeps_its_mode(place: Place, root: Path) -> None:
    await place.write("run.sh", b"#!/bin/sh\necho 1\n")
    (root / "run.sh").chmod(0o750)
    await place.write("run.sh", b"#!/bin/sh\necho 2\n")
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o750
    assert (await place.run("./run.sh")).stdout == "2\n"


async def test_a_file_can_be_written_to_be_run(place: Place) -> None:
    for append in (False, True):
        name = f"run{append}.sh"
        await place.write(name, b"#!/bin/sh\necho 1\n", append=append)
        assert (await place.run(f"./{name}")).exit_code == 126
        more = b"echo 2\n" if append else b"#!/bin/sh\necho 1\necho 2\n"
        await place.write(name, more, append=append, executable=True)
        assert (await place.run(f"./{name}")).stdout == "1\n2\n"


async def test_who_reads_meets_a_whole_file(place: Place) -> None:
    texts = [bytes([letter]) * 300_000 for letter in b"ab"]
    await place.write("f", texts[0])

    async def write() -> None:
        for n in range(40):
            await place.write("f", texts[n % 2])

    writing = asyncio.create_task(write())
    while not writing.done():
        assert await place.read("f") in texts
    await writing
    assert await place.list(limit=9) == ["f"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("none", "No such file"),
        ("none/deeper", "No such file"),
        (".", "not a regular file"),
        ("folder", "not a regular file"),
        ("file/below", "Not a directory"),
        ("pipe", "not a regular file"),
        ("loop", "Too many"),
        ("a\0b", "null"),
        ("a\ud800b", "surrogates"),
        ("x" * 300, "too long"),
    ],
)
async def test_what_cannot_be_read_is_said(
    place: Place, root: Path, path: str, problem: str
) -> None:
    (root / "folder").mkdir()
    (root / "file").touch()
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    with pytest.raises(SandboxError, match=problem):
        await place.read(path)


@pytest.mark.parametrize("path", [".", "folder", "file/below", "pipe", "loop", "a\0b"])
@pytest.mark.parametrize("append", [False, True])
async def test_what_cannot_be_written_is_said(
    place: Place, root: Path, path: str, append: bool
) -> None:
    (root / "folder").mkdir()
    (root / "file").touch()
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    with pytest.raises(SandboxError):
        await place.write(path, b"x", append=append)
    assert sorted(os.listdir(root)) == ["file", "folder", "loop", "pipe"]


@pytest.mark.parity(ROW, 120)
@pytest.mark.parametrize(
    "path",
    ["../secret", "{outside}/secret", "link/secret", "direct", "in/up/secret", "twice/secret"],
)
async def test_no_path_leads_outside(place: Place, root: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("hush")
    (root.parent / "secret").write_text("hush")
    (root / "in").mkdir()
    (root / "link").symlink_to(outside)
    (root / "twice").symlink_to("link")
    (root / "direct").symlink_to(outside / "secret")
    (root / "in/up").symlink_to("../..")
    path = path.format(outside=outside)
    for call in (
        place.read(path),
        place.write(path, b"mine"),
        place.write(path, b"mine", append=True),
        place.write(f"{path}/new", b"mine"),
    ):
        with pytest.raises(OutsideSandbox):
            await call
    assert (outside / "secret").read_text() == (root.parent / "secret").read_text() == "hush"
    assert os.listdir(outside) == ["secret"]


async def test_a_link_that_stays_inside_is_written_through(place: Place, root: Path) -> None:
    await place.write("a/real", b"1")
    (root / "link").symlink_to("a/real")
    (root / "new").symlink_to("a/made")
    await place.write("link", b"2")
    await place.write("new", b"3")
    assert (await place.read("a/real"), await place.read("a/made")) == (b"2", b"3")
    assert (root / "link").is_symlink()


@pytest.mark.parity(ROW, 120)
async def test_a_link_that_is_put_in_place_meanwhile_leads_nowhere(
    place: Place, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (root / "d").mkdir()
    (root / "d/f").write_text("inside")
    (root / "other").symlink_to(outside)
    with swapping(root, "d", "other"):
        met = {"inside": 0, "refused": 0}
        while min(met.values()) < 20:
            try:
                assert await place.read("d/f") == b"inside"
                await place.write("d/g", b"mine")
                await place.write("d/g", b"mine", append=True)
                await place.run("true > h", cwd="d")
                met["inside"] += 1
            except SandboxError:
                met["refused"] += 1
    assert os.listdir(outside) == ["f"]
    assert (outside / "f").read_text() == "outside"


@contextmanager
def swapping(folder: Path, one: str, other: str) -> Iterator[None]:
    """A folder and a link change names all the time, and neither name is ever free."""
    over = threading.Event()
    names = [os.fsencode(folder / name) for name in (one, other)]
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    failed = []

    def swap() -> None:
        while not over.is_set():
            if rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE):
                failed.append(ctypes.get_errno())

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        over.set()
        swapper.join()
    assert failed == []


# Lists

FILES = [
    "top.py",
    "read.me",
    ".hidden/conf.py",
    "src/a.py",
    "src/b.ts",
    "src/deep/er/c.py",
    "src/node_modules/d.py",
    "src/[odd]/{e}.py",
    ".git/config",
    ".git/hooks/h.py",
]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["top.py"]),
        ("./*", ["read.me", "top.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/*.{py,ts}", ["src/a.py", "src/b.ts"]),
        ("{top,src/a}.py", ["top.py", "src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/[odd]/{e}.py", "src/deep/er/c.py"]),
        ("src/**/**/c.py", ["src/deep/er/c.py"]),
        ("src/de**", []),
        ("src/deep/**", ["src/deep/er/c.py"]),
        ("s?c/[ab].*", ["src/a.py", "src/b.ts"]),
        ("src/[[]odd]/*", ["src/[odd]/{e}.py"]),
        ("src/node_modules/*", ["src/node_modules/d.py"]),
        (".git/**", [".git/config", ".git/hooks/h.py"]),
        ("**/conf.py", [".hidden/conf.py"]),
        ("src", []),
        ("", []),
    ],
)
async def test_a_list_holds_what_matches(place: Place, pattern: str, found: list[str]) -> None:
    for name in FILES:
        await place.write(name, b"")
    assert sorted(await place.list(pattern, limit=100)) == sorted(found)


async def test_a_list_is_whole_before_it_is_cut(place: Place, root: Path) -> None:
    def fill() -> None:
        for n in range(30):
            (root / f"d{n:02}").mkdir()
            for m in range(50):
                (root / f"d{n:02}" / f"{m}.txt").touch()
        (root / "zz/last").mkdir(parents=True)
        (root / "zz/last/the.one").touch()

    await asyncio.to_thread(fill)
    assert await place.list("**/*.one", limit=1) == ["zz/last/the.one"]
    every = await place.list(limit=10_000)
    assert len(every) == len(set(every)) == 1501
    assert await place.list(limit=700) == every[:700]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "a/../../*", "**/../x"])
async def test_a_list_stays_inside(place: Place, pattern: str) -> None:
    with pytest.raises(OutsideSandbox):
        await place.list(pattern, limit=9)


async def test_a_list_enters_no_link_and_minds_no_odd_name(place: Place, root: Path) -> None:
    (root / "link").symlink_to("/etc")
    (root / "loop").symlink_to(".")
    (root / "d").mkdir()
    (root / "d" / os.fsdecode(b"\xff.txt")).touch()
    assert await place.list("**/*.txt", limit=9) == ["d/�.txt"]
    assert "link/passwd" not in await place.list(limit=1000)


async def test_a_list_minds_no_depth(place: Place) -> None:
    await place.run("i=0; while [ $i -lt 300 ]; do mkdir d && cd d && i=$((i+1)); done; touch f")
    await place.write("near", b"")
    assert await place.list(limit=9) == ["near"]


def test_braces_have_a_bound() -> None:
    with pytest.raises(InvalidValue, match="alternatives"):
        Pattern("{a,b}" * 10)
    assert Pattern("{a,b}{c,d}").matches(["bd"])


names = st.sampled_from(["a", "b", "ab", "ba", "b.py"])


@given(path=st.lists(names, min_size=1, max_size=6), data=st.data())
def test_a_pattern_made_from_a_path_matches_it_and_leads_there(
    path: list[str], data: st.DataObject
) -> None:
    pattern: list[str] = []
    left = list(path)
    while left:
        step = data.draw(st.sampled_from(["same", "star", "any", "none"]))
        if step == "any":
            pattern.append("**")
            left = left[data.draw(st.integers(0, len(left) - 1)) :]
        elif step == "none":
            pattern.append("**")
        name = left.pop(0)
        pattern.append("*" if step == "star" else name)
    found = Pattern("/".join(pattern))
    assert found.matches(path)
    assert all(found.leads_into(path[:n]) for n in range(1, len(path)))


# Folders of sessions


async def test_each_session_has_a_folder_of_its_own(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "not/yet/there")
    hostile = ["s", "S", "../../escape", "a/b", "index\0", ".", "s" * 400]
    places = [await opened(sandbox, key(name)) for name in hostile]
    places.append(await opened(sandbox, key("s", tenant="other")))
    for n, place in enumerate(places):
        await place.write("who", str(n).encode())
    assert [await place.read("who") for place in places] == [b"%d" % n for n in range(len(places))]
    assert len(os.listdir(tmp_path / "not/yet/there")) == len(places)
    assert os.listdir(tmp_path) == ["not"]
    thread = await opened(sandbox, key("s", thread="child"))
    assert thread.folder == places[0].folder


async def test_a_shared_folder_is_everybodys_and_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("before")
    sandbox = LocalSandbox(tmp_path, shared=True)
    one, other = await opened(sandbox, key("one")), await opened(sandbox, key("other"))
    assert one.folder == other.folder == str(tmp_path)
    await one.write("f", b"1")
    assert await other.read("f") == b"1"
    await sandbox.destroy(key("one").scope)
    assert sorted(os.listdir(tmp_path)) == ["f", "here"]


async def test_a_folder_is_removed_with_what_its_owner_may_not_change(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path)
    place = await opened(sandbox, key("s"))
    await place.run("mkdir -p go/mod; touch go/mod/f; chmod 400 go/mod/f; chmod 500 go/mod go")
    (tmp_path / f"{Path(place.folder).parent.name}.gone-earlier").mkdir()
    await sandbox.destroy(key("s").scope)
    assert os.listdir(tmp_path) == []


async def test_a_removal_leaves_what_a_link_points_at(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "sessions")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/f").touch()
    place = await opened(sandbox, key("s"))
    os.symlink(tmp_path / "mine", f"{place.folder}/link")
    await sandbox.destroy(key("s").scope)
    assert os.listdir(tmp_path / "sessions") == []
    assert os.listdir(tmp_path / "mine") == ["f"]
