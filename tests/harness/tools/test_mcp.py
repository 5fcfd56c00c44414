"""MCP servers as sources of tools, against real server processes."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidValue, MissingExtra
from holdfast.harness.tools import BadArguments, Tool, ToolResult
from holdfast.harness.tools.mcp import MCPServer, ServerFailed
from tests import forks

from .context import Context
from .legacy import Legacy
from .mcp_server import PIXEL

PROGRAM = str(Path(__file__).parent / "mcp_server.py")
SECRET = "tok-12345"
FAIL = "import sys; sys.exit('cannot start')"
MUTE = "import sys; sys.stdin.read()"
PATIENCE = 120.0  # seconds; only a hang takes so long


def small(journal: Path, *program: str, **options: Any) -> MCPServer:
    env = {"JOURNAL": str(journal), "TOKEN": SECRET}
    options = {"connect_timeout": PATIENCE, **options}
    words = program or (PROGRAM,)
    return MCPServer.stdio(sys.executable, list(words), env=env, name="small", **options)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    path.touch()
    return path


@pytest.fixture
async def started(journal: Path) -> AsyncIterator[MCPServer]:
    """The small server over its pipes, in a process of its own."""
    async with small(journal) as server:
        yield server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where one small server listens for all tests that leave it as it is: starting one takes
    longer than they do."""
    with listening(tmp_path_factory.mktemp("small") / "journal") as (url, _):
        yield url


@pytest.fixture
async def server(url: str) -> AsyncIterator[MCPServer]:
    async with over_http(url) as server:
        yield server


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    yield
    assert [
        task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("mcp")
    ] == []


@contextmanager
def listening(journal: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The small server over HTTP, in a process of its own."""
    env = {**os.environ, "JOURNAL": str(journal), "PORT": str(port)}
    command = ("-m", "tests.harness.tools.mcp_server", "http")
    needs = ("mcp.server.mcpserver", "uvicorn")
    with forks.popen(*command, needs=needs, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process
        finally:
            process.kill()


def over_http(url: str, **options: Any) -> MCPServer:
    headers = {"Authorization": f"Bearer {SECRET}"}
    return MCPServer.http(url, headers=headers, connect_timeout=PATIENCE, **options)


async def named(server: MCPServer) -> dict[str, Tool]:
    return {one.name: one for one in await server.tools()}


async def use(server: MCPServer, name: str, **arguments: Any) -> ToolResult:
    subject = (await named(server))[name]
    return await subject.call(subject.parse(arguments), Context())


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def lines(journal: Path) -> list[str]:
    return journal.read_text().split()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_servers_tools_are_tools(server: MCPServer) -> None:
    tools = await named(server)
    add = tools["add"]
    assert add.description == "Add two numbers."
    assert add.schema["required"] == ["a"]
    assert (add.category, add.approval) == ("mcp", "ask")
    declared = {name: (one.risk, one.repeat_safe) for name, one in tools.items()}
    assert declared["add"] == ("read", True)
    assert declared["note"] == ("write", True)
    assert declared["refuse"] == ("destructive", False)
    assert declared["pid"] == (None, False)
    assert "files_read" in tools


async def test_a_call_brings_text_and_structure(server: MCPServer) -> None:
    result = await use(server, "add", a=2)
    assert result.data == {"total": 3}
    assert '"total": 3' in result.content
    assert result.failed is False


async def test_arguments_are_checked_before_the_server_is_asked(server: MCPServer) -> None:
    add = (await named(server))["add"]
    with pytest.raises(BadArguments) as refused:
        add.parse({"b": -1})
    assert sorted(issue.path for issue in refused.value.issues) == ["a", "b"]


async def test_an_error_of_the_tool_is_a_failed_result(server: MCPServer) -> None:
    result = await use(server, "refuse")
    assert (result.failed, result.code) == (True, "tool_failed")
    assert "there is no such order" in result.content


async def test_images_are_data(server: MCPServer) -> None:
    result = await use(server, "picture")
    assert result.content == "here it is\n[image: image/png]"
    [image] = result.data["media"]
    assert (image["type"], image["media_type"]) == ("image", "image/png")
    assert base64.b64decode(image["data"]) == PIXEL


async def test_resources_are_refs(server: MCPServer) -> None:
    result = await use(server, "files_read")
    assert result.content.startswith("two files\n")
    assert result.content.endswith("\nbee")
    assert [(ref.kind, ref.value) for ref in result.refs] == [
        ("file", "/data/one.txt"),
        ("url", "https://example.com/b"),
    ]


async def test_progress_and_the_key_go_through(server: MCPServer) -> None:
    context = Context()
    walk = (await named(server))["walk"]
    assert (await walk.call({}, context)).content == "there"
    await until(lambda: bool(context.told))
    assert context.told == [{"progress": 1.0, "total": 2.0, "message": "half way"}]
    assert (await use(server, "key")).content == "key-1"


async def test_what_is_declared_can_be_changed(url: str) -> None:
    overrides = {
        "note": {"approval": "deny", "repeat_safe": False},
        "add": {"name": "plus"},
        "die": None,
    }
    options = {"prefix": "small_", "category": "notes", "approval": "auto", "timeout": 5}
    async with over_http(url, overrides=overrides, **options) as server:
        tools = await named(server)
    assert (tools["small_note"].approval, tools["small_note"].repeat_safe) == ("deny", False)
    assert (tools["small_pid"].approval, tools["small_pid"].category) == ("auto", "notes")
    assert tools["small_pid"].timeout == 5
    assert "plus" in tools
    assert "small_die" not in tools


async def test_names_that_do_not_fit_are_refused(url: str) -> None:
    async with over_http(url, overrides={"nothing": {}}) as server:
        with pytest.raises(InvalidValue, match="nothing"):
            await server.tools()
    async with over_http(url, overrides={"note": {"name": "add"}}) as server:
        with pytest.raises(InvalidValue, match="add"):
            await server.tools()


async def test_a_server_that_died_between_calls_is_started_again_and_once(
    started: MCPServer,
) -> None:
    pid = (await named(started))["pid"]
    first = (await pid.call({}, Context())).content
    os.kill(int(first), signal.SIGKILL)
    await until(lambda: not started.connected)
    calls = await asyncio.gather(*(pid.call({}, Context()) for _ in range(5)))
    [second] = {call.content for call in calls}
    assert first != second
    assert started.connected


async def test_a_call_whose_server_dies_fails_and_is_not_repeated(
    started: MCPServer, journal: Path
) -> None:
    with pytest.raises(ServerFailed) as failed:
        await use(started, "die")
    assert failed.value.server == "small"
    assert (await use(started, "note", text="after")).content == "noted after"
    assert lines(journal) == ["die", "after"]


async def test_a_call_that_takes_too_long_fails_and_the_server_goes_on(url: str) -> None:
    async with over_http(url, overrides={"hang": {"timeout": 0.2}}) as server:
        with pytest.raises(ServerFailed):
            await use(server, "hang")
        assert (await use(server, "add", a=1)).data == {"total": 2}


async def test_a_call_can_be_cancelled(started: MCPServer, journal: Path) -> None:
    call = asyncio.create_task(use(started, "hang"))
    await until(lambda: lines(journal) == ["hang"])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await use(started, "add", a=1)).data == {"total": 2}


async def test_closing_ends_the_calls_and_the_process(journal: Path) -> None:
    server = small(journal)
    await server.connect()
    pid = int((await use(server, "pid")).content)
    hang = (await named(server))["hang"]
    call = asyncio.create_task(hang.call({}, Context()))
    await until(lambda: lines(journal) == ["hang"])
    await server.close()
    with pytest.raises(ServerFailed):
        await call
    assert not runs(pid)
    with pytest.raises(ServerFailed, match="is not connected"):
        await hang.call({}, Context())
    await server.close()
    await server.connect()
    assert (await use(server, "add", a=1)).data == {"total": 2}
    await server.close()


async def test_it_may_be_opened_in_one_task_and_closed_in_another(url: str) -> None:
    server = over_http(url)
    await asyncio.create_task(server.connect())
    assert (await use(server, "add", a=1)).data == {"total": 2}
    await asyncio.create_task(server.close())
    assert not server.connected


@pytest.mark.parametrize("program", [FAIL, MUTE])
async def test_a_server_that_does_not_start_is_told_without_secrets(
    journal: Path, program: str
) -> None:
    server = small(journal, "-c", program, connect_timeout=1)
    with pytest.raises(ServerFailed) as failed:
        await server.connect()
    assert SECRET not in str(failed.value)
    assert failed.value.__cause__ is None
    assert not server.connected


async def test_a_program_that_is_not_there_is_told() -> None:
    server = MCPServer.stdio("/no/such/program", ["--token", SECRET])
    with pytest.raises(ServerFailed) as failed:
        await server.connect()
    assert failed.value.server == "program"
    assert SECRET not in f"{failed.value} {failed.value.fields} {server!r}"


async def test_connecting_can_be_cancelled(journal: Path) -> None:
    server = small(journal, "-c", MUTE)
    connecting = asyncio.create_task(server.connect())
    await until(lambda: any(t.get_name() == "mcp small" for t in asyncio.all_tasks()))
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert not server.connected


async def test_over_pipes_and_over_http_it_is_the_same(
    started: MCPServer, server: MCPServer
) -> None:
    assert (started.name, server.name) == ("small", "127.0.0.1")
    for one in (started, server):
        assert (await use(one, "add", a=2)).data == {"total": 3}
        assert (await use(one, "refuse")).failed
        assert (await use(one, "key")).content == "key-1"
        with pytest.raises(BadArguments):
            (await named(one))["add"].parse({"c": 1})
        context = Context()
        await (await named(one))["walk"].call({}, context)
        await until(lambda told=context.told: bool(told))  # type: ignore[misc]
    names = [sorted(await named(one)) for one in (started, server)]
    assert names[0] == names[1]


async def test_over_http_a_wrong_token_is_refused_and_not_shown(url: str) -> None:
    wrong = "tok-99999"
    address = url.replace("http://", f"http://someone:{wrong}@") + f"?key={wrong}"
    server = MCPServer.http(address, headers={"X-Token": wrong})
    with pytest.raises(ServerFailed) as failed:
        await server.connect()
    assert wrong not in f"{failed.value} {failed.value.fields} {server!r}"
    assert failed.value.__cause__ is None


async def test_over_http_a_call_whose_server_dies_fails_and_the_next_finds_the_new_one(
    journal: Path,
) -> None:
    with listening(journal) as (url, process):
        server = over_http(url)
        await server.connect()
        tools = await named(server)
        with pytest.raises(ServerFailed):
            await tools["die"].call({}, Context())
        process.wait()
        with pytest.raises(ServerFailed):
            await tools["note"].call({"text": "lost"}, Context())
    port = int(url.split(":")[2].split("/")[0])
    with listening(journal, port):
        assert (await tools["note"].call({"text": "after"}, Context())).content == "noted after"
        await server.close()
    assert lines(journal) == ["die", "after"]


async def test_a_server_that_forgot_the_session_is_connected_again() -> None:
    with Legacy() as legacy:
        async with MCPServer.http(legacy.url) as server:
            [echo] = await server.tools()
            assert (await echo.call({"text": "a"}, Context())).content == "a"
            legacy.forget()
            assert (await echo.call({"text": "b"}, Context())).content == "b"
    assert legacy.calls == ["a", "b"]
    assert legacy.begun == 2


async def test_without_the_package_the_extra_is_named(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra) as missing:
        await small(journal).connect()
    assert missing.value.extra == "mcp"
