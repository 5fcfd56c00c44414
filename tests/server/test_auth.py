"""Who may ask, and for what: keys, secrets, loopback, scopes, tenants, owners."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import connect
from holdfast.errors import InvalidValue
from holdfast.server import (
    SCOPES,
    ApiKeys,
    KeyAuth,
    MemoryAudit,
    NoAuth,
    RequestCredentials,
    ServerLimits,
    SharedSecret,
)
from holdfast.server.app import ROUTES, service_of
from holdfast.server.auth import authentication
from holdfast.server.auth.callers import USUAL
from holdfast.server.streams import backpressure as flow_module
from holdfast.stores.memory import MemoryStore
from tests.sessions import places

from .scene import PATIENCE, Api, Tokens, serving, settings
from .test_sessions import PARTS


def shown(key: str | None = None, **headers: str) -> RequestCredentials:
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return RequestCredentials(
        method="GET", path="/v1/sessions", headers=headers, address="127.0.0.1"
    )


@pytest.mark.parity("computeragent", 94)
async def test_without_a_known_key_nothing_is_to_be_had(api: Api) -> None:
    for header in ("", "Bearer", "Basic YTpi", "Bearer nobody", "bearer x y"):
        answer = await api.client.get("/v1/sessions", headers={"authorization": header})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthorized"
        assert answer.headers["www-authenticate"].startswith("Bearer")
    answer = await api.ask("POST", "/sessions", {}, by=None)
    assert answer.status_code == 401
    assert (await api.client.get("/v1/health")).status_code == 200
    # The scheme may be written in any case.
    headers = {"authorization": "bEaReR ann@acme"}
    assert (await api.client.get("/v1/sessions", headers=headers)).status_code == 200


@pytest.mark.parity("computeragent", 95)
@pytest.mark.parity("mastra-session", 169)
@pytest.mark.parity("user-demand", 61)
async def test_what_is_not_ones_own_is_not_there(url: str) -> None:
    async with serving(settings(url)) as api:
        item = await api.ask_for_refund("secret", by="ann@acme")
        asks: list[tuple[Any, ...]] = [("GET", path, None) for path in PARTS]
        asks += [
            ("POST", "/messages", {"content": "Hi"}),
            ("POST", "/steer", {"content": "Hi"}),
            ("POST", "/abort", {}),
            ("POST", "/rewind", {"to": 0}),
            ("POST", f"/pending/{item}/approve", {}),
            ("POST", f"/pending/{item}/extend", {"seconds": 1}),
            ("PUT", "/mode", {"mode": "office"}),
            ("PUT", "/model", {"model": "scripted/demo"}),
            ("PATCH", "/state", {"set": {"a": 1}}),
            ("PATCH", "", {"title": "mine"}),
            ("DELETE", "", None),
            ("POST", "/threads", {}),
            ("POST", "/threads/fork", {}),
            ("POST", "/surfaces", {"surface": "a", "address": "b"}),
        ]
        before = (await api("GET", "/sessions/secret", by="ann@acme"))["row"]
        for by in ("bob@acme", "ann@other", "boss@other+sessions:all,admin"):
            for method, path, body in asks:
                theirs = await api.ask(method, f"/sessions/secret{path}", body, by=by)
                none = await api.ask(method, f"/sessions/nobody{path}", body, by=by)
                assert theirs.status_code == none.status_code == 404
                assert theirs.text.replace("secret", "nobody") == none.text
            assert (await api("GET", "/sessions", by=by))["items"] == []
            assert (await api("GET", "/pending", by=by))["items"] == []
        assert (await api("GET", "/sessions/secret", by="ann@acme"))["row"] == before
        # To begin one under the same id tells nobody whose it is, and gives it to nobody.
        await api.fails("session_exists", "POST", "/sessions", {"id": "secret"}, by="bob@acme")
        await api.fails("session_not_found", "PUT", "/sessions/secret", by="bob@acme")


async def test_with_the_scope_for_all_sessions_one_sees_the_tenant(api: Api) -> None:
    await api("PUT", "/sessions/one", by="ann@acme")
    boss = "boss@acme+sessions:all"
    assert (await api("GET", "/sessions/one", by=boss))["row"]["user"] == "ann"
    assert len((await api("GET", "/sessions", by=boss))["items"]) == 1
    assert (await api("GET", "/sessions?user=bob", by=boss))["items"] == []
    made = await api("POST", "/sessions", {"user": "ann"}, by=boss)
    assert (await api("GET", f"/sessions/{made['id']}", by="ann@acme"))["row"]["user"] == "ann"
    fields = await api.fails("forbidden", "POST", "/sessions", {"user": "bob"}, by="ann@acme")
    assert fields["scope"] == "sessions:all"
    await api.fails("forbidden", "GET", "/sessions?user=bob", by="ann@acme")


async def test_every_route_needs_a_scope() -> None:
    needs = {handler.operation_id: handler.opt.get("scope") for handler in ROUTES}
    public = {handler.operation_id for handler in ROUTES if handler.opt.get("public")}
    assert public == {"health", "ready"}
    # A call of an MCP tool is a request of its own, and needs the scope of that one.
    assert {name for name, scope in needs.items() if scope is None} == public | {"mcp"}
    assert {*filter(None, needs.values())} <= {*SCOPES}
    async with serving(settings(auth=Tokens(()))) as api:
        for method, path in (("GET", "/sessions"), ("GET", "/sessions/x"), ("GET", "/pending")):
            fields = await api.fails("forbidden", method, path)
            assert fields["scope"] == "sessions:read"
        await api.fails("forbidden", "POST", "/sessions", {})
        await api.fails("forbidden", "DELETE", "/people/x?reason=y")
        await api("GET", "/sessions", by="root@acme+admin")


# ApiKeys


async def test_a_key_is_known_until_it_is_revoked_or_expires() -> None:
    now = 1_000_000
    store = MemoryStore(clock=lambda: now)
    keys = ApiKeys(store, clock=lambda: now)
    made = await keys.create(principal="ann", tenant="acme", expires=now + 5_000, label="laptop")

    async def known() -> Any:
        return await KeyAuth(keys, clock=lambda: now).authenticate(shown(made.key))

    caller = await known()
    assert (caller.tenant, caller.principal, caller.key) == ("acme", "ann", made.info.id)
    assert caller.scopes == frozenset(USUAL)
    for wrong in (made.key[:-1], made.key + "x", made.key[:-1] + "!", "hk_" + "x" * 55, ""):
        assert await KeyAuth(keys, clock=lambda: now).authenticate(shown(wrong)) is None
    now += 5_000
    assert await known() is None
    now -= 1
    assert await known() is not None
    await keys.revoke(made.info.id)
    assert await known() is None
    assert (await keys.get(made.info.id)).revoked == now


async def test_a_rotated_key_is_good_for_its_grace() -> None:
    now = 1_000_000
    keys = ApiKeys(MemoryStore(clock=lambda: now), clock=lambda: now)
    first = await keys.create(principal="ann", tenant="acme", scopes=["sessions:read"])
    second = await keys.rotate(first.info.id, grace=60)
    assert second.info.id == first.info.id
    assert second.key != first.key

    async def known(key: str) -> bool:
        return await KeyAuth(keys, clock=lambda: now).authenticate(shown(key)) is not None

    assert await known(first.key)
    assert await known(second.key)
    now += 60_000
    assert not await known(first.key)
    assert await known(second.key)
    third = await keys.rotate(first.info.id)
    assert not await known(second.key)
    assert await known(third.key)
    await keys.revoke(first.info.id)
    assert not await known(third.key)
    with pytest.raises(InvalidValue, match="revoked"):
        await keys.rotate(first.info.id)


async def test_no_key_is_in_the_store_nor_in_what_is_shown_of_it(tmp_path: Path) -> None:
    url = places.url("sqlite", tmp_path)
    async with connect(url) as store:
        keys = ApiKeys(store)
        made = await keys.create(principal="ann", tenant="acme")
        secret = made.key[-43:]
        assert secret not in repr(made)
        assert secret not in repr(await keys.list())
    files = await asyncio.to_thread(lambda: [*tmp_path.iterdir()])
    assert files
    for file in files:
        assert secret.encode() not in await asyncio.to_thread(file.read_bytes)


async def test_a_key_cannot_be_made_for_the_servers_own_tenants_or_with_odd_scopes() -> None:
    keys = ApiKeys(MemoryStore())
    for tenant in ("~keys", "~once:acme", "", "x" * 300):
        with pytest.raises(InvalidValue):
            await keys.create(principal="ann", tenant=tenant)
    with pytest.raises(InvalidValue, match="is not a scope"):
        await keys.create(principal="ann", scopes=["everything"])
    with pytest.raises(InvalidValue, match="past"):
        await keys.create(principal="ann", expires=1)
    assert await keys.list() == []


async def test_a_server_knows_keys_from_its_store(url: str) -> None:
    async with serving(settings(url, auth="keys")) as api:
        keys = ApiKeys(await service_of(api.app).places.store())
        made = await keys.create(principal="ann", tenant="acme")
        other = await keys.create(principal="ann", tenant="other")
        await api("POST", "/sessions", {"id": "one"}, by=made.key)
        await api.fails("session_not_found", "GET", "/sessions/one", by=other.key)
        await api.fails("forbidden", "DELETE", "/people/ann?reason=x", by=made.key)
        assert (await api.ask("GET", "/sessions", by="hk_" + "x" * 55)).status_code == 401
        assert {info.id for info in await keys.list("acme")} == {made.info.id}


async def test_a_revoked_key_is_refused_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "FRESH", 0.05)
    async with serving(settings(auth="keys")) as api:
        keys = ApiKeys(await service_of(api.app).places.store())
        made = await keys.create(principal="ann")
        await api("GET", "/sessions", by=made.key)
        await keys.revoke(made.info.id)
        async with asyncio.timeout(20):
            while (await api.ask("GET", "/sessions", by=made.key)).status_code != 401:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_stream_ends_when_its_key_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "FRESH", 0.05)
    monkeypatch.setattr(flow_module, "LOOK", 0.05)
    async with serving(settings(auth="keys")) as api:
        keys = ApiKeys(await service_of(api.app).places.store())
        made = await keys.create(principal="ann")
        await api("PUT", "/sessions/one", by=made.key)
        headers = {"accept": "text/event-stream", "authorization": f"Bearer {made.key}"}
        text = ""
        async with (
            asyncio.timeout(PATIENCE),
            api.client.stream("GET", "/v1/sessions/one/events", headers=headers) as stream,
        ):
            async for chunk in stream.aiter_text():
                if "caught_up" in chunk:
                    await keys.revoke(made.info.id)
                text += chunk
        last = text.strip().rpartition("event: ")[2]
        assert last.startswith("end\n")
        assert '"code":"unauthorized"' in last


# A secret, and none


async def test_a_shared_secret() -> None:
    secret = SharedSecret("correct horse battery staple")
    caller = await secret.authenticate(shown("correct horse battery staple"))
    assert caller is not None
    assert caller.principal == "shared-secret"
    for wrong in ("correct horse battery", "", "Correct horse battery staple", "é"):
        assert await secret.authenticate(shown(wrong)) is None
    assert await secret.authenticate(shown()) is None
    assert "horse" not in repr(secret)
    with pytest.raises(InvalidValue, match="too short"):
        SharedSecret("short")


async def test_without_auth_only_this_machine_is_served() -> None:
    auth = NoAuth()

    async def known(address: str | None = "127.0.0.1", **headers: str) -> bool:
        headers = {"host": "localhost:7700", **headers}
        asked = RequestCredentials(method="GET", path="/", headers=headers, address=address)
        return await auth.authenticate(asked) is not None

    assert await known()
    assert await known("::1", host="[::1]:80")
    assert await known(host="127.0.0.1")
    assert await known(origin="http://localhost:3000")
    assert not await known("10.0.0.7")
    assert not await known(None)
    assert not await known("testclient")
    assert not await known(host="evil.example")
    assert not await known(host="evil.example:80")
    assert not await known(origin="https://evil.example")
    assert not await known(origin="null")
    for header in ("x-forwarded-for", "forwarded", "x-real-ip", "via", "x-forwarded-host"):
        assert not await known(**{header: "10.0.0.7"})


async def test_a_server_without_auth_refuses_pages_of_the_web() -> None:
    async with serving(settings(auth=NoAuth())) as api:
        await api("POST", "/sessions", {"id": "one"})
        for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            assert (await api.ask("GET", "/sessions", headers=headers)).status_code == 401


# The record


@pytest.mark.parity("computeragent", 97)
async def test_an_audit_sink_that_fails_or_is_slow_holds_nobody_up() -> None:
    seen: list[str] = []

    async def sink(record: Any) -> None:
        seen.append(record.action)
        if len(seen) % 2:
            raise OSError("the disk is full")
        await asyncio.sleep(0)

    async with serving(settings(audit=sink)) as api:
        for n in range(4):
            await api("PUT", f"/sessions/s{n}")
        async with asyncio.timeout(20):
            while len(seen) < 4:  # noqa: ASYNC110 - it is a list
                await asyncio.sleep(0.01)
    assert seen == ["get_or_create_session"] * 4


async def test_every_request_is_recorded_with_who_asked_and_how_it_ended() -> None:
    audit = MemoryAudit()
    async with serving(settings(audit=audit)) as api:
        item = await api.ask_for_refund("one")
        await api("POST", f"/sessions/one/pending/{item}/approve")
        await api.fails("session_not_found", "GET", "/sessions/none", by="bob@acme")
        await api.ask("GET", "/sessions", by="nobody")
        await api("DELETE", "/sessions/one")
        await api.ask("GET", "/health", by=None)
    found = {record.action: record for record in audit.records}
    assert [*found] == [
        *("get_or_create_session", "send_message", "approve", "get_session"),
        *("list_sessions", "delete_session"),
    ]
    decided = found["approve"]
    assert (decided.tenant, decided.principal, decided.session) == ("acme", "ann", "one")
    assert (decided.target, decided.status, decided.channel) == ({"item": item}, 200, "http")
    assert (found["get_session"].code, found["get_session"].principal) == (
        "session_not_found",
        "bob",
    )
    assert (found["list_sessions"].status, found["list_sessions"].principal) == (401, None)
    assert len({record.request for record in audit.records}) == len(audit.records)


# How much


async def test_too_much_at_once_is_refused_with_a_time_to_wait() -> None:
    limits = ServerLimits(rate=0.1, burst=3, refusals=1.0)
    async with serving(settings(limits=limits)) as api:
        found = [await api.ask("GET", "/sessions") for _ in range(5)]
        assert [a.status_code for a in found] == [200, 200, 200, 429, 429]
        error = found[-1].json()["error"]
        assert (error["code"], error["retryable"]) == ("rate_limited", True)
        assert int(found[-1].headers["retry-after"]) >= 1
        assert (await api.ask("GET", "/sessions", by="bob@acme")).status_code == 200
        # Guessing keys is slow.
        refused = [(await api.ask("GET", "/sessions", by="x")).status_code for _ in range(20)]
        assert refused[:10] == [401] * 10
        assert refused[-1] == 429


async def test_the_guesses_of_others_keep_nobody_out_who_is_known() -> None:
    limits = ServerLimits(rate=None, refusals=0.1)
    async with serving(settings(limits=limits)) as api:
        await api("GET", "/sessions")
        refused = [(await api.ask("GET", "/sessions", by="x")).status_code for _ in range(5)]
        assert refused[-1] == 429
        await api("GET", "/sessions")
        await api.fails("rate_limited", "GET", "/sessions", by="bob@acme")  # may be a guess too
    async with serving(settings(limits=limits, auth=NoAuth())) as api:
        foreign = {"origin": "https://evil.example"}
        found = [await api.ask("GET", "/sessions", headers=foreign, by=None) for _ in range(5)]
        assert [a.status_code for a in found] == [401] * 5
        await api("GET", "/sessions")


async def test_a_key_that_was_never_seen_gets_in_while_others_guess() -> None:
    limits = ServerLimits(rate=None, refusals=0.1)
    async with serving(settings(limits=limits, auth="keys")) as api:
        guesses = ["hk_" + "x" * 55, "hk_short", "x"]
        refused = [(await api.ask("GET", "/sessions", by=by)).status_code for by in guesses]
        assert refused == [401, 429, 429]
        made = await ApiKeys(await service_of(api.app).places.store()).create(principal="ann")
        await api("GET", "/sessions", by=made.key)
        wrong = made.key[:-1] + ("a" if made.key[-1] != "a" else "b")
        await api.fails("rate_limited", "GET", "/sessions", by=wrong)


async def test_no_more_keys_are_looked_up_than_may_be_at_a_time() -> None:
    limits = ServerLimits(rate=None, refusals=0.1, concurrent=1)
    async with serving(settings(limits=limits, auth="keys")) as api:
        keys = ApiKeys(await service_of(api.app).places.store())
        made = await keys.create(principal="ann")
        assert (await api.ask("GET", "/sessions", by="x")).status_code == 401
        with service_of(api.app).gates["guess"].through("127.0.0.1"):
            fields = await api.fails("rate_limited", "GET", "/sessions", by=made.key)
        assert fields["limit"] == 1
        await api("GET", "/sessions", by=made.key)


async def test_no_more_requests_than_may_be_at_a_time() -> None:
    limits = ServerLimits(streams=1, concurrent=1, rate=None)
    async with serving(settings(limits=limits)) as api:
        await api("PUT", "/sessions/one")
        slow = api.ask("POST", "/sessions/one/messages?wait=true", {"content": "Slow"})
        waiting = asyncio.create_task(slow)
        await api.until("/sessions/one/status", lambda s: s["run"])
        said = {"content": "Hi"}
        fields = await api.fails("rate_limited", "POST", "/sessions/one/messages?wait=true", said)
        assert fields["limit"] == 1
        await api("POST", "/sessions/one/abort")
        assert (await waiting).json()["status"] == "aborted"
