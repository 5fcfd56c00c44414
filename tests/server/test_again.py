"""Asking again after the answer was lost, when others have gone on meanwhile: with the same key the
answer is that of the first time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.wire import Wire
from tests.sessions import places

from .scene import PATIENCE, Api, serving, settings
from .test_once import forget_the_answers
from .test_votes import ANN, BOB, CAT, bank, waiting


@asynccontextmanager
async def cut(api: Api) -> AsyncGenerator[tuple[Api, Wire], None]:
    """Another way to a server, on which answers can be lost."""
    with Wire(int(api.url.rpartition(":")[2])) as wire:
        url = f"http://127.0.0.1:{wire.port}"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            yield Api(url, client, api.app), wire


async def unanswered(api: Api, path: str, body: Any = None, **more: Any) -> None:
    """Ask for something that is done, and whose answer is lost."""
    async with cut(api) as (far, wire):
        await asyncio.to_thread(wire.lose, "reply")
        with pytest.raises(httpx.TransportError):
            await far.ask("POST", path, body, **more)
        assert await asyncio.to_thread(lambda: wire.lost)


async def test_a_vote_whose_answer_was_lost_is_answered_also_when_others_have_decided() -> None:
    async with serving(bank()) as api:
        path = await waiting(api)
        await unanswered(api, f"{path}/approve", {"reason": "known"}, by=BOB, key="k")
        (item,) = (await api("GET", "/sessions/one/pending", by=BOB))["items"]
        assert item["approved_by"] == ["bob"]
        last = await api("POST", f"{path}/approve", by=CAT)
        assert last["outcome"] == "approved"
        again = await api("POST", f"{path}/approve", {"reason": "known"}, by=BOB, key="k")
        assert (again["outcome"], again["by"], again["left"]) == ("voted", "bob", 1)
        assert again["seq"] < last["seq"]
        await api.fails("key_reused", "POST", f"{path}/approve", {"reason": "x"}, by=BOB, key="k")
        await api.fails("already_decided", "POST", f"{path}/approve", by=BOB, key="other")


@pytest.mark.parametrize("verb", ["approve", "deny"])
async def test_a_decision_whose_answer_was_lost_is_answered_again(verb: str) -> None:
    async with serving() as api:
        path = f"/sessions/one/pending/{await api.ask_for_refund('one')}"
        await unanswered(api, f"{path}/{verb}", {"reason": "so"}, key="k")
        other = "deny" if verb == "approve" else "approve"
        await api.fails("already_decided", "POST", f"{path}/{other}", by=ANN)
        first = await api("POST", f"{path}/{verb}", {"reason": "so"}, key="k")
        assert first["by"] == "ann"
        assert await api("POST", f"{path}/{verb}", {"reason": "so"}, key="k") == first


async def test_what_was_said_before_a_process_died_is_answered_as_it_would_have_been(
    tmp_path: Path,
) -> None:
    """It was written into the session's log, and the answer was not kept any more."""
    url = places.url("sqlite", tmp_path)
    async with serving(bank(stores=url)) as api:
        path = await waiting(api)
        first = await api("POST", f"{path}/approve", by=BOB, key="b")
        second = await api("POST", f"{path}/approve", by=CAT, key="c")
        await api.until(
            "/sessions/one/transcript", lambda found: "It is sent." in str(found), by=ANN
        )
        await forget_the_answers(url)
        assert await api("POST", f"{path}/approve", by=BOB, key="b") == first
        assert await api("POST", f"{path}/approve", by=CAT, key="c") == second
        await api.fails("already_decided", "POST", f"{path}/deny", by=BOB, key="d")


async def test_the_key_of_a_move_stands_for_that_move_alone() -> None:
    async with serving(settings()) as api:
        for id in ("one", "two"):
            await api("PUT", f"/sessions/{id}")
        path = "/sessions/one/bundle/move"
        first = await api.ask("POST", f"{path}?to=there", key="k")
        again = await api.ask("POST", f"{path}?to=there", key="k")
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.headers["x-bundle-id"] == again.headers["x-bundle-id"]
        others: list[tuple[Any, ...]] = [
            ("POST", f"{path}?to=elsewhere"),
            ("POST", f"{path}?to=there&form=json"),
            ("POST", f"{path}?to=there", {}),
            ("POST", "/sessions/two/bundle/move?to=there"),
            ("PATCH", "/sessions/two", {"title": "x"}),
        ]
        for other in others:
            assert await api.fails("key_reused", *other, key="k") == {"key": "k"}
        row = (await api("GET", "/sessions/two"))["row"]
        assert (row.get("sealed"), row.get("title")) == (None, None)
        await api("PATCH", "/sessions/two", {"title": "x"}, key="p")
        await api.fails("key_reused", "POST", "/sessions/two/bundle/move?to=there", key="p")
        assert (await api("GET", "/sessions/two"))["row"].get("sealed") is None
