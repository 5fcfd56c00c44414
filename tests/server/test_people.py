"""A person's data over HTTP: given out, or gone."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from holdfast import Query
from holdfast.server import MemoryAudit
from holdfast.server.app import service_of

from .scene import Api, serving, settings

OFFICER = "dpo@acme+sessions:all,people:erase"


async def lines(api: Api, path: str, by: str) -> list[dict[str, object]]:
    answer = await api.ask("GET", path, by=by)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_all_that_is_stored_of_a_person_is_given_out_and_erased(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/anns", by="ann@acme")
        await api("POST", "/sessions/anns/messages?wait=true", {"content": "Hi"}, by="ann@acme")
        await api("PUT", "/sessions/bobs", by="bob@acme")
        boss = "ann@acme+sessions:all"
        await api("POST", "/sessions/bobs/messages?wait=true", {"content": "Psst"}, by=boss)
        own = await lines(api, "/people/ann", "ann@acme")
        assert {one["session"] for one in own} == {"anns"}
        everything = await lines(api, "/people/ann?shared=true", OFFICER)
        assert {one["session"] for one in everything} == {"anns", "bobs"}
        await api.fails("forbidden", "GET", "/people/ann", by="bob@acme")
        await api.fails("forbidden", "GET", "/people/ann?shared=true", by="ann@acme")
        path = "/people/ann?reason=request+12"
        would = await api("DELETE", f"{path}&dry_run=true", by=OFFICER)
        assert would["sessions"] == ["anns"]
        assert would["events"] == {"bobs": 1}
        await api("GET", "/sessions/anns", by="ann@acme")
        done = await api("DELETE", path, by=OFFICER)
        assert (done["sessions"], done["events"]) == (["anns"], {"bobs": 1})
        await api.fails("session_not_found", "GET", "/sessions/anns", by="ann@acme")
        events = await api.ask("GET", "/sessions/bobs/events", by="bob@acme")
        assert "Psst" not in events.text
        assert "request 12" in events.text


@pytest.mark.parametrize("name", ["acme/ann", "..", "ann?x=1&y=%2F#z", "Ann Äpfel"])
async def test_people_of_any_name_are_reached(api: Api, name: str) -> None:
    """A name that cannot stand in a path stands in the query."""
    await api("POST", "/sessions", {"id": "theirs", "user": name}, by=OFFICER)
    query = urlencode({"user": name})
    assert {one["session"] for one in await lines(api, f"/people?{query}", OFFICER)} == {"theirs"}
    await api.fails("forbidden", "GET", f"/people?{query}", by="ann@acme")
    done = await api("DELETE", f"/people?{query}&reason=asked", by=OFFICER)
    assert done["sessions"] == ["theirs"]
    audit = service_of(api.app).settings.audit
    assert isinstance(audit, MemoryAudit)
    assert audit.records[-1].target == {"user": name}
    assert await lines(api, f"/people?{query}", OFFICER) == []
    fields = await api.fails("invalid_value", "DELETE", "/people?reason=asked", by=OFFICER)
    assert fields["field"] == "user"


async def test_answers_that_were_kept_go_with_the_person(api: Api) -> None:
    await api("POST", "/sessions", {"title": "canary-title"}, key="k", by="ann@acme")
    await api("DELETE", "/people/ann?reason=x", by=OFFICER, key="erase")
    store = await service_of(api.app).places.store()
    left = await store.find(Query(tenant="~once:acme"))
    assert [row.user for row in left.items] == ["dpo"]
