"""Somebody else's session, by every route that there is and on every store: it is as if it were
not there, and nothing in it is changed. The routes come from the published document, so that one
which is added is tried too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from holdfast.events import Event, Key
from holdfast.server.app import service_of

from .scene import Api, serving, settings

VICTIM, UNKNOWN = "theirs", "nobodys"
INTRUDERS = ("bob@acme", "eve@other")
BODIES: dict[str, Any] = {
    "send_message": {"content": "Hello"},
    "steer": {"content": "Hello"},
    "add_follow_up": {"content": "Hello"},
    "reorder_follow_ups": {"order": [2]},
    "edit_follow_up": {"text": "Hello"},
    "edit_message": {"text": "Hello"},
    "rewind": {"to": 0},
    "answer": {"answer": "yes"},
    "extend": {"seconds": 5},
    "rename_thread": {"title": "Mine"},
    "switch_mode": {"mode": "office"},
    "choose_model": {"model": "scripted/offline"},
    "replace_state": {"state": {"visits": 7}},
    "change_state": {"set": {"visits": 7}},
    "set_permission": {"category": "payments", "rule": "allow"},
    "grant": {"tool": "refund"},
    "attach_surface": {"surface": "mail", "address": "a"},
    "edit_file": {"path": "a.txt", "search": "a", "replace": "b"},
    "make_folder": {"path": "b"},
    "move_file": {"path": "a.txt", "to": "b.txt"},
    "set_schedule": {"message": "Hello", "every": 60},
}
OWN = ("get_or_create_session",)  # makes one where there is none


class Route(NamedTuple):
    """A route about one session."""

    operation: str
    method: str
    path: str
    body: bool
    query: dict[str, str]


def routes(document: dict[str, Any]) -> Iterator[Route]:
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            name = about["operationId"]
            if "{session_id}" in path and name not in OWN:
                query = [p for p in about.get("parameters", ()) if p["in"] == "query"]
                needed = {p["name"]: "a" for p in query if p.get("required")}
                yield Route(name, method.upper(), path, "requestBody" in about, needed)


async def tried(api: Api, route: Route, id: str, item: str, by: str) -> tuple[int, str]:
    """What a route answers, without the name that was asked for."""
    path = route.path.removeprefix("/v1")
    known = {"session_id": id, "item": item, "seq": "2", "name": "main", "sha256": "0" * 64}
    known["version"] = "v7"
    for name, value in known.items():
        path = path.replace("{" + name + "}", value)
    body = BODIES.get(route.operation, {}) if route.body else None
    answer = await api.ask(route.method, path, body, by=by, params=route.query or None)
    return answer.status_code, answer.text.replace(id, "…")


async def log_of(api: Api) -> list[Event]:
    store = await service_of(api.app).places.store()
    return [event async for event in store.read(Key("acme", VICTIM, "main"))]


@pytest.mark.parity("computeragent", 95)
async def test_no_route_tells_a_session_of_others_from_none(url: str) -> None:
    async with serving(settings(url)) as api:
        item = await api.ask_for_refund(VICTIM)
        before = await log_of(api)
        document = (await api.client.get("/v1/openapi.json")).json()
        tested = list(routes(document))
        assert len(tested) > 40
        for by in INTRUDERS:
            for route in tested:
                told = await tried(api, route, VICTIM, item, by)
                assert told == await tried(api, route, UNKNOWN, item, by), (by, route)
                assert told[0] == 404, (by, route, told)
            listed = await api("GET", "/sessions", by=by)
            waiting = await api("GET", "/pending", by=by)
            assert (listed["items"], waiting["items"]) == ([], [])
        assert await log_of(api) == before


async def test_a_name_a_key_or_a_bundle_of_others_is_worth_nothing(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("POST", "/sessions", {"id": VICTIM}, key="same")
        await api("POST", f"/sessions/{VICTIM}/messages?wait=true", {"content": "Hello"})
        packed = await api.ask("GET", f"/sessions/{VICTIM}/bundle?mode=local&purpose=copy")
        before = await log_of(api)
        for by in INTRUDERS:
            own = f"of-{by[:3]}"
            made = await api("POST", "/sessions", {"id": own}, key="same", by=by)
            assert made["id"] == own  # not the answer that another got with this key
            taken = await api.ask("PUT", f"/sessions/{VICTIM}", by=by)
            brought = await imported(api, packed.content, by)
            assert brought.status_code == 403, brought.text
            # In another tenant the name is free, and what is made there is another session.
            assert taken.status_code == (404 if by.endswith("@acme") else 201)
        assert await log_of(api) == before
        assert (await api("GET", f"/sessions/{VICTIM}"))["row"]["user"] == "ann"


async def imported(api: Api, bundle: bytes, by: str) -> httpx.Response:
    headers = {"content-type": "application/zip"}
    return await api.ask("POST", "/bundles", by=by, content=bundle, headers=headers)
