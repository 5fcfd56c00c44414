"""Files of a session's work folder over HTTP: shown, read, changed, and never outside of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast.harness.sandbox import LocalSandbox
from holdfast.server import MemoryAudit
from holdfast.server.app import service_of

from .scene import Api, Tokens, serving

FILES = "/sessions/one/files"
CONTENT = f"{FILES}/content"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Api, None]:
    """A server with a sandbox, and a session on it."""
    async with serving(harness={"sandbox": LocalSandbox(tmp_path / "places")}) as one:
        await one("PUT", "/sessions/one")
        await put(one, "top.txt", b"top")
        yield one


@pytest.fixture
def root(api: Api, tmp_path: Path) -> Path:
    """The work folder of the session."""
    return next((tmp_path / "places").glob("*/files"))


async def put(api: Api, path: str, data: bytes, **more: Any) -> Any:
    return await api("PUT", CONTENT, content=data, params={"path": path}, **more)


async def read(api: Api, path: str) -> bytes:
    answer = await api.ask("GET", CONTENT, params={"path": path})
    assert answer.status_code == 200, answer.text
    return answer.content


async def names(api: Api, **query: Any) -> list[str]:
    tree = await api("GET", f"{FILES}/tree", params=query)
    return [entry["path"] for entry in tree["entries"]]


@pytest.mark.parity("computeragent", "S9")
async def test_a_file_is_written_read_shown_moved_and_removed(api: Api) -> None:
    data = bytes(range(256))
    assert await put(api, "a/b/data.bin", data) == {"path": "a/b/data.bin", "size": 256}
    assert await read(api, "a/b/data.bin") == data
    await api("POST", f"{FILES}/folders", {"path": "new/inner"}, status=204)
    await api("POST", f"{FILES}/folders", {"path": "new/inner"}, status=204)
    await api("POST", f"{FILES}/move", {"path": "a/b/data.bin", "to": "new/x.bin"}, status=204)
    assert await names(api, path="new") == ["new/inner", "new/x.bin"]
    await api.fails("no_such_file", "GET", CONTENT, params={"path": "a/b/data.bin"})
    taken = {"path": "new/x.bin", "to": "top.txt"}
    assert (await api.ask("POST", f"{FILES}/move", taken)).status_code == 422
    await api("DELETE", FILES, params={"path": "new/x.bin"}, status=204)
    assert (await api.ask("DELETE", FILES, params={"path": "a"})).status_code == 422
    await api("DELETE", FILES, params={"path": "a", "all": True}, status=204)
    await api.fails("no_such_file", "DELETE", FILES, params={"path": "a"})
    assert await names(api) == ["new", "top.txt"]
    await api("DELETE", "/sessions/one")
    await api("PUT", "/sessions/one")
    assert await names(api) == []


@pytest.mark.parity("computeragent", "S10")
async def test_a_tree_goes_one_down_unless_more_is_asked_for(api: Api) -> None:
    await put(api, "1/2/3/4/5/6/7/8/9/deep.txt", b"x")
    assert await names(api) == ["1", "top.txt"]
    assert await names(api, depth=3) == ["1", "1/2", "1/2/3", "top.txt"]
    assert (await names(api, depth=8))[-2] == "1/2/3/4/5/6/7/8"
    for depth in ("9", "0", "-1", "many"):
        refused = await api.fails("invalid_value", "GET", f"{FILES}/tree?depth={depth}")
        assert "depth" in refused["field"]


async def test_a_tree_says_what_there_is_and_whether_that_is_all(api: Api, root: Path) -> None:
    (root / "link").symlink_to("top.txt")
    for number in range(1_001):
        (root / f"{number:04}").touch()
    tree = await api("GET", f"{FILES}/tree")
    assert (len(tree["entries"]), tree["more"]) == (1_000, True)
    for number in range(1_001):
        (root / f"{number:04}").unlink()
    tree = await api("GET", f"{FILES}/tree")
    assert [(e["path"], e["type"], e["size"]) for e in tree["entries"]] == [
        ("link", "link", 7),
        ("top.txt", "file", 3),
    ]
    assert tree["more"] is False


@pytest.mark.parity("computeragent", "S11")
async def test_an_edit_replaces_a_text(api: Api) -> None:
    await put(api, "pets.txt", b"cat, cat and bird")
    edit = f"{FILES}/edit"
    many = {"path": "pets.txt", "search": "cat", "replace": "dog"}
    refused = await api.fails("invalid_value", "POST", edit, many)
    assert (refused["field"], refused["problem"]) == ("search", "matches 2 times")
    done = await api("POST", edit, {**many, "all": True})
    assert done == {"path": "pets.txt", "replaced": 2}
    assert await read(api, "pets.txt") == b"dog, dog and bird"
    await api("POST", edit, {"path": "pets.txt", "search": "bird", "replace": ""})
    await api.fails("invalid_value", "POST", edit, {**many, "all": True})
    await api.fails("no_such_file", "POST", edit, {**many, "path": "none.txt"})
    await api.fails("invalid_value", "POST", edit, {**many, "search": ""})
    assert await read(api, "pets.txt") == b"dog, dog and "


async def ways_to(api: Api, path: str, code: str) -> None:
    """Every way to a path is refused with this code."""
    asked = {"path": path}
    await api.fails(code, "GET", CONTENT, params=asked)
    await api.fails(code, "PUT", CONTENT, params=asked, content=b"evil")
    await api.fails(code, "GET", f"{FILES}/tree", params=asked)
    await api.fails(code, "POST", f"{FILES}/edit", {**asked, "search": "s", "replace": ""})
    await api.fails(code, "POST", f"{FILES}/folders", asked)
    await api.fails(code, "POST", f"{FILES}/move", {"path": "top.txt", "to": path})


@pytest.mark.parity("computeragent", "S6")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../x", "outside_sandbox"),
        ("a/../../x", "outside_sandbox"),
        ("..", "outside_sandbox"),
        ("/etc/passwd", "outside_sandbox"),
        ("//etc/passwd", "outside_sandbox"),
        ("a\0b", "invalid_value"),
        ("  ", "invalid_value"),
        ("", "invalid_value"),
        ("x" * 5_000, "invalid_value"),
    ],
)
async def test_a_path_that_leads_elsewhere_is_refused(api: Api, path: str, code: str) -> None:
    await put(api, "a/keep.txt", b"keep")
    await ways_to(api, path, code)
    await api.fails(code, "DELETE", FILES, params={"path": path, "all": True})
    await api.fails(code, "POST", f"{FILES}/move", {"path": path, "to": "mine"})
    assert await names(api, depth=3) == ["a", "a/keep.txt", "top.txt"]


@pytest.mark.parity("computeragent", "S7")
@pytest.mark.parity("computeragent", "S8")
async def test_a_link_leads_nowhere_outside(api: Api, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "leaf").symlink_to(outside / "secret")
    (root / "parent").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    for path in ("leaf", "parent/secret", "parent/new", "dangling", "dangling/new"):
        await ways_to_file(api, path)
    await api.fails("outside_sandbox", "GET", f"{FILES}/tree", params={"path": "parent"})
    await api.fails("outside_sandbox", "DELETE", FILES, params={"path": "parent/secret"})
    await api("DELETE", FILES, params={"path": "parent", "all": True}, status=204)
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("secret", "secret")]
    assert not (root / "parent").is_symlink()


async def ways_to_file(api: Api, path: str) -> None:
    code, asked = "outside_sandbox", {"path": path}
    await api.fails(code, "GET", CONTENT, params=asked)
    await api.fails(code, "PUT", CONTENT, params=asked, content=b"evil")
    await api.fails(code, "POST", f"{FILES}/edit", {**asked, "search": "s", "replace": ""})


async def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(
    api: Api, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "real").mkdir()
    (root / "real" / "file").write_text("mine")
    (root / "way").symlink_to("real")

    over = asyncio.Event()

    def swap(target: str | Path) -> None:
        (root / "next").symlink_to(target)
        os.replace(root / "next", root / "way")

    async def swapping() -> None:
        while not over.is_set():
            await asyncio.to_thread(swap, outside)
            await asyncio.to_thread(swap, "real")

    swapper = asyncio.create_task(swapping())
    try:
        for _ in range(40):
            answer = await api.ask("GET", CONTENT, params={"path": "way/file"})
            assert answer.status_code == 400 or answer.content == b"mine"
            await api.ask("PUT", CONTENT, params={"path": "way/file"}, content=b"mine")
    finally:
        over.set()
        await swapper
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("file", "secret")]


async def test_files_have_scopes_of_their_own_and_belong_to_the_sessions_user(
    tmp_path: Path,
) -> None:
    auth = Tokens(("sessions:read", "sessions:write"))
    sandbox = LocalSandbox(tmp_path / "places")
    async with serving(auth=auth, harness={"sandbox": sandbox}) as api:
        await api("PUT", "/sessions/one")
        reads, writes = "ann@acme+files:read", "ann@acme+files:write"
        await api("PUT", CONTENT, content=b"x", params={"path": "x"}, by=writes)
        await api("GET", f"{FILES}/tree", by=reads)
        assert (await api.fails("forbidden", "GET", f"{FILES}/tree", by=writes))["scope"]
        await api.fails("forbidden", "GET", f"{FILES}/tree")
        for method, path, body in (
            ("PUT", f"{CONTENT}?path=y", None),
            ("POST", f"{FILES}/edit", {"path": "x", "search": "x", "replace": "y"}),
            ("POST", f"{FILES}/folders", {"path": "y"}),
            ("POST", f"{FILES}/move", {"path": "x", "to": "y"}),
            ("DELETE", f"{FILES}?path=x", None),
        ):
            await api.fails("forbidden", method, path, body, by=reads)
        for who in ("bob@acme+files:read", "ann@other+files:read"):
            unknown = await api.ask("GET", "/sessions/none/files/tree", by=who)
            foreign = await api.ask("GET", f"{FILES}/tree", by=who)
            assert (foreign.status_code, unknown.status_code) == (404, 404)
            assert foreign.text.replace("one", "none") == unknown.text


async def test_who_reads_and_writes_which_file_is_written_down(api: Api) -> None:
    await read(api, "top.txt")
    await api.fails("outside_sandbox", "GET", CONTENT, params={"path": "../x"})
    await api("POST", f"{FILES}/move", {"path": "top.txt", "to": "b.txt"}, status=204)
    sink = service_of(api.app).settings.audit
    assert isinstance(sink, MemoryAudit)
    found = [
        (r.action, r.session, r.target, r.code, r.principal)
        for r in sink.records
        if r.action in ("read_file", "move_file")
    ]
    assert found == [
        ("read_file", "one", {"path": "top.txt"}, None, "ann"),
        ("read_file", "one", {"path": "../x"}, "outside_sandbox", "ann"),
        ("move_file", "one", {"path": "top.txt", "to": "b.txt"}, None, "ann"),
    ]


async def test_what_a_tool_wrote_is_no_page_of_the_servers(api: Api) -> None:
    await put(api, "page.html", b"<script>alert(1)</script>")
    answer = await api.ask("GET", CONTENT, params={"path": "page.html"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_file_that_is_too_large_is_refused(api: Api, root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate((16 << 20) + 1)
    refused = await api.fails("request_too_large", "GET", CONTENT, params={"path": "large"})
    assert refused["limit"] == 16 << 20
    edit = {"path": "large", "search": "a", "replace": "b"}
    await api.fails("request_too_large", "POST", f"{FILES}/edit", edit)


async def test_the_same_write_again_is_answered_and_not_made(api: Api, root: Path) -> None:
    edit = {"path": "top.txt", "search": "top", "replace": "top top"}
    first = await api("POST", f"{FILES}/edit", edit, key="edit-1")
    assert await api("POST", f"{FILES}/edit", edit, key="edit-1") == first
    assert (root / "top.txt").read_bytes() == b"top top"


async def test_a_session_without_a_sandbox_has_no_files() -> None:
    async with serving() as api:
        await api("PUT", "/sessions/one")
        answer = await api.ask("GET", f"{FILES}/tree")
        assert answer.status_code == 422
        assert "sandbox" in answer.json()["error"]["message"]
