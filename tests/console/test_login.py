"""Logins of browsers: what a cookie is and may do, and what requests of other pages may not."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.local_token import PREFIX, random_text
from holdfast.server import (
    ApiKeys,
    MemoryAudit,
    NoAuth,
    RequestCredentials,
    SharedSecret,
    create_app,
)
from holdfast.server.app import service_of
from holdfast.server.auth.callers import LocalTokenAuth
from holdfast.server.auth.logins import LASTS, Logins
from tests.server.scene import Api, Tokens, serving, settings

OURS = {"sec-fetch-site": "same-origin", "holdfast-console": "1"}
READS = {"sec-fetch-site": "same-origin"}
TOKEN = PREFIX + random_text(43)


@asynccontextmanager
async def local() -> AsyncGenerator[Api, None]:
    """A server that asks for its local token."""
    async with serving(settings(auth=LocalTokenAuth(TOKEN))) as api:
        yield api


@asynccontextmanager
async def keyed(folder: Path) -> AsyncGenerator[tuple[Api, ApiKeys, str], None]:
    """A server that asks for keys, its keys, and one of them."""
    url = f"sqlite:{folder}/keys.db"
    async with holdfast.connect(url) as store:
        keys = ApiKeys(store)
        made = await keys.create(principal="ann", scopes=("sessions:read", "sessions:write"))
        async with serving(settings(url, auth="keys")) as api:
            yield api, keys, made.key


async def log_in(api: Api, token: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}", **OURS}
    return await api.client.post("/console/login", headers=headers)


async def cookie(api: Api, token: str = TOKEN) -> str:
    """Log in; the cookie as a browser would send it. The client itself forgets it."""
    answer = await log_in(api, token)
    assert answer.status_code == 204, answer.text
    api.client.cookies.clear()
    return answer.headers["set-cookie"].partition(";")[0]


async def status(api: Api, cookie: str, method: str = "GET", **headers: str) -> int:
    body: Any = {} if method == "POST" else None
    sent = {"cookie": cookie, **headers}
    answer = await api.ask(method, "/sessions", body, by=None, headers=sent)
    return answer.status_code


async def test_a_key_becomes_a_cookie_that_does_not_contain_it(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (api, _, key):
        answer = await log_in(api, key)
        name, *about = answer.headers["set-cookie"].split("; ")
        port = api.url.rpartition(":")[2]
        assert name.startswith(f"holdfast_{port}=")
        assert about == [f"Max-Age={LASTS}", "Path=/", "HttpOnly", "SameSite=Lax"]
        value = name.partition("=")[2]
        said = base64.urlsafe_b64decode(value.partition(".")[0] + "==").decode()
        secret = key[len("hk_") + 12 :]
        assert secret not in value
        assert secret not in said
        assert json.loads(said)["principal"] == "ann"
        assert await status(api, name, **READS) == 200


async def test_every_request_with_a_cookie_must_come_from_a_page_of_this_server() -> None:
    async with local() as api:
        sent = await cookie(api)
        own = f"http://{api.client.base_url.netloc.decode()}"
        assert await status(api, sent) == 403
        for site in ("cross-site", "same-site", "none", "", "same-origin, cross-site"):
            assert await status(api, sent, **{"sec-fetch-site": site}) == 403
            assert await status(api, sent, **{"sec-fetch-site": site, "origin": own}) == 403
        for origin in (
            "null",
            "http://127.0.0.1:1",
            "http://evil.example",
            f"{own}.evil",
            own[:-1],
        ):
            assert await status(api, sent, origin=origin) == 403
        assert await status(api, sent, origin=own) == 200
        assert await status(api, sent, **READS) == 200


async def test_a_change_with_a_cookie_needs_the_header_that_other_pages_cannot_send() -> None:
    async with local() as api:
        sent = await cookie(api)
        assert await status(api, sent, "POST", **READS) == 403
        assert await status(api, sent, "POST", **{"holdfast-console": "1"}) == 403
        assert await status(api, sent, "POST", **OURS) == 201
        logout = await api.client.post("/console/logout", headers={"cookie": sent, **READS})
        assert logout.status_code == 403
        assert await status(api, sent, **READS) == 200


async def test_streams_need_the_same() -> None:
    async with local() as api:
        sent = await cookie(api)
        await api("PUT", "/sessions/one", by=TOKEN)
        stream = "/sessions/one/events?until=idle"
        for headers, wanted in (({}, 403), ({"sec-fetch-site": "same-site"}, 403), (READS, 200)):
            answer = await api.ask("GET", stream, by=None, headers={"cookie": sent, **headers})
            assert answer.status_code == wanted


async def test_bearer_requests_are_exempt() -> None:
    async with local() as api:
        sent = await cookie(api)
        foreign = {"cookie": sent, "sec-fetch-site": "cross-site"}
        assert (await api.ask("GET", "/sessions", by=TOKEN, headers=foreign)).status_code == 200
        # A wrong token is not saved by a cookie.
        assert (await api.ask("GET", "/sessions", by="wrong", headers=foreign)).status_code == 401
        mixed = {"cookie": sent, **OURS}
        assert (await api.ask("GET", "/sessions", by="wrong", headers=mixed)).status_code == 401


async def test_forged_cookies_are_rejected() -> None:
    async with local() as api:
        sent = await cookie(api)
        name, _, value = sent.partition("=")
        body, _, signature = value.partition(".")
        login = json.loads(base64.urlsafe_b64decode(body + "=="))
        later = json.dumps({**login, "until": login["until"] + 1}).encode()
        forged = [
            *("", ".", "a", "a.b", "é.ü", f"{body}.", f".{signature}", f"{body}.{signature}x"),
            f"{body}.{signature[:-2]}AA",
            f"{base64.urlsafe_b64encode(later).decode().rstrip('=')}.{signature}",
            f"{body}.{body}",
            TOKEN,
            "x" * 8_000,
        ]
        for one in forged:
            sent_bytes = f"{name}={one}".encode()
            headers: Any = [(b"cookie", sent_bytes), (b"sec-fetch-site", b"same-origin")]
            answer = await api.client.get("/v1/sessions", headers=headers)
            assert answer.status_code == 401, one
        # The cookie of a server at another port of this host is not ours.
        assert await status(api, f"holdfast_1={value}", **READS) == 401
        assert await status(api, f"holdfast_1=x; {sent}", **READS) == 200


async def test_a_login_expires(tmp_path: Path) -> None:
    now = 1_000
    async with holdfast.connect(f"sqlite:{tmp_path}/x.db") as store:

        async def opened() -> holdfast.Store:
            return store

        logins = Logins(opened, clock=lambda: now)
        caller = (await Tokens().authenticate(shown("ann@acme"))) or pytest.fail("no caller")
        value = await logins.begin(caller, "ann@acme")
        now += LASTS * 1_000 - 1
        login = await logins.read(value)
        assert login is not None
        assert login.caller() == caller
        now += 1
        assert await logins.read(value) is None


def shown(token: str) -> RequestCredentials:
    headers = {"authorization": f"Bearer {token}"}
    return RequestCredentials(method="GET", path="/", headers=headers)


async def test_after_logout_no_copy_of_the_cookie_is_accepted(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/x.db"
    auth = LocalTokenAuth(TOKEN)
    async with serving(settings(url, auth=auth)) as api:
        one, other = await cookie(api), await cookie(api)
        assert await status(api, one, **READS) == 200
        answer = await api.client.post("/console/logout", headers={"cookie": one, **OURS})
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert answer.headers["clear-site-data"] == '"cache"'
        assert await status(api, one, **READS) == 401
        assert await status(api, other, **READS) == 200
    # Nor by another server on the same store, where the other login goes on.
    async with serving(settings(url, auth=auth)) as again:
        port = again.url.rpartition(":")[2]
        for sent, wanted in ((one, 401), (other, 200)):
            value = sent.partition("=")[2]
            assert await status(again, f"holdfast_{port}={value}", **READS) == wanted


async def test_a_cookie_ends_with_its_key(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (api, keys, key):
        sent = await cookie(api, key)
        assert await status(api, sent, **READS) == 200
        (info,) = await keys.list()
        await keys.revoke(info.id)
        # A key is cached for five seconds, as for a request that sends it.
        await api.answered(401, "GET", "/sessions", by=None, headers={"cookie": sent, **READS})


async def test_a_cookie_has_the_scopes_of_its_key(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (api, keys, _):
        reader = await keys.create(principal="ben", scopes=("sessions:read",))
        sent = await cookie(api, reader.key)
        assert await status(api, sent, **READS) == 200
        assert await status(api, sent, "POST", **OURS) == 403


@pytest.mark.parametrize("auth", [LocalTokenAuth, SharedSecret])
async def test_a_cookie_ends_with_the_secret_that_it_was_made_for(
    auth: Any, tmp_path: Path
) -> None:
    first, second, url = "1" * 43, "2" * 43, f"sqlite:{tmp_path}/x.db"
    async with serving(settings(url, auth=auth(first))) as api:
        sent = await cookie(api, first)
        assert await status(api, sent, **READS) == 200
    async with serving(settings(url, auth=auth(second))) as api:
        value, port = sent.partition("=")[2], api.url.rpartition(":")[2]
        assert await status(api, f"holdfast_{port}={value}", **READS) == 401


async def test_a_custom_handler_can_be_logged_in_to() -> None:
    async with serving() as api:
        sent = await cookie(api, "ann@acme")
        answer = await api.ask("GET", "/me", by=None, headers={"cookie": sent, **READS})
        assert answer.json()["principal"] == "ann"


async def test_the_local_token_is_taken_out_of_the_address() -> None:
    async with local() as api:
        answer = await api.client.get(f"/console?token={TOKEN}")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/console"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        sent = answer.headers["set-cookie"].partition(";")[0]
        assert TOKEN not in sent
        assert await status(api, sent, **READS) == 200
        api.client.cookies.clear()
        # Nowhere else, and nothing but the token.
        for path in ("/v1/sessions", "/v1/me"):
            assert (await api.client.get(f"{path}?token={TOKEN}")).status_code == 401
        for wrong in ("", "x", TOKEN[:-1], "é"):
            answer = await api.client.get("/console", params={"token": wrong})
            assert answer.status_code == 303
            assert "set-cookie" not in answer.headers


async def test_keys_and_secrets_are_not_taken_from_an_address(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (api, _, key):
        answer = await api.client.get("/console", params={"token": key})
        assert answer.status_code == 303
        assert "set-cookie" not in answer.headers


async def test_no_secret_of_the_login_is_listed_or_written_to_the_audit() -> None:
    async with local() as api:
        await cookie(api)
        await api.client.get(f"/console?token={TOKEN}")
        audit = service_of(api.app).settings.audit
        assert isinstance(audit, MemoryAudit)
        assert TOKEN not in repr(audit.records)
        assert "login" in {record.action for record in audit.records}
        assert (await api("GET", "/sessions", by=TOKEN))["items"] == []


async def test_over_tls_the_cookie_is_secure() -> None:
    async with local() as api:
        headers = {"authorization": f"Bearer {TOKEN}", **OURS, "origin": "https://shop.example"}
        answer = await api.client.post("/console/login", headers=headers)
        assert answer.headers["set-cookie"].endswith("; Secure")


async def test_who_needs_no_token_needs_no_login() -> None:
    async with serving(settings(auth=NoAuth())) as api:
        assert (await api.ask("GET", "/me", by=None)).status_code == 200
        answer = await api.client.post("/console/login", headers=OURS)
        assert answer.status_code == 204
        assert "set-cookie" not in answer.headers


async def test_mounted_below_a_path_the_cookie_stays_there() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner: Any = await asyncio.to_thread(create_app, settings(auth=LocalTokenAuth(TOKEN)))
    outer: Any = Starlette(routes=[Mount("/agents", app=inner)])
    transport = httpx.ASGITransport(outer)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7700") as client:
        answer = await client.get(f"/agents/console?token={TOKEN}")
        assert answer.headers["location"] == "/agents/console"
        assert "Path=/agents;" in answer.headers["set-cookie"]
        page = await client.get("/agents/console")
        assert 'data-base="/agents"' in page.text
        assert (await client.get("/agents/console/static/app.js")).status_code == 200
