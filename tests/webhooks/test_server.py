"""Webhooks by a server: its routes, the client, the command line, and delivery while it serves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.webhooks
from holdfast import Agent, InvalidValue, Worker, export_bundle
from holdfast.cli import main
from holdfast.client import Client
from holdfast.errors import Forbidden
from holdfast.models.scripted import ScriptedModel
from holdfast.webhooks import Webhooks
from tests.server.scene import serving, settings

from .receiver import LOOPBACK, receiving
from .scene import say

OPERATOR = "op@acme+webhooks,sessions:all"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.webhooks.log_delivery.FIRST", 0.05)


async def test_a_server_manages_and_delivers() -> None:
    answers = [410]
    async with (
        receiving(
            lambda got: answers.pop() if answers and "seq" in got.json["data"] else 200
        ) as receiver,
        serving(settings(webhook_networks=LOOPBACK)) as api,
        Client(api.url, OPERATOR) as client,
    ):
        made = await client.webhooks.add(receiver.url, kinds=["run.finished"])
        id = made.endpoint.id
        assert await client.webhooks.list() == [made.endpoint]
        assert (await client.webhooks.test(id)).status == 200
        said = receiver.got[0].verified(made.secret)
        assert (said["type"], said["data"]) == ("webhook.test", {"endpoint": id})
        await (await client.get_or_create("s")).send("Hello")
        items = (await client.pending(wait=30)).items
        assert [one.session for one in items] == [f"~webhooks.{id}"]
        assert (await client.webhooks.get(id)).state == "stopped"
        await client.approve(f"~webhooks.{id}", items[0].id)
        await receiver.until(lambda it: len(it.got) == 3)
        assert receiver.got[2].verified(made.secret)["data"]["session"] == "s"
        assert (await client.webhooks.redeliver(id, session="s")).id == id
        await receiver.until(lambda it: len(it.got) == 4)
        assert (await client.webhooks.rotate(id)).secret != made.secret
        await client.webhooks.remove(id)
        assert await client.webhooks.list() == []


async def test_only_operators_manage_and_each_tenant_has_its_own() -> None:
    async with serving(settings(webhooks=False)) as api:
        async with Client(api.url, "ann@acme") as client:
            with pytest.raises(Forbidden):
                await client.webhooks.list()
        async with Client(api.url, OPERATOR) as client, Client(api.url, "op@b+webhooks") as other:
            made = await client.webhooks.add("https://hooks.example/a")
            assert await other.webhooks.list() == []
            for refused in (other.webhooks.get, other.webhooks.remove, other.webhooks.rotate):
                with pytest.raises(InvalidValue):
                    await refused(made.endpoint.id)
            for url in (
                "https://169.254.169.254/",
                "https://[::ffff:10.0.0.1]/",
                "ftp://x/",
                "http://8.8.8.8/",
            ):
                with pytest.raises(InvalidValue):
                    await client.webhooks.add(url)


async def test_a_repeated_request_adds_one_endpoint_and_returns_its_secret() -> None:
    async with serving(settings(webhooks=False)) as api:
        body: dict[str, Any] = {"url": "https://hooks.example/"}
        one, two = [await api("POST", "/webhooks", body, by=OPERATOR, key="k") for _ in range(2)]
        assert one == two
        id = one["endpoint"]["id"]
        turned = [
            await api("POST", f"/webhooks/{id}/rotate", {}, by=OPERATOR, key="r") for _ in "ab"
        ]
        assert turned[0] == turned[1]
        assert turned[0]["secret"] != one["secret"]
        assert len((await api("GET", "/webhooks", by=OPERATOR))["items"]) == 1


async def test_a_worker_delivers_for_its_tenants(tmp_path: Path) -> None:
    agent = Agent("clerk", instructions="Help.")
    model = ScriptedModel(["Good day."])
    async with holdfast.connect("memory:") as store, receiving() as receiver:
        await Webhooks(store).add(receiver.url, kinds=["message.received"])
        await say(store, "a", "1")
        hooks: dict[str, Any] = {"webhooks": True, "webhook_networks": LOOPBACK}
        async with Worker(agent, tenants=["main"], store=store, default_model=model, **hooks):
            await receiver.until(lambda it: len(it.accepted) == 1)
        with pytest.raises(InvalidValue):
            Worker(agent, tenants="all", webhook_networks=["10.0.0.1/8"], default_model=model)


async def test_the_secrets_of_an_endpoint_cannot_be_exported() -> None:
    async with holdfast.connect("memory:") as store:
        made = await Webhooks(store).add("https://hooks.example/")
        with pytest.raises(InvalidValue, match="secrets"):
            await export_bundle(
                (store, holdfast.Scope("~webhooks:main", made.endpoint.id)), mode="local"
            )


async def test_the_command_line_manages_endpoints_and_shows_dead_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.webhooks.endpoints.LEAST_GIVE_UP", 1)
    url = f"sqlite:{tmp_path}/a.db"

    async def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*words, "--store", url])
        return code, capsys.readouterr().out

    refused = [True]
    async with (
        holdfast.connect(url) as store,
        receiving(lambda _: 400 if refused else 200) as receiver,
    ):
        await say(store, "a", "0")
        _, out = await run(
            "webhooks", "add", receiver.url, "--give-up", "1s", "--kind", "message.*", "--json"
        )
        made = json.loads(out)
        await say(store, "a", "1")
        async with holdfast.webhooks.Deliverer(store, networks=LOOPBACK, poll=0.02):
            while "~webhooks." not in (await run("pending"))[1]:
                pass
            _, listed = await run("webhooks", "list")
            assert made["id"] in listed
            assert made["secret"] not in listed
            assert (await run("webhooks", "test", made["id"], "--network", "127.0.0.0/8"))[0] == 1
            refused.clear()
            assert (await run("approve", f"~webhooks.{made['id']}"))[0] == 0
            await receiver.until(lambda it: it.places() == [("a", "main", 3)])
            assert (await run("webhooks", "test", made["id"], "--network", "127.0.0.0/8"))[0] == 0
            assert (await run("webhooks", "remove", made["id"]))[0] == 0


@pytest.mark.parametrize(
    ("url", "noted"),
    [("http://169.254.169.254/x", True), ("https://93.184.215.14/x", False)],
)
def test_the_command_line_says_that_an_address_is_not_public(
    url: str, noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:{tmp_path}/a.db"
    asyncio.run(created(store))
    capsys.readouterr()
    assert main(["webhooks", "add", url, "--store", store]) == 0
    assert ("fail without --network" in capsys.readouterr().err) is noted


async def created(url: str) -> None:
    async with holdfast.connect(url):
        pass
