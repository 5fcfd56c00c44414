"""Agents that are given as functions: they get all that the server is told, or are told what they
do not take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Agent, Harness
from holdfast.errors import InvalidSettings, InvalidValue
from holdfast.harness.sandbox import LocalSandbox
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import HoldfastEngine, Settings

from .loading.test_sessions import shell
from .scene import model, serving, settings
from .test_serve import Served

PROGRAM = """
from holdfast import Agent, Harness
from holdfast.models.scripted import ScriptedModel

def make(**settings):
    return Harness(Agent("shop", instructions="Help."), **settings)

def strict(store, tenant):
    return Harness(Agent("shop", instructions="Help."), store=store, tenant=tenant)

agent = Agent("shop", instructions="Help.")

def desk(**settings):
    model = ScriptedModel(["My own words."])
    return Harness(Agent("desk", instructions="Help."), default_model=model, **settings)

def own(**settings):
    agent = Agent("shop", instructions="Help.")
    return Harness(agent, default_model="scripted/own", **settings)
"""


@contextlib.contextmanager
def serving_function(folder: Path, name: str, *options: str) -> Iterator[Served]:
    server = Served(folder, *options, program=PROGRAM, agent=f"shop=shop:{name}")
    try:
        yield server
    finally:
        server.close()


def test_a_function_gets_the_model_and_the_sandbox_of_the_command_line(tmp_path: Path) -> None:
    options = ("--model", "scripted/offline", "--sandbox", "places")
    with serving_function(tmp_path, "make", *options) as one:
        one.ready()
        session = f"{one.url}/v1/sessions/c"
        httpx.put(session, json={})
        done = httpx.post(f"{session}/messages?wait=true", json={"content": "Hello?"}).json()
        assert "I am offline" in done["text"]
        written = httpx.put(f"{session}/files/content?path=a.txt", content=b"hello")
        assert written.status_code == 200, written.text
        assert [*tmp_path.glob("places/**/a.txt")] != []


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("strict", ("--sandbox", "places"), "strict does not accept sandbox"),
        ("strict", ("--model", "scripted/offline"), "strict does not accept default_model"),
        ("own", ("--model", "scripted/offline"), "own and the server both set default_model"),
    ],
)
def test_what_a_function_does_not_take_is_named(
    tmp_path: Path, name: str, options: tuple[str, ...], said: str
) -> None:
    with serving_function(tmp_path, name, *options) as one:
        assert one.process.wait(60) == 1
        told = one.said()
    assert said in told
    assert "**settings" in told
    assert "Traceback" not in told
    assert "serving" not in told


def test_a_model_that_nobody_named_is_for_agents_alone(tmp_path: Path) -> None:
    with serving_function(tmp_path, "agent", "desk=shop:desk") as one:
        one.ready()
        for name, said in (("shop", "I am offline"), ("desk", "My own words.")):
            session = f"{one.url}/v1/sessions/{name}"
            assert httpx.put(session, json={"agent": name}).status_code == 201
            done = httpx.post(f"{session}/messages?wait=true", json={"content": "Hello?"}).json()
            assert said in done["text"]


def test_all_of_them_are_named_at_once() -> None:
    def small(*, store: Any, tenant: str) -> Harness:
        raise AssertionError("it is not called")

    with pytest.raises(InvalidValue, match="small does not accept crashes and ttl"):
        HoldfastEngine({"shop": small}, crashes=3, ttl=5.0)
    with pytest.raises(InvalidSettings, match="small does not accept default_model and logging"):
        settings(agents={"shop": small}).check()


async def test_a_function_has_its_own_providers_beside_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        """
        [agents]
        shop = "tests.server.test_functions:speaking"
        [auth]
        kind = "none"
        [harness]
        default_model = "scripted/own"
        """
    )
    async with serving(await asyncio.to_thread(Settings.load, file)) as api:
        await api("PUT", "/sessions/one")
        done = await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        assert done["text"] == "My own words."


def speaking(**given: Any) -> Harness:
    own = ScriptedModel(["My own words."], ref="scripted/own")
    return Harness(Agent("shop", instructions="Help."), providers=[own], **given)


async def test_variables_reach_the_commands_of_a_functions_agent(tmp_path: Path) -> None:
    def make(**given: Any) -> Harness:
        return Harness(Agent("shop", instructions="Help.", tools=[shell]), **given)

    speaks = ScriptedModel.by_input(
        {".": [Say("", calls=[Use("shell", command="echo got ${#TOKEN}")]), "Done."]}
    )
    harness = {"default_model": speaks, "sandbox": LocalSandbox(tmp_path / "places")}
    async with serving(agents={"shop": make}, harness=harness, envs=["TOKEN"]) as api:
        await api("PUT", "/sessions/one", {"envs": {"TOKEN": "canary-7f3a9c"}})
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Go"})
        assert "got 13" in (await api.ask("GET", "/sessions/one/events")).text


async def test_functions_that_take_names_work_as_before() -> None:
    def make(store: Any, tenant: str, default_model: Any, logging: Any) -> Harness:
        agent = Agent("shop", instructions="Help.")
        given = {"default_model": default_model, "logging": logging}
        return Harness(agent, store=store, tenant=tenant, **given)

    async with serving(agents={"shop": make}, harness={"default_model": model()}) as api:
        await api("PUT", "/sessions/one")
        done = await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        assert done["text"] == "Good day."
