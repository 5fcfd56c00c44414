"""A session taken elsewhere whole: its conversation as a bundle, its work folder as an archive."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Client
from holdfast.client.sync import Client as SyncClient
from holdfast.errors import OutsideSandbox
from holdfast.harness.sandbox import LocalSandbox, archive
from holdfast.server import MemoryAudit
from holdfast.server.app import service_of

from .openapi import in_a_thread
from .scene import Api, Tokens, serving, settings

ARCHIVE = "/sessions/one/files/archive"
CONTENT = "/sessions/one/files/content"
BINARY = bytes(range(256)) * 300
FILES = {"notes.txt": b"refund 42\n", "deep/er/data.bin": BINARY, "deep/empty": b"", "é.txt": b"e"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Api, None]:
    """A server with a sandbox, and a session on it that has a file."""
    async with serving(harness={"sandbox": LocalSandbox(tmp_path / "places")}) as one:
        await one("PUT", "/sessions/one")
        await put(one, "mine.txt", b"mine")
        yield one


@pytest.fixture
def root(api: Api, tmp_path: Path) -> Path:
    return next((tmp_path / "places").glob("*/files"))


async def put(api: Api, path: str, data: bytes) -> None:
    await api("PUT", CONTENT, content=data, params={"path": path})


async def packed(api: Api, **more: Any) -> bytes:
    answer = await api.ask("GET", ARCHIVE, **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.headers["content-disposition"].startswith("attachment")
    return answer.content


def contents(data: bytes) -> dict[str, bytes | None]:
    """What is in an archive; a folder is None."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = [(info, tar.extractfile(info)) for info in tar]
        return {info.name: file.read() if file is not None else None for info, file in found}


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def paths_in(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.parity("computeragent", "S27")
async def test_a_session_goes_on_elsewhere_with_its_conversation_and_its_files(
    url: str, tmp_path: Path
) -> None:
    first = settings(harness={"sandbox": LocalSandbox(tmp_path / "here")})
    second = settings(url, harness={"sandbox": LocalSandbox(tmp_path / "there")})
    async with serving(first) as here, serving(second) as there:
        await here("PUT", "/sessions/one")
        await here("POST", "/sessions/one/messages?wait=true", {"content": "Note it."})
        for path, data in FILES.items():
            await put(here, path, data)
        await here("POST", "/sessions/one/files/folders", {"path": "nothing/here"})
        (root,) = (tmp_path / "here").glob("*/files")
        (root / "deep" / "run.sh").write_bytes(b"#!/bin/sh\necho ran\n")
        (root / "deep" / "run.sh").chmod(0o755)
        bundle = await here.ask("GET", "/sessions/one/bundle?mode=local&purpose=copy")
        snapshot = await packed(here)

        await there("POST", "/bundles", content=bundle.content)
        done = await there("PUT", ARCHIVE, content=snapshot)
        assert done == {"files": 5, "size": sum(map(len, FILES.values())) + 19}
        (copied,) = (tmp_path / "there").glob("*/files")
        assert files_in(copied) == files_in(root)
        assert (copied / "nothing" / "here").is_dir()
        assert os.access(copied / "deep" / "run.sh", os.X_OK)
        assert not os.access(copied / "notes.txt", os.X_OK)
        assert contents(await packed(there)) == contents(snapshot)

        told = await there("GET", "/sessions/one/transcript")
        assert [m["text"] for m in told["items"] if "text" in m] == ["Note it.", "Noted."]
        state = await there("GET", "/sessions/one/state")
        assert state["state"]["note"] == "hello"
        more = await there("POST", "/sessions/one/messages?wait=true", {"content": "More"})
        assert (more["status"], more["text"]) == ("done", "Good day.")


async def test_the_client_takes_and_puts_back_files(api: Api) -> None:
    async with Client(api.url, "ann@acme") as client:
        files = client.session("one").files
        snapshot = await files.archive()
        await files.write("mine.txt", "spoilt")
        await files.write("new.txt", "new")
        done = await files.restore(snapshot)
        assert (done.files, done.size) == (1, 4)
        assert await files.read("mine.txt") == b"mine"
        assert await files.read("new.txt") == b"new"
        with pytest.raises(OutsideSandbox):
            await files.restore(tar(("../x", b"x")))


def test_the_client_without_await_does_too(tmp_path: Path) -> None:
    sandbox = LocalSandbox(tmp_path / "places")
    with in_a_thread(harness={"sandbox": sandbox}) as url, SyncClient(url, "ann@acme") as client:
        files = client.get_or_create("one").files
        files.write("a/b.txt", "text")
        snapshot = files.archive()
        files.remove("a", all=True)
        assert files.restore(snapshot).files == 1
        assert files.read("a/b.txt") == b"text"


async def test_links_and_git_stay_where_they_are(api: Api, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / "leaf").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "inner").symlink_to("mine.txt")
    os.mkfifo(root / "pipe")
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "sub" / ".git" / "config").write_text("token")
    (root / ".gitignore").write_text("*.pyc")
    found = contents(await packed(api))
    assert found == {"mine.txt": b"mine", "sub": None, ".gitignore": b"*.pyc"}


async def test_the_same_files_give_the_same_archive(api: Api) -> None:
    await put(api, "b/two.txt", b"2")
    await put(api, "a/one.txt", b"1")
    assert await packed(api) == await packed(api)


def tar(*members: tuple[str, bytes | str], change: Callable[[Any], None] | None = None) -> bytes:
    """An archive of members: bytes are a file's, text is the kind of a member without any."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as made:
        for name, what in members:
            info = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                info.size = len(what)
            else:
                info.type, info.linkname = what.encode(), "mine.txt"
            if change is not None:
                change(info)
            made.addfile(info, io.BytesIO(what) if isinstance(what, bytes) else None)
    return file.getvalue()


GOOD = ("good.txt", b"good")
LINK, HARD, PIPE, DEVICE, FOLDER = "2", "1", "6", "3", "5"


def damaged() -> bytes:
    """An archive whose second header is wrong."""
    plain = bytearray(gzip.decompress(tar(GOOD, ("more.txt", b"more"))))
    plain[1024 + 10] ^= 0xFF
    return gzip.compress(bytes(plain))


def spoilt() -> bytes:
    """An archive whose checksum is wrong."""
    whole = bytearray(tar(GOOD))
    whole[-6] ^= 0xFF
    return bytes(whole)


def two() -> bytes:
    """An archive behind the end of another."""
    return tar(GOOD) + tar(("hidden.txt", b"x"))


def described(kind: bytes, text: bytes, times: int = 1) -> bytes:
    """An archive with headers that say something of the next, such as its name."""
    info = tarfile.TarInfo("said")
    info.type, info.size = kind, len(text)
    said = info.tobuf(tarfile.GNU_FORMAT) + text + b"\0" * (-len(text) % 512)
    return gzip.compress(said * times + gzip.decompress(tar(GOOD)))


LONG = 10_000
WRONG: dict[str, tuple[bytes, str, str]] = {
    "digits": (described(tarfile.XHDTYPE, b"1" * LONG), "invalid_value", "archive"),
    "said of all": (described(tarfile.XGLTYPE, b"6 a=b\n" * LONG), "invalid_value", "archive"),
    "a name without end": (
        *(described(tarfile.GNUTYPE_LONGNAME, b"a/" * LONG), "invalid_value", "archive"),
    ),
    "said again and again": (
        *(described(tarfile.GNUTYPE_LONGNAME, b"a\0", 2_000), "invalid_value", "archive"),
    ),
    "said too often": (
        *(described(tarfile.XGLTYPE, b"4096 a=" + b"b" * 4088 + b"\n", 600), "invalid_value"),
        "archive",
    ),
    "above": (tar(GOOD, ("../x", b"x")), "outside_sandbox", "path"),
    "above later": (tar(GOOD, ("a/../../x", b"x")), "outside_sandbox", "path"),
    "absolute": (tar(GOOD, ("/etc/cron.d/x", b"x")), "outside_sandbox", "path"),
    "link": (tar(GOOD, ("leaf", LINK)), "invalid_value", "archive"),
    "link and through it": (tar(("d", LINK), ("d/x", b"x")), "invalid_value", "archive"),
    "hard link": (tar(GOOD, ("leaf", HARD)), "invalid_value", "archive"),
    "pipe": (tar(GOOD, ("pipe", PIPE)), "invalid_value", "archive"),
    "device": (tar(GOOD, ("disk", DEVICE)), "invalid_value", "archive"),
    "twice": (tar(GOOD, ("./good.txt", b"other")), "invalid_value", "archive"),
    "file and folder": (tar(GOOD, ("good.txt/x", b"x")), "invalid_value", "archive"),
    "folder and file": (tar(("a", FOLDER), GOOD, ("a", b"x")), "invalid_value", "archive"),
    "long name": (tar(GOOD, ("x" * 256, b"x")), "invalid_value", "archive"),
    "no UTF-8": (tar(GOOD, ("\udcff", b"x")), "invalid_value", "archive"),
    "a file that is the folder": (tar(GOOD, (".", b"x")), "invalid_value", "archive"),
    "deep": (tar(GOOD, ("d/" * 32 + "x", b"x")), "invalid_value", "depth"),
    "cut": (tar(GOOD, ("more", BINARY))[:200], "invalid_value", "archive"),
    "damaged": (damaged(), "invalid_value", "archive"),
    "spoilt": (spoilt(), "invalid_value", "archive"),
    "two": (two(), "invalid_value", "archive"),
    "nothing": (b"", "invalid_value", "archive"),
    "no archive": (b"nonsense", "invalid_value", "archive"),
    "not packed": (gzip.decompress(tar(GOOD)), "invalid_value", "archive"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_archive_that_is_not_as_it_should_be_writes_nothing(
    api: Api, root: Path, tmp_path: Path, name: str
) -> None:
    data, code, field = WRONG[name]
    before = paths_in(tmp_path)
    told = await api.fails(code, "PUT", ARCHIVE, content=data)
    assert told.get("field", "path") == field
    assert files_in(root) == {"mine.txt": b"mine"}
    assert paths_in(tmp_path) == before


async def test_what_is_written_stays_inside_also_where_a_link_is_in_the_folder(
    api: Api, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "way").symlink_to(outside)
    await api.fails("outside_sandbox", "PUT", ARCHIVE, content=tar(("way/x", b"x")))
    assert [*outside.iterdir()] == []


async def test_git_of_an_archive_is_left_out(api: Api, root: Path) -> None:
    hooks = (".git/hooks/pre-commit", b"evil")
    sent = tar(GOOD, hooks, ("sub/.GIT/config", b"evil"), (".git", LINK))
    assert await api("PUT", ARCHIVE, content=sent) == {"files": 1, "size": 4}
    assert files_in(root) == {"mine.txt": b"mine", "good.txt": b"good"}


async def test_more_than_an_archive_may_hold_is_refused_either_way(
    api: Api, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = tar(("zeros", bytes(archive.BYTES + 1)))
    assert len(bomb) < 1 << 20
    assert (await api.fails("request_too_large", "PUT", ARCHIVE, content=bomb))["limit"] == (
        archive.BYTES
    )
    assert files_in(root) == {"mine.txt": b"mine"}
    monkeypatch.setattr(archive, "ENTRIES", 3)
    monkeypatch.setattr(archive, "BYTES", 10)
    many = tar(*((f"{n}.txt", b"x") for n in range(4)))
    told = await api.fails("invalid_value", "PUT", ARCHIVE, content=many)
    assert (told["field"], told["limit"]) == ("files", 3)
    await put(api, "large.txt", b"1234567")
    await api.fails("request_too_large", "GET", ARCHIVE)
    await api("DELETE", "/sessions/one/files", params={"path": "large.txt"})
    for number in range(3):
        await put(api, f"{number}", b"x")
    assert (await api.fails("invalid_value", "GET", ARCHIVE))["limit"] == 3


async def test_archives_need_the_scopes_of_files_and_are_written_down(tmp_path: Path) -> None:
    auth = Tokens(("sessions:read", "sessions:write"))
    sandbox = LocalSandbox(tmp_path / "places")
    async with serving(auth=auth, harness={"sandbox": sandbox}) as api:
        await api("PUT", "/sessions/one")
        reads, writes = "ann@acme+files:read", "ann@acme+files:write"
        await packed(api, by=reads)
        await api("PUT", ARCHIVE, content=tar(GOOD), by=writes)
        await api.fails("forbidden", "GET", ARCHIVE, by=writes)
        await api.fails("forbidden", "PUT", ARCHIVE, content=tar(GOOD), by=reads)
        for who in ("bob@acme+files:read", "ann@other+files:read"):
            await api.fails("session_not_found", "GET", ARCHIVE, by=who)
        sink = service_of(api.app).settings.audit
        assert isinstance(sink, MemoryAudit)
        found = [(r.action, r.session, r.code) for r in sink.records if "files" in r.action]
        # What is sent in pieces is written down when it has been sent, perhaps behind the next.
        assert {*found} >= {
            ("pack_files", "one", None),
            ("restore_files", "one", None),
            ("pack_files", "one", "forbidden"),
        }
    async with serving() as api:
        await api("PUT", "/sessions/one")
        await api.fails("sandbox_failed", "GET", ARCHIVE)
        await api.fails("sandbox_failed", "PUT", ARCHIVE, content=tar(GOOD))
