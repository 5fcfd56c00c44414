"""`holdfast export`, `import` and `bundle`: files, exit codes, and what is never overwritten."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from holdfast import NewEvent, Store, connect, key
from holdfast.bundle import bundle_schema, export_bundle
from holdfast.cli.bundle_files import file_name
from tests.bundle.replay.scenes import SCENES
from tests.cli.conftest import Cli, created, said, write

MODES = {"local": "local", "sanitized": "sanitized", "replay-only": "replay_only"}
TOKEN = "sk-live-4eC39HqLyjWDarjtT1zdp7dc"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session `s` in the store that the environment names; files are written into `here`."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOLDFAST_STORE", url)

    async def work(store: Store) -> None:
        await SCENES["tools"](store)

    write(url, work)


def files() -> list[str]:
    return sorted(os.listdir())


@pytest.mark.parity("harn-bundle", 109)
@pytest.mark.parametrize("mode", MODES)
def test_a_session_is_written_and_reported(cli: Cli, mode: str) -> None:
    ended = cli("export", "s", "--mode", mode, "--json")
    assert ended.code == 0, ended.err
    assert files() == ["s.zip"]
    found = ended.json
    assert (found["path"], found["form"], found["mode"]) == ("s.zip", "archive", MODES[mode])
    assert found["size"] == os.stat("s.zip").st_size
    checked = cli("bundle", "validate", "s.zip", "--json")
    assert checked.code == 0
    assert checked.json["bundle_id"] == found["bundle_id"]
    assert checked.json["valid"] is True


@pytest.mark.parity("harn-bundle", 109)
def test_people_are_told_in_a_line(cli: Cli) -> None:
    ended = cli("export", "s")
    assert ended.out.startswith("s.zip  1 thread, ")
    assert "sanitized" in ended.out
    assert ended.err.startswith("sha256:")
    assert cli("bundle", "validate", "s.zip").out.startswith("s.zip: valid, sha256:")


@pytest.mark.parity("harn-bundle", 109)
def test_a_single_json_goes_to_a_file_or_to_stdout(cli: Cli) -> None:
    assert cli("export", "s", "--json-file").code == 0
    assert cli("export", "s", "--out", "other.json").code == 0
    assert Path("s.json").read_bytes() == Path("other.json").read_bytes()
    said = cli("export", "s", "--out", "-")
    assert said.out.encode() == Path("s.json").read_bytes()
    assert json.loads(said.out)["_type"] == "holdfast_bundle"


def test_the_same_session_gives_the_same_bytes(cli: Cli) -> None:
    cli("export", "s", "--out", "a.zip")
    cli("export", "s", "--out", "b.zip")
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()


def test_a_file_that_is_there_is_kept(cli: Cli) -> None:
    Path("s.zip").write_text("mine")
    ended = cli("export", "s", "--json")
    assert ended.code == 1
    assert json.loads(ended.err)["code"] == "invalid_value"
    assert Path("s.zip").read_text() == "mine"
    assert cli("export", "s", "--force").code == 0
    assert Path("s.zip").read_bytes()[:2] == b"PK"
    assert files() == ["s.zip"]


def test_a_link_that_is_there_is_not_followed(cli: Cli, tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", "s.zip")
    assert cli("export", "s").code == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_export_leaves_nothing(cli: Cli) -> None:
    assert cli("export", "nobody").code == 1
    assert cli("export", "s", "--thread", "none").code == 1
    assert cli("export", "s", "--out", "no/such/folder.zip").code == 2
    assert files() == []


@pytest.mark.parity("harn-bundle", 111)
@pytest.mark.parametrize("id", ["../../escaped", "/etc/passwd", "a/b", ".", "..", "-x", "x" * 300])
def test_an_id_is_never_a_path(cli: Cli, url: str, id: str) -> None:
    async def work(store: Store) -> None:
        await store.append(key(id), [created(agent="shop"), said("Hi.")], create=True)

    write(url, work)
    before = set(os.listdir(".."))
    ended = cli("export", "--json", "--", id)
    assert ended.code == 0, ended.err
    assert len(files()) == 1
    assert "/" not in files()[0]
    assert not files()[0].startswith((".", "/"))
    assert set(os.listdir("..")) == before


def test_two_ids_never_share_a_file() -> None:
    ids = ["a/b", "a_b", "a.b", "a b", "A/b", "é", "x" * 200, "x" * 201]
    assert len({file_name(id, ".zip").lower() for id in ids}) == len(ids)


@pytest.mark.parity("harn-bundle", 110)
@pytest.mark.parametrize(
    "flags",
    [
        ["--mode", "local", "--mode", "replay-only"],
        ["--mode", "none"],
        ["--archive", "--json-file"],
        ["--archive", "--out", "-"],
        ["--json-file", "--out", "s.zip"],
        ["--format", "harn", "--purpose", "move"],
        ["--format", "claude", "--json-file"],
    ],
)
def test_flags_that_exclude_each_other_are_refused(cli: Cli, flags: list[str]) -> None:
    ended = cli("export", "s", *flags)
    assert ended.code == 2
    assert ended.out == ""
    assert files() == []


def test_one_thread_and_a_prefix(cli: Cli, url: str) -> None:
    async def work(store: Store) -> None:
        forked = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
        await store.fork(key("s"), "what-if", at=2, first=forked)

    write(url, work)
    assert cli("export", "s", "--json").json["threads"] == ["main", "what-if"]
    one = cli("export", "s", "--thread", "what-if", "--out", "w.zip", "--json")
    assert one.json["threads"] == ["what-if"]


@pytest.mark.parity("harn-bundle", 105)
def test_a_prefix_ends_with_the_event_that_is_named(cli: Cli) -> None:
    def head(upto: int) -> int:
        ended = cli("export", "s", "--upto", str(upto), "--force", "--out", "cut.zip")
        assert ended.code == 0, ended.err
        found: int = cli("bundle", "inspect", "cut.zip", "--json").json["threads"][0]["head"]
        return found

    last = head(1_000)  # behind the end: all of it
    assert last > 5
    assert [head(1), head(3), head(last)] == [1, 3, last]
    before = cli("export", "s", "--upto", "0", "--out", "none.zip")
    assert before.code == 1
    assert not Path("none.zip").exists()


def test_a_secret_is_replaced_unless_all_is_wanted(cli: Cli, url: str) -> None:
    async def work(store: Store) -> None:
        await store.append(key("t"), [created(agent="shop"), said(f"Use {TOKEN}.")], create=True)

    write(url, work)
    assert TOKEN not in cli("export", "t", "--out", "-").out
    assert TOKEN in cli("export", "t", "--out", "-", "--mode", "local").out
    cli("export", "t", "--mode", "local", "--out", "t.zip")
    refused = cli("bundle", "validate", "t.zip", "--json")
    assert refused.code == 1
    assert refused.json["valid"] is False
    assert TOKEN not in refused.out + refused.err
    assert cli("bundle", "validate", "t.zip", "--allow-secrets").code == 0


# Importing


def test_a_session_comes_back_under_another_id_and_tenant(cli: Cli, tmp_path: Path) -> None:
    there = f"file:{tmp_path}/there"
    cli("export", "s", "--mode", "local", "--out", "s.zip")
    assert cli("import", "s.zip", "--store", there).code == 1  # no verb makes a store
    done = cli("import", "s.zip", "--store", there, "--create", "--json")
    assert done.code == 0, done.err
    assert (done.json["session"], done.json["fresh"]) == ("s", True)
    again = cli("import", "s.zip", "--store", there, "--json")
    assert (again.code, again.json["fresh"]) == (0, False)
    other = cli("import", "s.zip", "--store", there, "--as", "t", "--tenant", "test", "--json")
    assert (other.json["session"], other.json["tenant"]) == ("t", "test")
    assert cli("show", "t", "--store", there, "--tenant", "test").code == 0
    cli("export", "s", "--mode", "local", "--store", there, "--out", "back.zip")
    assert Path("back.zip").read_bytes() == Path("s.zip").read_bytes()


def test_a_dry_run_checks_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    there = f"sqlite:{tmp_path}/there.db"
    cli("export", "s", "--mode", "local")
    ended = cli("import", "s.zip", "--store", there, "--create", "--dry-run", "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["dry_run"], ended.json["session"]) == (True, "s")
    assert ended.json["events"] > 5
    assert not (tmp_path / "there.db").exists()
    assert cli("import", "s.zip", "--dry-run").code == 1  # this store has another `s`
    assert cli("import", "s.zip", "--dry-run", "--as", "t").out.startswith("t  would be imported")
    assert cli("show", "t").code == 1


def test_what_was_redacted_is_continued_only_when_that_is_said(cli: Cli) -> None:
    cli("export", "s")
    refused = cli("import", "s.zip", "--as", "t")
    assert refused.code == 1
    assert "--accept-redacted" in refused.err
    assert cli("import", "s.zip", "--as", "t", "--accept-redacted").code == 0
    cli("export", "s", "--mode", "replay-only", "--out", "r.zip")
    assert cli("import", "r.zip", "--as", "r", "--accept-redacted").code == 1
    assert cli("import", "r.zip", "--as", "r", "--read-only").code == 0


def test_what_is_no_bundle_is_refused_whole(cli: Cli) -> None:
    Path("x.json").write_text('{"_type": "holdfast_bundle", "version": 1}')
    ended = cli("import", "x.json", "--json")
    assert ended.code == 1
    assert json.loads(ended.err)["code"] == "invalid_bundle"
    assert len(json.loads(ended.err)["fields"]["faults"]) > 3
    assert cli("import", "nothing.zip").code == 1
    listed = cli("bundle", "validate", "x.json")
    assert listed.code == 1
    assert len(listed.out.splitlines()) > 3
    cli("export", "s")
    data = bytearray(Path("s.zip").read_bytes())
    data[len(data) // 2] ^= 1
    Path("s.zip").write_bytes(data)
    assert cli("bundle", "validate", "s.zip").code == 1
    assert cli("bundle", "inspect", "s.zip").code == 1


# Other formats


def test_harns_format_goes_out_and_comes_in(cli: Cli) -> None:
    ended = cli("export", "s", "--mode", "local", "--format", "harn", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["paths"] == ["s.json"]
    assert isinstance(ended.json["loss"], list)
    assert json.loads(Path("s.json").read_text())["_type"] == "harn_session_bundle"
    done = cli("import", "s.json", "--as", "harn", "--json")
    assert done.code == 0, done.err
    assert done.json["format"] == "harn"
    assert cli("bundle", "convert", "s.json", "--to", "holdfast", "--out", "c.zip").code == 0
    assert cli("bundle", "validate", "c.zip", "--allow-secrets").code == 0


def test_claudes_transcript_goes_out_and_comes_in(cli: Cli) -> None:
    os.mkdir("claude")
    ended = cli("export", "s", "--mode", "local", "--format", "claude", "--out", "claude", "--json")
    assert ended.code == 0, ended.err
    (path,) = ended.json["paths"]
    assert path.endswith(".jsonl")
    done = cli("import", path, "--as", "claude", "--json")
    assert done.code == 0, done.err
    assert done.json["format"] == "claude"
    assert done.json["events"] > 2


# Looking into them


def test_what_is_in_a_bundle(cli: Cli) -> None:
    cli("export", "s", "--mode", "local")
    shown = cli("bundle", "inspect", "s.zip").out
    for words in ("s of main", "local, share", "Order 1?", "main: ", "1 tool call"):
        assert words in shown
    assert cli("bundle", "inspect", "s.zip", "--json").json["_type"] == "holdfast_bundle"


def test_two_bundles_are_compared(cli: Cli, url: str) -> None:
    cli("export", "s", "--mode", "local", "--out", "a.zip")
    assert cli("bundle", "diff", "a.zip", "a.zip").out.startswith("same: sha256:")

    async def work(store: Store) -> None:
        await store.append(key("s"), [said("More.")])

    write(url, work)
    cli("export", "s", "--mode", "local", "--out", "b.zip")
    cli("export", "s", "--mode", "replay-only", "--out", "c.zip")
    longer = cli("bundle", "diff", "a.zip", "b.zip", "--json")
    assert longer.code == 1
    (thread,) = longer.json["threads"]
    assert (thread["status"], thread["first"]) == ("shorter", None)
    assert thread["right"] == thread["left"] + 1 == thread["same"] + 1
    other = cli("bundle", "diff", "b.zip", "c.zip", "--json").json
    assert other["threads"][0]["status"] == "differs"
    assert other["threads"][0]["first"]["path"].startswith("data.")
    assert {"path": "$.mode", "left": "local", "right": "replay_only", "seq": None} in other[
        "facts"
    ]
    assert "$.mode" in cli("bundle", "diff", "b.zip", "c.zip").out


def test_a_bundle_is_replayed(cli: Cli, shop_folder: Path) -> None:
    cli("export", "s", "--mode", "local", "--out", "s.zip")
    same = cli("bundle", "replay", "s.zip")
    assert (same.code, same.out.split(":")[0]) == (0, "same")
    told = cli("bundle", "replay", "s.zip", "--agent", "shop:support", "--json")
    assert told.code == 1
    first = told.json["first"]
    assert (first["kind"], first["path"]) == ("context.built", "system")
    assert (first["recorded"], first["came"]) == ("Help with orders.", "Help.")
    shown = cli("bundle", "replay", "s.zip", "--agent", "shop:support").out
    assert 'recorded: "Help with orders."' in shown
    assert cli("bundle", "replay", "s.zip", "--agent", "shop:serve").code == 2
    other = cli("bundle", "replay", "s.zip", "--model", "scripted/offline", "--from-step", "2")
    assert "new answer of thread main: look: " in other.out
    asked = cli("bundle", "replay", "s.zip", "--model", "scripted/offline", "--json").json
    assert asked["events"]["main"][-1]["kind"] == "run.finished"
    assert cli("bundle", "replay", "s.zip", "--from-step", "2").code == 2


@pytest.mark.parity("harn-bundle", 108)
def test_a_stored_schema_is_compared(cli: Cli) -> None:
    ended = cli("bundle", "schema")
    assert json.loads(ended.out) == bundle_schema()
    assert cli("bundle", "schema", "--out", "b.schema.json").code == 0
    assert cli("bundle", "schema", "--check", "b.schema.json").out.endswith(": up to date\n")
    text = Path("b.schema.json").read_text()
    Path("b.schema.json").write_bytes(text.replace("\n", "\r\n").encode())
    assert cli("bundle", "schema", "--check", "b.schema.json").code == 0
    Path("b.schema.json").write_text(text.replace("main", "other", 1))
    stale = cli("bundle", "schema", "--check", "b.schema.json", "--json")
    assert (stale.code, stale.json["status"]) == (1, "stale")
    missing = cli("bundle", "schema", "--check", "gone.json", "--json")
    assert (missing.code, missing.json["status"]) == (1, "missing")
    assert cli("bundle", "schema", "--check", "a", "--out", "b").code == 2
    assert json.loads(cli("bundle", "schema", "--format", "harn").out)["title"].startswith("Harn")


def test_the_published_schema_is_this_one(cli: Cli) -> None:
    published = Path(__file__).parents[3] / "docs" / "formats" / "bundle.schema.json"
    assert cli("bundle", "schema", "--check", str(published)).code == 0


def test_what_the_command_wrote_is_what_the_library_writes(cli: Cli, url: str) -> None:
    cli("export", "s", "--json-file")

    async def made() -> bytes:
        async with connect(url) as store:
            return (await export_bundle((store, key("s").scope))).to_json()

    assert Path("s.json").read_bytes() == asyncio.run(made())


def test_every_verb_has_help(cli: Cli) -> None:
    ended = cli("bundle", "--help")
    assert ended.code == 0
    for verb in ("validate", "schema", "inspect", "diff", "replay", "convert"):
        assert verb in ended.out


def test_a_file_that_cannot_be_written_is_told_in_one_line(cli: Cli) -> None:
    ended = cli("export", "s", "--out", "n" * 300 + ".zip")
    assert ended.code == 1
    assert "cannot be written" in ended.err
    assert "Traceback" not in ended.err
    assert files() == []


def test_what_is_refused_is_told_with_what_helps(cli: Cli, url: str) -> None:
    async def waits(store: Store) -> None:
        await store.append(key("open"), [created(), said(f"use {TOKEN}")], create=True)

    write(url, waits)
    for mode in MODES:
        assert cli("export", "open", "--mode", mode, "--out", f"{mode}.zip").code == 0
    ended = cli("import", "replay-only.zip", "--as", "x", "--accept-redacted")
    assert "--read-only" in ended.err
    assert "--accept-redacted" not in ended.err
    ended = cli("import", "sanitized.zip", "--as", "x")
    assert ended.code == 1
    assert "--accept-redacted" not in ended.err  # which would not help: something is open in it
    ended = cli("bundle", "validate", "local.zip")
    assert (ended.code, TOKEN in ended.out + ended.err) == (1, False)
    assert "--allow-secrets" in ended.err
