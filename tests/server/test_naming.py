"""What is said of places over HTTP: the kind of a store as the server calls it, and never a path or
an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import connect
from holdfast.events import Scope
from holdfast.stores.copy import copy_session
from tests.sessions import places

from .scene import Api, serving, settings
from .test_places import ARCHIVE, BOSS, OFFICER, begin

STREAM = {"accept": "text/event-stream"}
KINDS = ["file", "sqlite", "postgres", "mongodb"]


def hidden(url: str, folder: Path) -> list[str]:
    """What of a store's place must not be told."""
    address = urlsplit(url).netloc.rpartition("@")[2]
    return [str(folder), folder.name, *([address] if address else [])]


async def everything(api: Api, id: str, by: str) -> str:
    """All that is to be read of a session, as one text."""
    paths = ["", "/status", "/display", "/transcript", "/events", "/threads", "/pending"]
    found = [await api.ask("GET", f"/sessions/{id}{path}", by=by) for path in paths]
    found.append(await api.ask("GET", f"/sessions/{id}/events", by=by, headers=STREAM))
    found.append(await api.ask("GET", "/sessions", by=by))
    found.append(await api.ask("GET", "/sessions?store=main", by=by))
    found.append(await api.ask("GET", "/people/ann", by=by))
    found.append(await api.ask("POST", f"/sessions/{id}/messages", {"content": "Hi"}, by=by))
    return "\n".join(answer.text for answer in found)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_remains_is_told_by_the_kind_of_its_store(kind: str, tmp_path: Path) -> None:
    url = places.url(kind, tmp_path)
    async with serving(settings({"main": "memory:", "archive": url})) as api:
        for id in ("one", "two"):
            await begin(api, id, ARCHIVE)
        gone = await api.ask("DELETE", "/sessions/one")
        erased = await api.ask("DELETE", "/people/ann?reason=gdpr", by=OFFICER)
        for answer in (gone, erased):
            assert answer.status_code == 200
            assert not [place for place in hidden(url, tmp_path) if place in answer.text]
            wheres = [one["where"] for one in answer.json()["remains"]]
            assert wheres
            assert all(where.startswith("the archive store") for where in wheres)


@pytest.mark.parametrize("kind", KINDS)
async def test_where_a_session_was_moved_to_is_told_by_the_kind_of_the_store(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    main, there = f"sqlite:{tmp_path / 'main.db'}", places.url(kind, tmp_path / "there")
    async with serving(settings({"main": main})) as api:
        await begin(api, "one")
    async with connect(main) as source, connect(there) as target:
        await copy_session(source, target, Scope("acme", "one"), move=True)
        await target.delete(Scope("acme", "one"))
    async with serving(settings({"main": main, "archive": there})) as api:
        await api("GET", "/sessions/nobody", status=404)  # it asks each of its stores
        text = await everything(api, "one", "ann@acme")
        assert not [place for place in hidden(there, tmp_path) if place in text]
        fields = await api.fails("session_moved", "POST", "/sessions/one/steer", {"content": "Hi"})
        assert fields["to"] == "archive"
        assert (await api("GET", "/sessions/one"))["row"]["sealed"] == "archive"
    async with serving(settings({"main": main})) as api:  # which does not know that store
        text = await everything(api, "one", BOSS)
        assert not [place for place in hidden(there, tmp_path) if place in text]
        assert (await api("GET", "/sessions/one"))["row"]["sealed"] == f"another {kind} store"


async def test_what_somebody_said_of_a_move_is_told_as_it_was_said(api: Api) -> None:
    await begin(api, "one")
    await api.ask("POST", "/sessions/one/bundle/move?to=the%20new%20server")
    fields: Any = await api.fails("session_moved", "POST", "/sessions/one/steer", {"content": "Hi"})
    assert fields["to"] == "the new server"
