"""The file and shell tools, called as a harness calls them, in a real sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SandboxError
from holdfast.events import key
from holdfast.harness.sandbox import LocalSandbox, NoSandbox, Place
from holdfast.harness.tools import BadArguments, Ref, Tool, ToolResult, files
from holdfast.harness.tools.files import (
    bash,
    edit_file,
    file_tools,
    glob,
    grep,
    read_file,
    write_file,
)
from tests.harness.tools.context import Context

from .waiting import given_time

pytestmark = pytest.mark.parity("harness-kernel", 125)


class Call:
    """Calls tools in one place."""

    def __init__(self, place: Place) -> None:
        self.context = Context()
        self.context.sandbox = place

    async def __call__(self, tool: Tool, **arguments: Any) -> ToolResult:
        return await tool.call(tool.parse(arguments), self.context)


@pytest.fixture
def call(place: Place) -> Call:
    return Call(place)


def file(path: str, role: Any) -> Ref:
    return Ref(kind="file", value=path, role=role)


def test_what_each_tool_declares() -> None:
    declared = {
        tool.name: (tool.risk, tool.approval, [p.kind for p in tool.permissions])
        for tool in file_tools()
    }
    assert declared == {
        "read_file": ("read", "auto", ["filesystem"]),
        "write_file": ("write", "ask", ["filesystem"]),
        "edit_file": ("write", "ask", ["filesystem"]),
        "glob": ("read", "auto", ["filesystem"]),
        "grep": ("read", "auto", ["filesystem"]),
        "bash": ("execute", "ask", ["shell"]),
    }
    for tool in file_tools():
        assert tool.description
        properties = tool.schema["properties"]
        assert "context" not in properties
        assert all("description" in each for each in properties.values())
        assert tool.repeat_safe == (tool.risk == "read")


@pytest.mark.parametrize(
    ("tool", "arguments", "fault"),
    [
        (read_file, {"path": "f", "max_bytes": 1_000_001}, "max_bytes"),
        (glob, {"pattern": "*", "limit": 1_001}, "limit"),
        (grep, {"pattern": "x", "limit": 0}, "limit"),
        (bash, {"command": "true", "timeout": 121}, "timeout"),
        (bash, {"command": "true", "timeout": 0}, "timeout"),
        (edit_file, {"path": "f", "search": "", "replace": "x"}, "search"),
    ],
)
def test_arguments_have_bounds(tool: Tool, arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadArguments) as caught:
        tool.parse(arguments)
    assert [issue.path for issue in caught.value.issues] == [fault]


async def test_a_file_is_read(call: Call, root: Path) -> None:
    (root / "a.txt").write_text("größe\r\n")
    got = await call(read_file, path="a.txt")
    assert (got.content, got.failed) == ("größe\n".replace("\n", "\r\n"), False)
    assert got.refs == [file("a.txt", "read")]


async def test_a_long_file_is_read_from_its_beginning(call: Call, root: Path) -> None:
    (root / "a.txt").write_text("ä" * 400_000)
    got = await call(read_file, path="a.txt")
    assert got.content == "ä" * 250_000 + "\n[only the first 500000 bytes are shown]"
    got = await call(read_file, path="a.txt", max_bytes=5)
    assert got.content == "ää\n[only the first 5 bytes are shown]"
    (root / "a.txt").write_text("12345")
    assert (await call(read_file, path="a.txt", max_bytes=5)).content == "12345"


async def test_what_is_no_text_is_not_shown(call: Call, root: Path) -> None:
    (root / "a.bin").write_bytes(b"\x7fELF\0\1")
    got = await call(read_file, path="a.bin")
    assert (got.failed, got.code) == (True, "tool_failed")


async def test_a_file_is_written_and_added_to(call: Call, root: Path) -> None:
    got = await call(write_file, path="new/a.txt", content="größe\n")
    assert (got.failed, got.refs) == (False, [file("new/a.txt", "created")])
    assert got.data == {"path": "new/a.txt", "bytes": 8, "created": True}
    got = await call(write_file, path="new/a.txt", content="more\n", append=True)
    assert got.refs == [file("new/a.txt", "modified")]
    assert (root / "new/a.txt").read_text() == "größe\nmore\n"
    await call(write_file, path="new/a.txt", content="anew")
    assert (root / "new/a.txt").read_text() == "anew"


async def test_a_file_is_edited_when_the_text_is_there_as_often_as_expected(
    call: Call, root: Path
) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\r\none\r\n\xff")
    got = await call(edit_file, path="a.txt", search="two\r\n", replace="2\r\n")
    assert (got.failed, got.refs) == (False, [file("a.txt", "modified")])
    got = await call(edit_file, path="a.txt", search="one", replace="1", expected=2)
    assert got.data == {"path": "a.txt", "replaced": 2}
    assert (root / "a.txt").read_bytes() == b"1\r\n2\r\n1\r\n\xff"
    for search, expected, found in (("1", 1, 2), ("nowhere", 1, 0), ("2", 3, 1)):
        got = await call(edit_file, path="a.txt", search=search, replace="", expected=expected)
        assert (got.failed, got.code, got.refs) == (True, "tool_failed", [])
        assert f"{found} times, not {expected}" in got.content
    assert (root / "a.txt").read_bytes() == b"1\r\n2\r\n1\r\n\xff"


async def test_files_are_found_by_pattern(call: Call, root: Path) -> None:
    def make(*names: str) -> None:
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()

    make("src/a.py", "src/b/c.py", "x.txt", ".git/h.py", "node_modules/m.py")
    make(*(f"logs/{n}.log" for n in range(1_500)))
    got = await call(glob, pattern="**/*.py")
    assert (got.content, got.failed) == ("src/a.py\nsrc/b/c.py", False)
    assert got.refs == [file("src/a.py", "evidence"), file("src/b/c.py", "evidence")]
    got = await call(glob, pattern="**/*.log")
    assert len(got.data["files"]) == 200
    assert got.data["truncated"]
    assert got.content.endswith("[only the first 200 files are listed]")
    assert len(got.refs) == 50
    got = await call(glob, pattern="src/**", limit=2)
    assert (got.content, got.data["truncated"]) == ("src/a.py\nsrc/b/c.py", False)
    assert (await call(glob, pattern="*.none")).content == "no file matches"
    got = await call(glob, pattern="{a,b}" * 10)
    assert (got.failed, got.metadata) == (True, {"error": "invalid_value"})


async def test_lines_are_found(call: Call, root: Path) -> None:
    def make(name: str, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    make("src/a.py", "import os\nx = 1\n")
    make("src/my file.py", "x+1\nxx1\n")
    make("-odd", "x = 3\n")
    make(".git/c", "x = 9\n")
    make("node_modules/d.js", "x = 9\n")
    make("bin", "x = 1\0\n")
    got = await call(grep, pattern="x = [0-9]+")
    assert sorted(got.content.splitlines()) == ["-odd:1:x = 3", "src/a.py:2:x = 1"]
    assert {ref.value for ref in got.refs} == {"-odd", "src/a.py"}
    assert {ref.role for ref in got.refs} == {"evidence"}
    got = await call(grep, pattern="x+1", path="src")
    assert got.content == "src/my file.py:2:xx1"
    got = await call(grep, pattern="x+1", path="./src/../src/", fixed=True)
    assert got.content == "src/my file.py:1:x+1"
    got = await call(grep, pattern="x", path="-odd")
    assert got.content == "-odd:1:x = 3"
    got = await call(grep, pattern="x", path=f"{root}/src/a.py")
    assert got.content == f"{root}/src/a.py:2:x = 1"
    got = await call(grep, pattern="-e", fixed=True)
    assert (got.content, got.failed, got.refs) == ("no line matches", False, [])
    got = await call(grep, pattern="(")
    assert (got.failed, got.code) == (True, "sandbox_failed")
    assert "(" in got.content
    got = await call(grep, pattern="x", path="none")
    assert (got.failed, got.code) == (True, "sandbox_failed")


async def test_found_lines_have_bounds(call: Call, root: Path) -> None:
    (root / "many").write_text("x\n" * 300)
    got = await call(grep, pattern="x")
    assert got.content.count("many:") == 200
    assert got.content.endswith("[only the first 200 lines are shown]")
    (root / "many").write_text("x" * 100_000)
    got = await call(grep, pattern="x")
    assert len(got.content) == files.LINE + 1


async def test_a_command_is_run(call: Call, root: Path) -> None:
    got = await call(bash, command="echo hi; touch made")
    assert (got.content, got.failed) == ("hi", False)
    assert got.refs == [Ref(kind="command", value="echo hi; touch made", exit_code=0)]
    assert (got.data["exit_code"], got.data["stdout"]) == (0, "hi\n")
    assert (root / "made").exists()
    assert (await call(bash, command="echo oops >&2")).content == "stderr:\noops"
    assert (await call(bash, command="true")).content == "(no output)"


async def test_a_command_that_fails_is_a_failed_result_with_its_output(call: Call) -> None:
    got = await call(bash, command="echo out; echo err >&2; exit 3")
    assert (got.failed, got.code) == (True, "sandbox_failed")
    assert got.content == "exit code 3\nout\nstderr:\nerr"
    assert got.refs == [
        Ref(kind="command", value="echo out; echo err >&2; exit 3", exit_code=3),
    ]
    got = await call(bash, command="kill -9 $$")
    assert got.content.startswith("killed by signal 9")
    got = await given_time(
        lambda seconds: call(bash, command="echo begun; sleep 1000", timeout=seconds),
        lambda got: "begun" in got.content,
    )
    assert (got.failed, got.data["timed_out"]) == (True, True)
    assert "timed out after" in got.content
    assert "begun" in got.content


@pytest.mark.parametrize("end", ["true", "false"])
async def test_long_output_is_shown_in_part_which_is_said(call: Call, end: str) -> None:
    line = "head -c 50000 /dev/zero | tr '\\0' a; echo; echo the end"
    got = await call(bash, command=f"{line}; ({line}) >&2; {end}")
    assert got.failed == (end == "false")
    for text in (got.data["stdout"], got.data["stderr"]):
        assert len(text) < files.SHOWN + 100
        assert "characters left out]" in text
        assert text.endswith("the end\n")
    assert len(got.content) < 2 * files.SHOWN + 300
    assert got.data["truncated"]


LINKED = ["../x", "/etc/passwd", "link/passwd", "direct"]


@pytest.mark.parametrize("path", LINKED)
async def test_no_tool_leaves_the_sandbox(call: Call, root: Path, path: str) -> None:
    (root.parent / "x").write_text("root: x\n")
    (root / "link").symlink_to("/etc")
    (root / "direct").symlink_to("/etc/passwd")
    for tool, arguments in (
        (read_file, {}),
        (write_file, {"content": "x"}),
        (edit_file, {"search": "root", "replace": "x"}),
        (grep, {"pattern": "root"}),
    ):
        got = await call(tool, path=path, **arguments)
        assert (got.failed, got.code, got.refs[1:]) == (True, "sandbox_failed", [])
        assert "outside the sandbox" in got.content
        assert "root:" not in got.content
    assert (await call(glob, pattern="../*")).metadata == {"error": "outside_sandbox"}
    assert (root.parent / "x").read_text() == "root: x\n"


async def test_a_search_meets_a_link_and_does_not_follow_it(call: Call, root: Path) -> None:
    (root / "link").symlink_to("/etc")
    assert (await call(grep, pattern="root")).content == "no line matches"


async def test_what_the_sandbox_refuses_is_a_failed_result(tmp_path: Path) -> None:
    nowhere = Call(await NoSandbox().open(key("s"), agent="a", resources=None))
    closed = await LocalSandbox(tmp_path).open(key("s"), agent="a", resources=None)
    await closed.close("close")
    cases: list[tuple[Tool, dict[str, Any]]] = [
        (read_file, {"path": "f"}),
        (write_file, {"path": "f", "content": ""}),
        (edit_file, {"path": "f", "search": "a", "replace": ""}),
        (glob, {"pattern": "*"}),
        (grep, {"pattern": "x"}),
        (bash, {"command": "true"}),
    ]
    for tool, arguments in cases:
        got = await nowhere(tool, **arguments)
        assert (got.failed, got.code) == (True, SandboxError.code)
        assert "LocalSandbox" in got.content
    for tool, arguments in cases[-2:]:
        got = await Call(closed)(tool, **arguments)
        assert (got.failed, got.code) == (True, SandboxError.code)
        assert got.content == "the sandbox is closed"
