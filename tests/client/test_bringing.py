"""What a client brings to a session: an agent by its source, files, variables, a store by kind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.errors import InvalidValue, NoSuchFile, OutsideSandbox, UnknownLoader
from holdfast.harness.sandbox import LocalSandbox
from holdfast.server.loaders import InlineLoader, LocalLoader

from .scene import QUICK, SECRET, app, pay, serving

AGENT = 'name = "Clerk"\ninstructions = "Obey."\ntools = ["pay"]\n'


async def test_an_agent_is_asked_for_by_its_source_and_resumed_by_id(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "clerk"
    folder.mkdir(parents=True)
    (folder / "agent.toml").write_text(AGENT)
    made = await asyncio.to_thread(
        app,
        {"sqlite": f"sqlite:{tmp_path}/log.db", "other": f"sqlite:{tmp_path}/other.db"},
        loaders=[LocalLoader(folder.parent), InlineLoader()],
        tools=[pay],
        envs=["TOKEN"],
        harness={"sandbox": LocalSandbox(tmp_path / "places")},
    )
    async with serving(made) as url:
        client = Client(
            url,
            SECRET,
            patience=QUICK,
            source="clerk",
            engine="holdfast",
            session_store={"kind": "other"},
            envs={"TOKEN": "canary"},
        )
        async with client:
            session = await client.get_or_create(files={"a.txt": "text", "b.bin": b"\x00"})
            assert (await session.send("Pay.")).status == "waiting"
            again = await client.get_or_create(session.id)
            assert await again.approve() is not None
            assert (await again.wait()).text == "Paid."
            about = await again.about()
            assert (about.store, str(about.row.agent)[:6]) == ("other", "clerk@")
            assert [entry.path for entry in (await again.files.tree()).entries] == [
                *("a.txt", "agent.toml", "b.bin"),
            ]
            with pytest.raises(UnknownLoader):
                await client.get_or_create(source="https://a.example/x#main")
            agent = {"name": "a", "instructions": "b", "tools": ["shell"]}
            with pytest.raises(InvalidValue, match="does not offer the tool 'shell'"):
                await client.get_or_create(source={"manifest": agent})
            with pytest.raises(InvalidValue, match="must describe where to load an agent from"):
                await client.get_or_create(source={"path": "x"})
            with pytest.raises(InvalidValue, match="the server allows: TOKEN"):
                await client.get_or_create(envs={"PATH": "x"})


async def test_files_of_a_session_have_the_verbs_of_a_place(tmp_path: Path) -> None:
    harness = {"sandbox": LocalSandbox(tmp_path / "places")}
    made = await asyncio.to_thread(app, harness=harness)
    async with serving(made) as url, Client(url, SECRET, patience=QUICK) as client:
        files = (await client.get_or_create("one")).files
        await files.write("a/b.txt", "one one")
        assert await files.edit("a/b.txt", "one", "two", all=True) == 2
        await files.make("c")
        await files.move("a/b.txt", "c/d.bin")
        assert await files.read("c/d.bin") == b"two two"
        await files.remove("a")
        tree = await files.tree(depth=2)
        assert [entry.path for entry in tree.entries] == ["c", "c/d.bin"]
        await files.remove("c", all=True)
        with pytest.raises(NoSuchFile):
            await files.read("c/d.bin")
        with pytest.raises(OutsideSandbox):
            await files.write("../x", b"")
