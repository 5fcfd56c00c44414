"""Agents that a client names: loaded into a session's folder, and never more than is allowed."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue, key, tool
from holdfast.harness.sandbox import LocalSandbox, Place
from holdfast.server.loaders import GitLoader, InlineLoader, LoadedAgent, Loader, LocalLoader, fetch
from holdfast.server.uploads.manifest import described, read

MANIFEST = """
name = "Support"
version = "1.2"
instructions = "Help with orders."
model = "scripted/offline"
tools = ["refund"]

[[modes]]
name = "plan"
approval = "ask"
"""


@tool
async def refund(order: str) -> str:
    """Refund an order."""
    return order


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = await LocalSandbox(tmp_path / "places").open(key("s"), agent="a", resources=None)
    yield place
    await place.close("close")


async def load(loader: Loader, source: Mapping[str, Any], place: Place) -> LoadedAgent:
    """Write the files of an agent into a session's folder, as a server does."""
    loaded, files = await fetch(loader, source)
    for path, data in files.items():
        await place.write(path, data)
    return loaded


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    folder = tmp_path / "agents" / "support"
    (folder / "skills").mkdir(parents=True)
    (folder / "agent.toml").write_text(MANIFEST)
    (folder / "skills" / "tone.md").write_text("Be kind.")
    (tmp_path / "outside").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "outside")
    return folder.parent


async def test_a_folder_of_the_servers_becomes_the_sessions(agents: Path, place: Place) -> None:
    loaded = await load(LocalLoader(agents), {"path": "support"}, place)
    assert (loaded.identity.name, loaded.identity.version) == ("Support", "1.2")
    assert await place.list(limit=9) == ["agent.toml", "skills/tone.md"]
    agent = loaded.described.agent({"refund": refund}, key="support")
    assert (agent.key, agent.model, agent.modes[0].approval) == (
        "support",
        "scripted/offline",
        "ask",
    )
    assert [t.name for t in agent.tools] == ["refund"]
    again = await load(LocalLoader(agents), {"path": "support"}, place)
    assert again == loaded


async def test_a_request_brings_an_agent_and_its_files(place: Place) -> None:
    data = base64.b64encode(b"\x00\x01").decode()
    source = {
        "manifest": {"name": "Inline"},
        "files": [{"path": "a/b.bin", "content": data, "encoding": "base64"}],
    }
    loaded = await load(InlineLoader(), source, place)
    assert loaded.identity.name == "Inline"
    assert await place.read("a/b.bin") == b"\x00\x01"


async def test_a_repository_is_cloned_at_a_ref(agents: Path, place: Place, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", *identity, "-C", str(agents), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    (agents / "support" / "agent.toml").write_text(MANIFEST.replace("1.2", "2.0"))
    git("commit", "-qam", "two")
    loader = GitLoader(f"file://{tmp_path}/")
    source = {"url": f"file://{agents}", "ref": "v1", "subdir": "support"}
    loaded = await load(loader, source, place)
    assert (loaded.identity.version, loaded.identity.sha) == (
        "1.2",
        git("rev-parse", "v1^{commit}"),
    )
    newest = await load(loader, {"url": f"file://{agents}", "subdir": "support"}, place)
    assert newest.identity.version == "2.0"
    assert "link" not in [entry.path for entry in await place.tree()]
    with pytest.raises(InvalidValue, match="could not be cloned"):
        await load(loader, {**source, "ref": "none"}, place)


@pytest.mark.parametrize(
    ("loader", "source", "field"),
    [
        (LocalLoader("."), {"path": "../x"}, "path"),
        (LocalLoader("."), {"path": "/etc"}, "path"),
        (LocalLoader("."), {"path": " "}, "path"),
        (LocalLoader("."), {"path": "a\0b"}, "path"),
        (LocalLoader("."), {"path": "a", "root": "/"}, "source"),
        (LocalLoader("."), {}, "path"),
        (GitLoader("https://a.example/"), {"url": "https://b.example/x"}, "url"),
        (GitLoader("https://a.example/"), {"url": "--upload-pack=x"}, "url"),
        (GitLoader("https://a.example/"), {"url": "https://a.example/../../x"}, "url"),
        (GitLoader("https://a.example/"), {"url": "https://a.example/x", "ref": "-x"}, "ref"),
        (GitLoader("https://a.example/"), {"url": "https://a.example/x", "subdir": ".."}, "path"),
        (InlineLoader(), {"manifest": {"name": "a", "exec": "x"}}, "manifest"),
        (InlineLoader(), {"manifest": {"name": "a"}, "files": [{"path": "../x"}]}, "files"),
        (
            InlineLoader(),
            {"manifest": {"name": "a"}, "files": [{"path": "../x", "content": ""}]},
            "path",
        ),
    ],
)
async def test_what_is_not_allowed_is_refused_before_any_work(
    loader: Loader, source: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        loader.check(source)
    assert refused.value.field == field


def test_a_description_says_what_is_wrong_with_it() -> None:
    with pytest.raises(InvalidValue, match="instruktions"):
        described({"name": "a", "instruktions": "x"})
    with pytest.raises(InvalidValue, match="is not valid TOML"):
        read(b"name = ", "agent.toml")
    with pytest.raises(InvalidValue, match="is not valid JSON"):
        read(b"[" * 100_000, "agent.json")
    with pytest.raises(InvalidValue, match="did you mean 'refund'"):
        described({"name": "a", "tools": ["refnud"]}).agent({"refund": refund}, key="a")


async def test_an_agent_without_a_description_is_none(tmp_path: Path, place: Place) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidValue, match=r"has no agent\.toml or agent\.json"):
        await load(LocalLoader(tmp_path), {"path": "empty"}, place)
    with pytest.raises(InvalidValue, match="does not exist"):
        await load(LocalLoader(tmp_path), {"path": "none"}, place)
