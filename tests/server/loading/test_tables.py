"""Loaders, tools, engines and a sandbox in a settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent
from holdfast.errors import InvalidSettings
from holdfast.harness.sandbox import LocalSandbox
from holdfast.server import HoldfastEngine, Settings

from ..scene import model, refund

HERE = __name__
DESK = Agent("desk", instructions="Help.")
TOOL = refund


def make(agents: dict[str, Agent], **settings: Any) -> HoldfastEngine:
    return HoldfastEngine(agents, default_model=model(), **settings)


def written(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text)
    return path


def test_a_file_says_what_clients_may_bring(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        [sandbox]
        dir = "{tmp_path}/places"
        [loaders]
        inline = {{}}
        local = {{root = "{tmp_path}"}}
        git = {{allowed = ["https://a.example/"]}}
        [engines.other]
        make = "{HERE}:make"
        agents = {{desk = "{HERE}:DESK"}}
        parallel_tools = 2
        [server]
        tools = ["{HERE}:TOOL"]
        envs = ["TOKEN"]
        """,
    )
    settings = Settings.load(path)
    assert sorted(settings.by_name()) == ["git", "inline", "local"]
    assert ([tool.name for tool in settings.tools], settings.envs) == (["refund"], ["TOKEN"])
    assert isinstance(settings.harness["sandbox"], LocalSandbox)
    assert settings.engine()["other"].agents == ["desk"]


def test_all_that_is_wrong_with_them_is_told_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        [sandbox]
        folder = "x"
        [loaders]
        local = {{}}
        git = {{allowed = []}}
        svn = {{}}
        own = "nowhere:loader"
        [engines.other]
        make = "{HERE}:none"
        [server]
        tools = ["{HERE}:DESK"]
        """,
    )
    with pytest.raises(InvalidSettings) as refused:
        Settings.load(path)
    told = "\n".join(refused.value.faults)
    for part in (
        *(
            "sandbox.folder",
            "sandbox.dir is missing",
            "loaders.local.root is missing",
            "loaders.git: ",
            "loaders.svn is not a loader",
            "nowhere",
        ),
        *("engines.other", "must be a Tool, got Agent"),
    ):
        assert part in told, told
