"""The pages about the server: what they show can be typed, and gives what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from holdfast.server import SCOPES, ServerLimits, Settings
from holdfast.server.app import ROUTES
from holdfast.server.settings import TABLES
from holdfast.server.streams.backpressure import HEARTBEAT, NAMES
from holdfast.wire.streams import Caught, End, EndReason, Resync

from .test_serve import Served

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:7700"  # where the pages say that a server is
HTTP, SERVER = (DOCS / "http.md").read_text(), (DOCS / "server.md").read_text()


def lines(page: str) -> list[tuple[str, list[str]]]:
    """Each command of a page, and what it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def test_what_the_page_types_gives_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program = re.search(r"```python\n# shop\.py\n(.*?)```", SERVER, re.DOTALL)
    assert program is not None
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    server = Served(tmp_path, program=program[1], agent="shop=shop:agent", auth=None)
    try:
        server.ready()
        commands = [command.replace(ADDRESS, server.url) for command, _ in lines(HTTP)]
        script = ["set -e"]
        script += [f"echo; echo '<{n}>'; {command}" for n, command in enumerate(commands)]
        ran = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        server.close()
    assert ran.returncode == 0, ran.stderr
    told = re.split(r"\n<\d+>\n", ran.stdout)[1:]
    for (command, said), found in zip(lines(HTTP), told, strict=True):
        place = 0
        for part in filter(None, "\n".join(said).split("…")):
            place = found.find(part.strip("\n"), place)
            assert place >= 0, f"{command}: {part!r} is not in {found!r}"


def test_every_route_scope_limit_and_setting_is_on_the_pages() -> None:
    for handler in ROUTES:
        for path in handler.paths:
            last = re.sub(r"\{[^}]*\}", "", path).rstrip("/").rpartition("/")[2]
            assert f"{last}" in HTTP, path
    assert [scope for scope in SCOPES if scope not in SERVER] == []
    assert [name for name in ServerLimits.__struct_fields__ if f"`{name}`" not in SERVER] == []
    assert [name for name in TABLES if f"[{name}]" not in SERVER] == []
    settings = Settings.__dataclass_fields__
    assert [name for name in settings if name not in SERVER] == []


def test_the_page_says_which_routes_take_a_thread() -> None:
    said = re.search(r"take `\?thread=`(.*?)session do not:(.*?)\n\n", HTTP, re.DOTALL)
    assert said is not None
    taking, sharing = (
        {*re.findall(r"`(?:GET|PUT) …/(\w+)`|`([a-z/-]+)`", part)} for part in said.groups()
    )
    base = "/sessions/{session_id:str}"
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for handler in ROUTES:
        for path in (path for path in handler.paths if path.startswith(base)):
            name = path.removeprefix(base).strip("/")
            name = name if name == "threads/fork" else name.partition("/")[0]
            if name:
                found["thread" in handler.parsed_fn_signature.parameters].add(name)
    assert found[True] == {"".join(names) for names in taking} - {"main"}
    assert found[False] == {"".join(names) for names in sharing}


def test_what_is_typed_has_its_address_and_is_quoted() -> None:
    assert lines(HTTP)[0][0] == f"export URL={ADDRESS}"
    for command, _ in lines(HTTP):
        for word in re.findall(r"\S*\?\S*", re.sub(r"'[^']*'", "", command)):
            assert word.startswith('"'), command


@pytest.mark.parametrize("command", ["serve", "keys"])
def test_the_command_line_page_names_it(command: str) -> None:
    assert f"## `holdfast {command}`" in (DOCS / "cli.md").read_text()


def test_every_part_of_a_stream_and_every_end_is_told() -> None:
    _, _, streams = HTTP.partition("## Streams")
    for name in (*NAMES.values(), *get_args(EndReason)):
        assert f"`{name}`" in streams, name
    for field in {name for part in (Caught, Resync, End) for name in part.__struct_fields__}:
        assert f"`{field}`" in streams, field
    assert f"every {HEARTBEAT:g} seconds" in streams
    assert f"for {ServerLimits().stall_seconds:g} seconds" in streams
