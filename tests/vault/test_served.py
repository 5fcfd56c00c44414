"""Servers and the command line on encrypted stores: what they show, whom they let in, and what a
client cannot change."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from holdfast import InvalidValue, LogDamaged, Store, Vault, connect, key
from holdfast.cli import main
from holdfast.server import ApiKeys
from holdfast.server.app import service_of
from holdfast.stores.registry import StoreRegistry
from holdfast.testing.samples import read_all
from tests import forks
from tests.cli.conftest import Ended, sample, write
from tests.cli.programs import append, start
from tests.crash.places import url as plain_url
from tests.server.scene import model, serving, settings
from tests.server.stream.scene import sent, texts
from tests.server.test_serve import PROGRAM, Served
from tests.servers.process import free_port

from .test_harness import SECRET, sealed, stored, unsealed

pytestmark = pytest.mark.parity("user-demand", 64)

SHARED = ["sqlite", "file", "postgres", "mongodb"]
STREAM = {"authorization": "Bearer ann@acme", "accept": "text/event-stream"}


@pytest.fixture(params=SHARED)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an encrypted store of each kind that several processes can use."""
    return sealed(plain_url(request.param, tmp_path), tmp_path)


class Cli:
    """The command line in this process, on one store."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url, self._capsys = url, capsys

    def __call__(self, *words: str, store: str | None = None) -> Ended:
        self._capsys.readouterr()
        code = main([*words, "--store", store or self._url])
        said = self._capsys.readouterr()
        return Ended(code, said.out, said.err)


@pytest.fixture
def cli(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write(url, sample)
    return Cli(url, capsys)


# Servers


async def test_a_server_shows_what_is_in_an_encrypted_store(url: str, tmp_path: Path) -> None:
    kind = url.partition(":")[0].removesuffix("ql")
    async with serving(settings({kind: url})) as api:
        await api("PUT", "/sessions/one", {"title": f"About {SECRET}"})
        said = {"content": f"Refund {SECRET}."}
        waiting = await api("POST", "/sessions/one/messages?wait=true", said)
        (ask,) = waiting["pending"]
        (row,) = (await api("GET", "/sessions"))["items"]
        assert (row["title"], row["first_message"]) == (f"About {SECRET}", f"Refund {SECRET}.")
        (item,) = (await api("GET", "/pending"))["items"]
        assert (item["id"], item["title"]) == (ask["id"], ask["title"])
        await api("POST", f"/sessions/one/pending/{ask['id']}/approve", key="once")
        await api("POST", f"/sessions/one/pending/{ask['id']}/approve", key="once")
        told = await api.until(
            "/sessions/one/transcript", lambda found: found["items"][-1]["text"] == "Refunded."
        )
        assert told["items"][0]["text"] == f"Refund {SECRET}."
        assert (await api("GET", "/pending"))["items"] == []
    if url.startswith("sqlite"):
        assert await stored(url, tmp_path) == []
    async with serving(settings({kind: url})) as api:
        again = await api("GET", "/sessions/one/transcript")
        assert again == told
        async with connect(url) as store:
            assert [one async for one in store.verify()] == []


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_stream_of_an_encrypted_store_is_live(url: str) -> None:
    async with serving(settings(url, harness={"default_model": model(0.05)})) as api:
        await api("PUT", "/sessions/one")
        path = "/v1/sessions/one/events?after=0"
        async with api.client.stream("GET", path, headers=STREAM) as answer:
            found = []
            async for one in sent(answer.aiter_bytes()):
                found.append(one)
                if one.name == "caught_up" or len(found) == 2:
                    break
            assert found[0].data["kind"] == "session.created"
        await api("POST", "/sessions/one/messages", {"content": "Slow"})
        words = "one two three four five six seven eight"
        seen = []
        async with api.client.stream("GET", path, headers=STREAM) as answer:
            async for one in sent(answer.aiter_bytes()):
                seen.append(one)
                if one.data.get("kind") == "run.finished":
                    break
        (message,) = [one.data for one in seen if one.data.get("kind") == "message.completed"]
        assert message["data"]["text"] == words
        assert all(words.startswith(text) for text in texts(seen).values())


async def test_a_client_cannot_say_which_keys_are_used(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    other = tmp_path / "other.toml"
    other.write_text(f'keys = ["{Vault.new_key("mine")}"]')
    async with serving(settings({"sqlite": url})) as api:
        for name in ("vault", "Vault", "v-a-u-l-t"):
            wish = {"store": {"kind": "sqlite", "options": {name: str(other)}}}
            fields = await api.fails("invalid_value", "POST", "/sessions", wish)
            assert fields["field"].endswith(f"options.{name}")
            assert "cannot be set by clients" in fields["problem"]
    registry = StoreRegistry()
    with pytest.raises(InvalidValue, match="vault"):
        registry.register("sqlite", url, allow={"vault": str})


@pytest.mark.parametrize("name", ["vault.toml", "my vault.toml", "a+b&c=d.toml", "ä%20.toml"])
async def test_a_store_with_options_keeps_its_vault(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f'keys = ["{Vault.new_key("first")}"]')
    url = f"sqlite:{tmp_path}/x.db?vault={quote(str(tmp_path / name))}"
    registry = StoreRegistry()
    registry.register("sqlite", url, allow={"durability": ["machine", "process"]})
    async with registry:
        for options in (None, {"durability": "process"}):
            assert (await registry.get("sqlite", options)).info().encrypted


async def test_keys_of_a_server_are_kept_in_an_encrypted_store(url: str) -> None:
    async with serving(settings(url, auth="keys")) as api:
        keys = ApiKeys(await service_of(api.app).places.store())
        made = await keys.create(principal="ann", tenant="acme", label=SECRET)
        headers = {"authorization": f"Bearer {made.key}"}
        assert (await api.client.get("/v1/sessions")).status_code == 401
        assert (await api.client.put("/v1/sessions/s", headers=headers)).status_code == 201
        assert [info.label for info in await keys.list("acme")] == [SECRET]
        await keys.revoke(made.info.id)
        assert [info.revoked is not None for info in await keys.list("acme")] == [True]
    async with connect(url) as store:
        assert [one async for one in store.verify()] == []


class Sealed(Served):
    """`holdfast serve` on an encrypted store, as a child process."""

    def __init__(self, folder: Path, store: str) -> None:
        (folder / "shop.py").write_text(PROGRAM)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        words = [
            "serve",
            "shop=shop:shop",
            "--store",
            store,
            "--port",
            str(self.port),
            "--auth",
            "none",
        ]
        self.process = forks.popen(
            *("-m", "holdfast.cli", *words),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.mark.slow
def test_a_served_process_is_killed_and_the_next_goes_on(tmp_path: Path) -> None:
    store = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    with closing(Sealed(tmp_path, store)) as one:
        one.ready()
        httpx.put(f"{one.url}/v1/sessions/c", json={})
        said = {"content": f"Refund {SECRET}"}
        waits = httpx.post(f"{one.url}/v1/sessions/c/messages?wait=true", json=said).json()
        os.killpg(one.process.pid, signal.SIGKILL)
    with closing(Sealed(tmp_path, store)) as two:
        two.ready()
        item = waits["pending"][0]["id"]
        done = httpx.post(f"{two.url}/v1/sessions/c/pending/{item}/approve").json()
        assert done["outcome"] == "approved"
        told = httpx.get(f"{two.url}/v1/sessions/c/transcript").json()["items"]
        assert told[0]["text"] == f"Refund {SECRET}"


# The command line


def test_what_is_in_an_encrypted_store_is_shown(cli: Cli) -> None:
    rows = {row["session"]: row for row in cli("sessions", "--json").json["items"]}
    assert (rows["customer-42"]["title"], rows["customer-42"]["labels"]) == (
        "Refund",
        {"vip": True},
    )
    assert cli("sessions", "--label", "vip", "--json").json["items"] == [rows["customer-42"]]
    shown = cli("show", "customer-42")
    assert shown.code == 0
    assert "It is broken." in shown.out
    events = cli("show", "customer-42", "--json").json["events"]
    assert events[2]["data"]["calls"][0]["arguments"] == {"order": "42"}
    tail = cli("tail", "customer-42", "--after", "0", "--no-follow", "--json")
    assert [event["data"] for event in tail.lines] == [event["data"] for event in events]
    assert [item["title"] for item in cli("pending", "--json").json["items"]] == ["19.99"]


def test_an_encrypted_store_is_sound_and_said_to_be(cli: Cli, tmp_path: Path) -> None:
    assert cli("verify").code == 0
    anchors = tmp_path / "anchors.jsonl"
    anchors.write_text(cli("anchors").out)
    assert len(anchors.read_text().splitlines()) == 3
    assert cli("verify", "--anchors", str(anchors)).code == 0
    found = cli("doctor", "--json").json
    assert (found["ok"], found["store"]["info"]["encrypted"]) == (True, True)
    assert cli("migrate", "--check").code == 0
    assert re.search(r"store has schema \d+, program has \d+: up to date", cli("migrate").out)
    keys = cli("vault", "list", "--json").json
    assert sorted(one["tenant"] for one in keys) == ["main", "other"]
    done = cli("vault", "reseal", "--json").json
    assert [(one["tenant"], one["changed"]) for one in done] == [("main", 0), ("other", 0)]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "words", [("show", "customer-42"), ("sessions",), ("verify",), ("doctor",)], ids=" ".join
)
def test_a_store_without_its_keys_is_refused(
    cli: Cli, url: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    plain = cli(*words, store=unsealed(url))
    assert plain.code == 1
    assert "this store is encrypted" in plain.out + plain.err
    other = tmp_path / "other"
    other.mkdir()
    wrong = cli(*words, store=sealed(unsealed(url), other))
    assert wrong.code == 1
    assert "key" in wrong.out + wrong.err
    assert cli(*words).code == 0


def test_what_another_process_writes_is_followed(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    append(url, "s", "one", "two")
    with start("tail", "s", "--events", "1", "--store", url, "--json") as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["data"]["text"] == "two"
        append(url, "s", f"drei {SECRET}")
        assert json.loads(tail.stdout.readline())["data"]["text"] == f"drei {SECRET}"
        tail.send_signal(signal.SIGINT)
        tail.communicate()
    assert tail.returncode == 130


def test_sessions_are_copied_and_moved_by_command(cli: Cli, tmp_path: Path) -> None:
    there = sealed(f"file:{tmp_path}/there", tmp_path)
    plain = f"sqlite:{tmp_path}/plain.db"
    before = cli("show", "customer-43", "--json").json["events"]
    copied = cli("copy", "customer-43", "--to", there)
    assert copied.code == 0, copied.out + copied.err
    moved = cli("copy", "--move", "customer-43", "--to", plain, store=there)
    assert moved.code == 0, moved.out + moved.err
    assert cli("show", "customer-43", "--json", store=plain).json["events"] == before
    for store in (there, plain):
        assert cli("verify", store=store).code == 0


async def empty(store: Store) -> None:
    """Nothing is written; the store is there."""


def test_a_session_is_exported_and_imported_by_command(cli: Cli, tmp_path: Path) -> None:
    before = cli("show", "customer-42", "--json").json["events"]
    file = str(tmp_path / "out.zip")
    written = cli("export", "customer-42", "--mode", "local", "--purpose", "copy", "--out", file)
    assert written.code == 0, written.out + written.err
    for store in (sealed(f"file:{tmp_path}/there", tmp_path), f"sqlite:{tmp_path}/plain.db"):
        write(store, empty)
        read = cli("import", file, store=store)
        assert read.code == 0, read.out + read.err
        events = cli("show", "customer-42", "--json", store=store).json["events"]
        assert events[: len(before)] == before
        assert cli("verify", store=store).code == 0


def test_damage_is_found_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    write(url, sample)
    cli = Cli(url, capsys)
    with closing(sqlite3.connect(tmp_path / "x.db")) as conn, conn:
        conn.execute("UPDATE logs SET doc = replace(CAST(doc AS TEXT), '\"ann\"', '\"eve\"')")
    assert cli("sessions", "--json").json["items"][-1]["user"] == "eve"
    found = cli("verify", "--json")
    assert found.code == 1
    assert cli("repair").code == 0
    assert cli("verify").code == 0
    users = {row["session"]: row.get("user") for row in cli("sessions", "--json").json["items"]}
    assert users["customer-42"] == "ann"


async def test_a_damaged_event_is_refused_by_a_server(tmp_path: Path) -> None:
    url = sealed(f"sqlite:{tmp_path}/x.db", tmp_path)
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
    with closing(sqlite3.connect(tmp_path / "x.db")) as conn, conn:
        conn.execute("UPDATE events SET actor = 'eve' WHERE kind = 'message.received'")
    async with connect(url) as store:
        with pytest.raises(LogDamaged):
            await read_all(store, key("one", tenant="acme"))
    async with serving(settings(url)) as api:
        await api.fails("log_damaged", "GET", "/sessions/one/transcript")
