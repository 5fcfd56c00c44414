"""`holdfast claude import` and `export`: the CLI's files into a store and out again."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import get_session_messages_from_store, import_session_to_store
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.claude import ClaudeSessionStore, files
from holdfast.bundle.claude.entries import parse_line, to_lines
from holdfast.cli import main

from ..cli.conftest import Cli, Ended
from ..cli.programs import without
from .words import entry, key, mtime, title

SESSION = "78b5e434-5a8e-4bfc-857b-914ef99a8705"
PROJECT = "-home-ann-shop"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store that does not exist yet, named by the environment."""
    url = f"sqlite:{tmp_path}/store.db"
    monkeypatch.setenv("HOLDFAST_STORE", url)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return url


@pytest.fixture
def cli(store: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `holdfast claude` with these arguments."""

    def run(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = main(["claude", *map(str, arguments)])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


def write(path: Path, *lines: Any) -> Path:
    """A transcript; what is no text is written as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))
    return path


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """What the Claude Code CLI leaves: two projects, a sub-agent and one of a workflow."""
    folder = tmp_path / "claude" / "projects"
    shop = folder / PROJECT
    marks = [{"type": "last-prompt", "lastPrompt": "hi"}] * 3
    said = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "hé 👋"}}
    write(shop / f"{SESSION}.jsonl", said, *marks[:2], {"type": "user", "uuid": "u2"}, marks[2])
    agents = shop / SESSION / "subagents"
    write(agents / "agent-1.jsonl", {"type": "user", "uuid": "u1", "isSidechain": True})
    (agents / "agent-1.meta.json").write_text('{"agentType":"Explore","toolUseId":"t1"}')
    write(agents / "workflows" / "run" / "agent-2.jsonl", {"type": "user"}, {"type": "user"})
    (agents / "workflows" / "run" / "agent-3.meta.json").write_text('{"agentType":"x"}')
    write(folder / "-other" / "other.jsonl", {"type": "user", "uuid": "u1"})
    (shop / "memory").mkdir()
    (shop / "memory" / "notes.md").write_text("# notes")
    return folder


def contents(folder: Path) -> dict[str, Any]:
    """The values in all files of a folder."""
    return {
        path.relative_to(folder).as_posix(): [
            json.loads(line) for line in path.read_bytes().splitlines()
        ]
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".jsonl", ".json")
    }


def ask(url: str, question: Callable[[ClaudeSessionStore], Any]) -> Any:
    async def asked() -> Any:
        async with ClaudeSessionStore(url) as sessions:
            return await question(sessions)

    return asyncio.run(asked())


# In and out


def test_what_is_imported_is_exported_again(tmp_path: Path, projects: Path, cli: Cli) -> None:
    ended = cli("import", "--create")
    assert ended.out == "added 11 lines of 5 transcripts in 2 sessions; 0 already stored\n"
    assert "skipped 1 file" in ended.err
    assert ended.code == 0
    ended = cli("export", tmp_path / "out", "--json")
    assert ended.json == {"sessions": 2, "written": 6, "unchanged": 0, "problems": []}
    assert contents(tmp_path / "out") == contents(projects)
    main = tmp_path / "out" / PROJECT / f"{SESSION}.jsonl"
    assert main.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.rglob("*.part")) == []


@pytest.mark.parity("user-demand", 35)
def test_a_second_time_adds_and_writes_nothing(tmp_path: Path, projects: Path, cli: Cli) -> None:
    cli("import", "--create")
    before = ask(os.environ["HOLDFAST_STORE"], lambda s: s.list_session_summaries(PROJECT))
    ended = cli("import", "--json")
    assert (ended.json["added"], ended.json["known"], ended.code) == (0, 11, 0)
    after = ask(os.environ["HOLDFAST_STORE"], lambda s: s.list_session_summaries(PROJECT))
    assert after == before
    cli("export", tmp_path / "out")
    assert cli("export", tmp_path / "out").out == "wrote 0 files of 2 sessions; 6 unchanged\n"


def test_what_the_sdk_mirrored_or_imported_is_not_added_again(
    projects: Path, store: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(store, lambda sessions: import_session_to_store(SESSION, sessions))
    ended = cli("import", "--json")
    assert (ended.json["added"], ended.json["known"]) == (2, 9)  # what the SDK does not look at
    assert cli("import", "--json").json["added"] == 0


def test_what_was_written_since_is_added_in_order(projects: Path, store: str, cli: Cli) -> None:
    cli("import", "--create")
    with (projects / PROJECT / f"{SESSION}.jsonl").open("a") as file:
        file.write('{"type":"last-prompt","lastPrompt":"hi"}\n{"type":"user","uuid":"u3"}\n')
    meta = projects / PROJECT / SESSION / "subagents" / "agent-1.meta.json"
    meta.write_text('{"agentType":"Plan"}')
    assert cli("import", "--json").json["added"] == 3
    assert cli("import", "--json").json["added"] == 0
    loaded = ask(store, lambda s: s.load(key(SESSION, project=PROJECT)))
    assert [e.get("uuid") for e in loaded] == ["u1", None, None, "u2", None, None, "u3"]
    meta.write_text('{"agentType":"Explore","toolUseId":"t1"}')  # as it was at first
    assert cli("import", "--json").json["added"] == 1
    sub = ask(store, lambda s: s.load(key(SESSION, project=PROJECT, sub="subagents/agent-1")))
    assert sub[-1] == {"type": "agent_metadata", "agentType": "Explore", "toolUseId": "t1"}


def test_a_dry_run_adds_nothing(projects: Path, store: str, cli: Cli) -> None:
    ended = cli("import", "--create", "--dry-run")
    assert ended.out.startswith("would add 11 lines")
    assert ask(store, lambda s: s.sessions()) == []
    assert cli("import").out.startswith("added 11 lines")


def test_a_dry_run_counts_a_uuid_once_like_the_import(tmp_path: Path, cli: Cli) -> None:
    far = [entry(f"e{n}") for n in range(files.BATCH)]  # "b" comes again in another batch
    path = write(tmp_path / "p" / "s.jsonl", entry("a"), entry("b"), entry("a"), *far, entry("b"))
    tried = cli("import", "--create", "--dry-run", path, "--json").json
    done = cli("import", "--create", path, "--json").json
    assert (done["added"], done["known"]) == (files.BATCH + 2, 0)
    assert tried == {**done, "dry_run": True}


def test_a_project_or_a_session_can_be_named(projects: Path, store: str, cli: Cli) -> None:
    ended = cli("import", "--create", "--json", projects / "-other")
    assert (ended.json["sessions"], ended.json["added"]) == (1, 1)
    main = projects / PROJECT / f"{SESSION}.jsonl"
    ended = cli("import", "--json", main, main, projects / "-other" / "other.jsonl")
    assert (ended.json["sessions"], ended.json["added"], ended.json["known"]) == (2, 10, 1)
    assert sorted(ask(store, lambda s: s.sessions())) == [(PROJECT, SESSION), ("-other", "other")]


def test_the_session_written_last_stays_the_newest(projects: Path, store: str, cli: Cli) -> None:
    shop = projects / PROJECT
    for name, time in (("b", 3_000), ("a", 2_000), ("c", 1_000)):
        path = write(shop / f"{name}.jsonl", {"type": "user"})
        os.utime(path, (time, time))
    os.utime(shop / f"{SESSION}.jsonl", (2_500, 2_500))
    cli("import", "--create")
    listed = ask(store, lambda s: s.list_sessions(PROJECT))
    assert [item["session_id"] for item in listed] == ["b", SESSION, "a", "c"]


def test_a_session_can_be_resumed_from_an_import(projects: Path, store: str, cli: Cli) -> None:
    cli("import", "--create")

    async def messages(sessions: ClaudeSessionStore) -> Any:
        aliased = ClaudeSessionStore(store, aliases=lambda project: PROJECT)
        async with aliased:
            return await get_session_messages_from_store(aliased, SESSION)

    assert [message.uuid for message in ask(store, messages)] != []


# What cannot be brought over


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"type": "us', "is not JSON"),
        ('["a"]', "is not a JSON object"),
        ("\udcff", "is not UTF-8"),
        ('{"x": ' + "[" * 100_000, "is not JSON"),
    ],
)
def test_a_line_that_is_no_entry_is_reported_and_the_rest_imported(
    tmp_path: Path, store: str, cli: Cli, line: str, problem: str
) -> None:
    path = tmp_path / "p" / "s.jsonl"
    path.parent.mkdir()
    good = b'{"type":"user","uuid":"a"}\n\n'
    path.write_bytes(good + line.encode("utf-8", "surrogateescape") + b'\n{"type":"user"}')
    ended = cli("import", "--create", path)
    assert ended.code == 1
    assert f"skipped {path}:3: {problem}" in ended.out
    assert "added 2 lines" in ended.out
    ended = cli("import", path, "--json")
    (found,) = ended.json["problems"]
    assert (found["path"], found["line"]) == (str(path), 3)
    assert ended.json["added"] == 0


def test_an_entry_that_is_too_large_is_reported_and_the_rest_imported(
    tmp_path: Path, cli: Cli
) -> None:
    big = {"type": "user", "uuid": "b", "text": "x" * (64 << 20)}
    path = write(tmp_path / "p" / "s.jsonl", entry("a"), big, entry("c"))
    ended = cli("import", "--create", path, "--json")
    assert (ended.json["added"], ended.json["problems"][0]["line"], ended.code) == (2, 2, 1)


def test_odd_names_of_files_are_reported(tmp_path: Path, cli: Cli) -> None:
    write(tmp_path / "p" / "good.jsonl", entry("a"))
    write(tmp_path / "p" / "bad\udcff.jsonl", entry("a"))
    ended = cli("import", "--create", tmp_path / "p", "--json")
    assert (ended.json["added"], len(ended.json["problems"]), ended.code) == (1, 1, 1)


def test_broken_metadata_is_reported(projects: Path, cli: Cli) -> None:
    (projects / PROJECT / SESSION / "subagents" / "agent-1.meta.json").write_text("[]")
    ended = cli("import", "--create")
    assert ended.code == 1
    assert "agent-1.meta.json: is not a JSON object" in ended.out


def test_wrong_paths_and_missing_stores_are_errors(projects: Path, cli: Cli) -> None:
    assert cli("import", "/nowhere/at/all", "--create").code == 1
    ended = cli("import")
    assert ended.code == 1
    assert "there is no store at" in ended.err
    assert cli("import", "--wrong").code == 2
    assert cli("export").code == 2


# Out of the store, but not out of the folder


BAD = [
    key("..", project="p"),
    key("s", project=".."),
    key("../../escaped", project="p"),
    key("/etc/escaped", project="p"),
    key("s", project="/etc"),
    key("C:escaped", project="p"),
    key("a\\b", project="p"),
    key("s", project="p", sub="../../../escaped"),
    key("s", project="p", sub="/etc/escaped"),
    key("s", project="p", sub="a//b"),
    key("s", project="p", sub="a/./b"),
    key("s", project="p", sub="x" * 400),
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_names_that_lead_elsewhere_are_refused(
    tmp_path: Path, store: str, cli: Cli, bad: Any
) -> None:
    async def fill(sessions: ClaudeSessionStore) -> None:
        await sessions.append(bad, [entry("a")])
        await sessions.append(key("good"), [entry("a")])

    ask(store, fill)
    ended = cli("export", tmp_path / "a" / "b" / "out", "--json")
    assert ended.code == 1
    assert len(ended.json["problems"]) == 1
    written = list(tmp_path.rglob("*.jsonl"))
    assert written == [tmp_path / "a" / "b" / "out" / "p" / "good.jsonl"]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, store: str, cli: Cli) -> None:
    ask(store, lambda s: s.append(key(), [entry("a")]))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "p").symlink_to(tmp_path / "elsewhere")
    ended = cli("export", tmp_path / "out")
    assert ended.code == 1
    assert "is outside the folder" in ended.out
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_with_other_content_is_kept_unless_forced(
    tmp_path: Path, store: str, cli: Cli
) -> None:
    ask(store, lambda s: s.append(key(), [entry("a"), entry("b")]))
    path = write(tmp_path / "out" / "p" / "s.jsonl", entry("a"), entry("mine"))
    ended = cli("export", tmp_path / "out")
    assert ended.code == 1
    assert "--force" in ended.out
    assert contents(tmp_path / "out")["p/s.jsonl"] == [entry("a"), entry("mine")]
    assert cli("export", tmp_path / "out", "--force").code == 0
    assert contents(tmp_path / "out")["p/s.jsonl"] == [entry("a"), entry("b")]
    write(path, entry("a"))
    assert cli("export", tmp_path / "out").code == 0
    assert contents(tmp_path / "out")["p/s.jsonl"] == [entry("a"), entry("b")]


def test_one_project_or_session_can_be_exported(tmp_path: Path, projects: Path, cli: Cli) -> None:
    cli("import", "--create")
    cli("export", tmp_path / "a", "--project=-other")
    assert list(contents(tmp_path / "a")) == ["-other/other.jsonl"]
    cli("export", tmp_path / "b", "--session", SESSION)
    assert {name.split("/")[0] for name in contents(tmp_path / "b")} == {PROJECT}


def test_an_exported_file_has_the_time_of_its_session(tmp_path: Path, store: str, cli: Cli) -> None:
    ask(store, lambda s: s.append(key(), [title("x")]))
    cli("export", tmp_path / "out")
    written = (tmp_path / "out" / "p" / "s.jsonl").stat().st_mtime_ns // 1_000_000
    assert written == ask(store, mtime)


@given(
    st.lists(
        st.dictionaries(st.text(), st.text(st.characters()) | st.integers() | st.floats(0, 1e308)),
        max_size=5,
    )
)
def test_lines_hold_what_they_were_made_of(entries: list[Any]) -> None:
    written = to_lines(entries)
    assert [parse_line(line) for line in written.splitlines()] == entries


# As a program


def test_a_bar_is_shown_on_a_terminal_alone(projects: Path, store: str) -> None:
    command = [sys.executable, "-m", "holdfast.cli", "claude", "import", "--create"]
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower) as child:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert child.stdout is not None
        out = child.stdout.read()
    os.close(leader)
    assert child.returncode == 0
    assert out == b"added 11 lines of 5 transcripts in 2 sessions; 0 already stored\n"
    assert b"importing" in shown
    assert b"/5" in shown


def test_without_the_sdk_the_extra_is_named(tmp_path: Path) -> None:
    program = """
from holdfast import MissingExtra, connect
from holdfast.adapters.claude import ClaudeSessionStore
try:
    ClaudeSessionStore("memory:")
except MissingExtra as error:
    print(error.extra)
"""
    assert without({"claude_agent_sdk"}, program).stdout == "claude\n"
    command = ["claude", "import", "--create", f"--store=sqlite:{tmp_path}/a/b.db", str(tmp_path)]
    program = f"from holdfast.cli import main\nmain({command})"
    ended = without({"claude_agent_sdk"}, program)
    assert "pip install 'holdfast[claude]'" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["import", "export"])
def test_every_option_is_explained_in_the_documents(cli: Cli, verb: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    section = page.partition("## `holdfast claude`")[2].partition("\n## ")[0]
    names = set(re.findall(r" (--[a-z][a-z-]+)", cli(verb, "--help").out))
    assert names
    assert [name for name in names if f"`{name}" not in page] == []
    assert all(f"`{name}" in section for name in names - {"--store", "--tenant", "--json"})


@pytest.mark.parametrize("leading", [("--json",), ("--tenant", "x"), ()])
def test_options_of_every_verb_may_stand_before_it(
    store: str, capsys: pytest.CaptureFixture[str], projects: Path, leading: tuple[str, ...]
) -> None:
    assert main([*leading, "--store", store, "claude", "import", "--create"]) == 0
    assert ("added 11" in capsys.readouterr().out) == ("--json" not in leading)


def test_a_session_that_is_not_there_is_not_exported_in_silence(
    tmp_path: Path, projects: Path, cli: Cli
) -> None:
    cli("import", "--create")
    ended = cli("export", tmp_path / "out", "--session", "nope")
    assert (ended.code, "'nope'" in ended.err) == (1, True)
