"""Search over HTTP: one's own sessions alone, in all stores, page by page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import NewEvent
from holdfast.events import Key
from holdfast.server.app import service_of

from .scene import Api, serving, settings

BOSS = "boss@acme+sessions:all"


def two(url: str, folder: Path) -> dict[str, str]:
    """A default store, and another."""
    return {"main": url, "archive": f"sqlite:{folder / 'archive.db'}"}


async def begin(api: Api, id: str, text: str, *, by: str = "ann@acme", kind: str = "main") -> None:
    """Create a session, with a message that no agent answers."""
    await api("PUT", f"/sessions/{id}", {"store": {"kind": kind}}, by=by, status=201)
    store = (await service_of(api.app).places.place("acme", kind)).store
    message = NewEvent.of("message.received", {"text": text})
    await store.append(Key("acme", id, "main"), [message])


async def found(api: Api, query: str, *, by: str = "ann@acme") -> dict[str, Any]:
    """The first page of a search, once every event is in the index."""
    while (page := await api("GET", f"/search?q={query}", by=by))["behind"]:
        pass
    answer: dict[str, Any] = page
    return answer


def sessions(page: dict[str, Any]) -> list[str]:
    return [hit["session"] for hit in page["hits"]]


async def test_a_search_finds_ones_own_sessions_alone(url: str, tmp_path: Path) -> None:
    async with serving(settings(two(url, tmp_path))) as api:
        await begin(api, "of-ann", "a heron")
        await begin(api, "of-ben", "a heron too", by="ben@acme")
        assert sessions(await found(api, "heron")) == ["of-ann"]
        assert sessions(await found(api, "heron", by="ben@acme")) == ["of-ben"]
        assert sorted(sessions(await found(api, "heron", by=BOSS))) == ["of-ann", "of-ben"]
        assert sessions(await found(api, "heron&user=ben", by=BOSS)) == ["of-ben"]
        await api.fails("forbidden", "GET", "/search?q=heron&user=ben")
        assert sessions(await found(api, "heron&session=of-ann")) == ["of-ann"]
        for by in ("ben@acme", "ann@other"):
            for id in ("of-ann", "nobody"):
                path = f"/search?q=heron&session={id}"
                await api.fails("session_not_found", "GET", path, by=by)
        assert sessions(await found(api, "heron", by="ann@other")) == []


async def test_a_search_goes_through_all_stores(url: str, tmp_path: Path) -> None:
    async with serving(settings(two(url, tmp_path))) as api:
        for number in range(3):
            await begin(api, f"main-{number}", "a heron")
            await begin(api, f"archive-{number}", "a heron", kind="archive")
        assert len(sessions(await found(api, "heron"))) == 6
        seen, cursor = [], ""
        while True:
            page = await found(api, f"heron&limit=2{cursor}")
            seen += sessions(page)
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert sorted(seen) == sorted(
            f"{name}-{n}" for name in ("archive", "main") for n in range(3)
        )
        assert sorted(set(sessions(await found(api, "heron&store=archive")))) == [
            f"archive-{n}" for n in range(3)
        ]


async def test_a_query_that_names_nothing_is_refused(url: str) -> None:
    async with serving(settings(url)) as api:
        fields = await api.fails("invalid_value", "GET", "/search?q=-heron")
        assert fields["field"] == "query"
        await api.fails("invalid_value", "GET", "/search")
