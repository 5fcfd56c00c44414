"""Sessions of agents that clients bring: begun, gone on with by any replica, and removed whole."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import ToolContext, tool
from holdfast.events import Key
from holdfast.harness.sandbox import LocalSandbox
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import MemoryAudit
from holdfast.server.app import service_of
from holdfast.server.loaders import AgentFiles, InlineLoader, LocalLoader
from holdfast.server.uploads.manifest import AgentManifest
from tests.sessions import places

from ..scene import PATIENCE, Api, refund, serving, settings

AGENT = {
    "name": "Support",
    "version": "1.2",
    "instructions": "Help with orders.",
    "tools": ["refund"],
}
INLINE = {"loader": "inline", "source": {"manifest": AGENT}}


class Spy(InlineLoader):
    """Counts what is asked of it."""

    name = "spy"

    def __init__(self) -> None:
        self.fetched = 0

    async def fetch(self, source: Mapping[str, Any]) -> AgentFiles:
        self.fetched += 1
        return await super().fetch(source)


@tool
async def shell(command: str, context: ToolContext) -> str:
    """Run a command."""
    ran = await context.sandbox.run(command)
    return str(ran.stdout)


def brought(folder: Path, stores: Any = "memory:", **more: Any) -> Any:
    given = {"loaders": [InlineLoader()], "tools": [refund], **more}
    harness = {"sandbox": LocalSandbox(folder / "places"), "ttl": 1.0}
    return settings(stores, harness=harness, **given)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Api, None]:
    async with serving(brought(tmp_path)) as one:
        yield one


def folders(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "places").glob("*")]


async def kept(api: Api, tenant: str = "acme") -> list[str]:
    """The agents that the server keeps for a tenant."""
    service = service_of(api.app)
    return await service.uploads.all(await service.places.place(tenant))


@pytest.mark.parity("computeragent", 59, "S3")
async def test_an_agent_of_the_requests_serves_its_session(api: Api, tmp_path: Path) -> None:
    data = base64.b64encode(b"\x00\x01").decode()
    source = {"manifest": AGENT, "files": [{"path": "a.txt", "content": "its own"}]}
    files = [
        {"path": "a.txt", "content": "over it"},
        {"path": "b/c.bin", "content": data, "encoding": "base64"},
    ]
    body = {"id": "one", "source": {"loader": "inline", "source": source}, "files": files}
    view = await api("POST", "/sessions", body, status=201)
    assert view["row"]["agent"].startswith("support@")
    told = view["row"]["metadata"]["holdfast.source"]
    assert (told["name"], told["version"], told["loader"]) == ("Support", "1.2", "inline")
    for path, content in (("a.txt", b"over it"), ("b/c.bin", b"\x00\x01")):
        answer = await api.ask("GET", "/sessions/one/files/content", params={"path": path})
        assert answer.content == content
    item = await api.ask_for_refund("one")
    await api("POST", f"/sessions/one/pending/{item}/approve", {})
    await api.until("/sessions/one/status", lambda s: s["phase"] == "idle" and not s["run"])
    assert len(folders(tmp_path)) == 1
    await api("DELETE", "/sessions/one")
    assert folders(tmp_path) == []
    assert await kept(api) == []


async def test_the_same_agent_is_kept_once_and_as_long_as_it_is_needed(api: Api) -> None:
    one = await api("POST", "/sessions", {"id": "one", "source": INLINE})
    two = await api("POST", "/sessions", {"id": "two", "source": INLINE})
    other = {"loader": "inline", "source": {"manifest": {**AGENT, "instructions": "Else."}}}
    three = await api("PUT", "/sessions/three", {"source": other}, status=201)
    assert one["row"]["agent"] == two["row"]["agent"] != three["row"]["agent"]
    assert len(await kept(api)) == 2
    await api("DELETE", "/sessions/one")
    assert len(await kept(api)) == 2
    await api("DELETE", "/sessions/three")
    assert await kept(api) == [two["row"]["agent"]]
    sent = await api("POST", "/sessions/two/messages?wait=true", {"content": "Hello"})
    assert sent["status"] == "done"
    again = await api("PUT", "/sessions/two", {"source": other}, status=200)
    assert again["row"]["agent"] == two["row"]["agent"]  # a session stays who it is


@pytest.mark.parity("computeragent", 53)
async def test_what_is_not_there_is_refused_with_what_is(api: Api, tmp_path: Path) -> None:
    wrong = {"loader": "inlin", "source": {}}
    refused = await api.ask("POST", "/sessions", {"source": wrong})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "unknown_loader")
    assert error["fields"] == {"loader": "inlin", "available": ["inline"]}
    assert "did you mean 'inline'" in error["message"]
    for source, field in (
        ({"manifest": {**AGENT, "tools": ["shell"]}}, "tools"),
        ({"manifest": {**AGENT, "exec": "x"}}, "manifest"),
        ({"manifest": {**AGENT, "initial_mode": "none"}}, "source"),
        ({"manifest": AGENT, "files": [{"path": "../x", "content": ""}]}, "path"),
        ({"path": "x"}, "source"),
    ):
        body = {"source": {"loader": "inline", "source": source}}
        assert (await api.fails("invalid_value", "POST", "/sessions", body))["field"] == field
    both = {"source": INLINE, "agent": "shop"}
    assert (await api.fails("invalid_value", "POST", "/sessions", both))["field"] == "agent"
    assert folders(tmp_path) == []
    assert (await kept(api), (await api("GET", "/sessions"))["items"]) == ([], [])


@pytest.mark.parity("computeragent", "S4")
@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a\0b", " "])
async def test_a_file_that_leads_elsewhere_begins_nothing(
    api: Api, tmp_path: Path, path: str
) -> None:
    for more in ({"source": INLINE}, {}):
        body = {"id": "one", "files": [{"path": path, "content": "x"}], **more}
        await api.fails("invalid_value", "POST", "/sessions", body)
    await api.fails("session_not_found", "GET", "/sessions/one")
    assert (folders(tmp_path), await kept(api)) == ([], [])


@pytest.mark.parity("computeragent", 38)
async def test_nothing_is_fetched_for_a_store_that_is_not_there(tmp_path: Path) -> None:
    spy = Spy()
    async with serving(brought(tmp_path, loaders=[spy])) as api:
        source = {**INLINE, "loader": "spy"}
        body = {"source": source, "store": {"kind": "mongo"}}
        await api.fails("unknown_store", "POST", "/sessions", body)
        taken = {"id": "one", "source": source}
        await api("POST", "/sessions", taken)
        assert spy.fetched == 1
        await api.fails("session_exists", "POST", "/sessions", taken)
        assert spy.fetched == 1


@pytest.mark.parity("computeragent", 62)
async def test_a_load_that_fails_late_leaves_nothing(api: Api, tmp_path: Path) -> None:
    files = [{"path": "a", "content": "a file"}, {"path": "a/b", "content": "in a file"}]
    body = {"id": "one", "source": INLINE, "files": files}
    await api.fails("sandbox_failed", "POST", "/sessions", body)
    await api.fails("session_not_found", "GET", "/sessions/one")
    assert (folders(tmp_path), await kept(api)) == ([], [])
    await api("POST", "/sessions", {"id": "one", "source": INLINE}, status=201)


@pytest.mark.parity("computeragent", 55)
@pytest.mark.parity("computeragent", 56)
async def test_the_request_is_over_the_description_and_the_server_over_both(
    tmp_path: Path,
) -> None:
    def harden(described: AgentManifest) -> AgentManifest:
        return msgspec.structs.replace(described, model=None)

    (tmp_path / "agents" / "one").mkdir(parents=True)
    (tmp_path / "agents" / "one" / "agent.toml").write_text(
        'name = "One"\ninstructions = "Help."\nmodel = "dear/model"\ninitial_mode = "a"\n'
        '[[modes]]\nname = "a"\n[[modes]]\nname = "b"\n'
    )
    loaders = [LocalLoader(tmp_path / "agents")]
    async with serving(brought(tmp_path, loaders=loaders, harden=harden)) as api:
        source: dict[str, Any] = {"loader": "local", "source": {"path": "one"}}
        await api("PUT", "/sessions/a", {"source": source})
        assert (await api("GET", "/sessions/a/mode"))["mode"] == "a"
        options = {"initial_mode": "b", "model": "dearer/model"}
        await api("PUT", "/sessions/b", {"source": {**source, "options": options}})
        assert (await api("GET", "/sessions/b/mode"))["mode"] == "b"
        await api("PUT", "/sessions/plain")
        ref = (await api("GET", "/sessions/plain/model"))["model"]
        for id in "ab":
            assert (await api("GET", f"/sessions/{id}/model"))["model"] == ref
        unknown = {**source, "options": {"root": "/"}}
        await api.fails("invalid_value", "PUT", "/sessions/c", {"source": unknown})


async def test_another_tenants_agent_is_not_there(api: Api) -> None:
    view = await api("POST", "/sessions", {"id": "one", "source": INLINE})
    named = {"agent": view["row"]["agent"]}
    for by in ("bob@other", "ann@acme"):
        await api.fails("unknown_agent", "POST", "/sessions", named, by=by)
    health = await api("GET", "/health")
    assert (health["loaders"], health["engines"]) == (["inline"], {"holdfast": ["shop"]})


async def test_without_loaders_nothing_is_loaded(tmp_path: Path) -> None:
    async with serving() as api:
        fields = await api.fails("unknown_loader", "POST", "/sessions", {"source": INLINE})
        assert fields["available"] == []


async def test_without_a_sandbox_an_agent_brings_no_files() -> None:
    async with serving(settings(loaders=[InlineLoader()], tools=[refund])) as api:
        await api("POST", "/sessions", {"id": "one", "source": INLINE}, status=201)
        files = [{"path": "a", "content": "b"}]
        body = {"id": "two", "source": INLINE, "files": files}
        await api.fails("sandbox_failed", "POST", "/sessions", body)
        await api.fails("session_not_found", "GET", "/sessions/two")


@pytest.mark.parity("computeragent", 57)
@pytest.mark.parametrize("kind", places.SHARED)
async def test_any_replica_goes_on_with_a_session_of_a_loaded_agent(
    kind: str, tmp_path: Path
) -> None:
    url = places.url(kind, tmp_path)
    async with serving(brought(tmp_path, url)) as first:
        files = [{"path": "a.txt", "content": "kept"}]
        await first("PUT", "/sessions/one", {"source": INLINE, "files": files})
        item = await first.ask_for_refund("one")
    async with serving(brought(tmp_path, url)) as second:
        view = await second("GET", "/sessions/one")
        assert view["row"]["agent"].startswith("support@")
        await second("POST", f"/sessions/one/pending/{item}/approve", {})
        await second.until("/sessions/one/status", lambda s: s["phase"] == "idle" and not s["run"])
        file = await second.ask("GET", "/sessions/one/files/content?path=a.txt")
        assert file.text == "kept"
        shown = await second("GET", "/sessions/one/transcript")
        assert "Refunded." in str(shown["items"][-1])
        await second("DELETE", "/sessions/one")
        assert await kept(second) == []


async def test_a_run_of_a_loaded_agent_is_taken_up_by_a_replica_that_never_met_it(
    tmp_path: Path,
) -> None:
    """The first replica goes while its run waits for a model; nobody asks the second for it."""
    url = f"sqlite:{tmp_path}/log.db"
    async with serving(brought(tmp_path, url, grace=0.0, tenants=["acme"])) as first:
        await first("PUT", "/sessions/one", {"source": INLINE})
        await first("POST", "/sessions/one/messages", {"content": "Slow"})
        await first.until("/sessions/one/status", lambda s: s["run"])
    async with serving(brought(tmp_path, url, tenants=["acme"])) as second:
        service = service_of(second.app)
        store = (await service.places.place("acme")).store
        where = Key("acme", "one", "main")
        async with asyncio.timeout(PATIENCE):
            while True:
                row = await store.row(where)
                if row is not None and row.run == "done":
                    break
                await asyncio.sleep(0.05)
        shown = await second("GET", "/sessions/one/transcript")
        assert "eight" in str(shown["items"][-1])


async def test_a_key_makes_a_loaded_session_once(api: Api) -> None:
    body = {"source": INLINE, "files": [{"path": "a", "content": "b"}]}
    views = await asyncio.gather(
        *(api("POST", "/sessions", body, key="create-1") for _ in range(5))
    )
    assert len({view["id"] for view in views}) == 1
    assert len((await api("GET", "/sessions"))["items"]) == 1


async def test_variables_reach_commands_and_nothing_else(tmp_path: Path) -> None:
    secret = "canary-7f3a9c"
    agent = {**AGENT, "tools": ["shell"]}
    speaks = ScriptedModel.by_input(
        {".": [Say("", calls=[Use("shell", command="echo got $TOKEN")]), "Done."]}
    )
    made = brought(tmp_path, tools=[shell], envs=["TOKEN"])
    made.harness = {**made.harness, "default_model": speaks}
    async with serving(made) as api:
        source = {"loader": "inline", "source": {"manifest": agent}}
        body = {"source": source, "envs": {"TOKEN": secret}}
        refused = await api.fails(
            "invalid_value", "POST", "/sessions", {**body, "envs": {"PATH": "/x"}}
        )
        remedy = "use only the variables that the server allows: TOKEN"
        assert (refused["field"], refused["remedy"]) == ("envs", remedy)
        begun = await api.ask("PUT", "/sessions/one", body, key="begin-1")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Go"})
        events = await api.ask("GET", "/sessions/one/events")
        assert "got [redacted]" in events.text
        seen = begun.text + events.text + (await api.ask("GET", "/sessions/one")).text
        sink = service_of(api.app).settings.audit
        assert isinstance(sink, MemoryAudit)
        assert secret not in seen + str(sink.records)
        files = await api("GET", "/sessions/one/files/tree")
        assert [entry["path"] for entry in files["entries"]] == ["agent.json"]
    async with serving() as api:
        body = {"envs": {"TOKEN": secret}}
        refused = await api.fails("invalid_value", "PUT", "/sessions/one", body)
        assert secret not in str(refused)


async def test_a_persons_folders_and_agents_go_with_them(api: Api, tmp_path: Path) -> None:
    await api("PUT", "/sessions/anns", {"source": INLINE})
    await api("PUT", "/sessions/bobs", {"source": INLINE}, by="bob@acme")
    assert len(folders(tmp_path)) == 2
    officer = "dpo@acme+people:erase,sessions:all"
    done = await api("DELETE", "/people/ann?reason=asked", by=officer)
    assert done["sessions"] == ["anns"]
    assert (len(folders(tmp_path)), len(await kept(api))) == (1, 1)
    await api("DELETE", "/people/bob?reason=asked", by=officer)
    assert (folders(tmp_path), await kept(api)) == ([], [])


async def test_a_bundle_brings_no_agent_of_another_tenant(api: Api) -> None:
    await api("PUT", "/sessions/one", {"source": INLINE})
    query = "mode=local&purpose=copy"
    bundle = await api.ask("GET", f"/sessions/one/bundle?{query}", by="ann@acme+admin")
    assert bundle.status_code == 200, bundle.text
    taken = await api.ask("POST", "/bundles", by="eve@other+admin", content=bundle.content)
    assert taken.status_code < 300, taken.text
    session = taken.json()["session"]
    assert len(taken.json()["warnings"]) == 1
    shown = await api("GET", f"/sessions/{session}", by="eve@other+admin")
    assert shown["engine"] == ""
    status = await api("GET", f"/sessions/{session}/status", by="eve@other+admin")
    assert (status["mode"], status["model"]) == ("", None)
    path, body = f"/sessions/{session}/messages", {"content": "Hi"}
    await api.fails("unknown_agent", "POST", path, body, by="eve@other+admin")
    assert await kept(api, "other") == []
