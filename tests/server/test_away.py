"""A server one of whose stores is away: the others answer, what is missing is named, and nothing
that the one may have is said to be unknown or begun a second time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from holdfast import Store, StoreUnavailable, connect
from holdfast.client import Client, Patience
from holdfast.events import Scope
from holdfast.server import ServerLimits
from holdfast.server.app import service_of
from holdfast.server.placement.circuit_breaker import BRIEFLY
from holdfast.stores.copy import copy_session
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from tests import forks
from tests.servers.process import free_port
from tests.servers.wire import Wire
from tests.sessions import places

from .scene import PATIENCE, Api, serving, settings
from .test_places import ARCHIVE, begin, listed, two
from .test_serve import PROGRAM

UNREACHABLE = "postgresql://127.0.0.1:1/x?patience=30"
PLACE = "db-7.internal:5432"


class Breaking(FaultyStore):
    """A store in memory that can be gone for a while."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.away = False

    async def _strike(self, method: str, call: int, *, after: bool) -> None:
        if self.away and not after:
            raise StoreUnavailable(problem=f"{PLACE} does not answer")


class Several:
    """Stores in memory by kind: `main`, `archive` and `other`."""

    def __init__(self, *kinds: str) -> None:
        self.known = {kind: Breaking() for kind in kinds or ("main", "archive", "other")}

    def __getitem__(self, kind: str) -> Breaking:
        return self.known[kind]

    def settings(self, *, unsure: float | None = None, **more: Any) -> Any:
        stores = {kind: (lambda options, kind=kind: self.known[kind]) for kind in self.known}
        limits = ServerLimits(rate=None, unsure_seconds=unsure)
        return settings(stores, limits=limits, **more)


async def some(api: Api) -> None:
    """Two sessions in each store, and one in each that waits for a person."""
    for kind in ("main", "archive", "other"):
        about = {"store": {"kind": kind}}
        await begin(api, f"{kind}-0", about)
        await begin(api, f"{kind}-1", about)
        await api.ask_for_refund(f"{kind}-1")


class Slow(FaultyStore):
    """A store that takes longer to answer than one may that has just failed."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())

    async def _strike(self, method: str, call: int, *, after: bool) -> None:
        if method in ("row", "find", "pending") and not after:
            await asyncio.sleep(1.5 * BRIEFLY)


async def test_a_slow_store_is_not_taken_for_an_unavailable_one() -> None:
    known: dict[str, Store] = {"main": MemoryStore(), "archive": Slow()}
    stores = {kind: (lambda options, kind=kind: known[kind]) for kind in known}
    async with serving(settings(stores)) as api:
        await begin(api, "s")
        page = await api("GET", "/sessions")
        assert ([row["session"] for row in page["items"]], page["missing"]) == (["s"], [])


# Lists


async def test_a_list_has_what_the_others_have_and_names_the_one_that_is_missing() -> None:
    stores = Several()
    async with serving(stores.settings()) as api:
        await some(api)
        path = "/sessions?order=created&newest_first=false&total=true"
        whole = await api("GET", path)
        assert (len(whole["items"]), whole["total"], whole["missing"]) == (6, 6, [])
        stores["archive"].away = True
        part = await api("GET", path)
        assert [row["session"] for row in part["items"]] == [
            *("main-0", "main-1"),
            *("other-0", "other-1"),
        ]
        assert (part["cursor"], part["total"], part["missing"]) == (None, 4, ["archive"])
        waits = await api("GET", "/pending")
        assert [item["session"] for item in waits["items"]] == ["main-1", "other-1"]
        assert waits["missing"] == ["archive"]
        failed = await api.ask("GET", "/sessions?store=archive")
        assert (failed.status_code, PLACE in failed.text) == (503, False)
        stores["archive"].away = False
        back = await api.until(path, lambda page: not page["missing"])
        assert (len(back["items"]), back["total"]) == (6, 6)


async def test_the_default_store_may_be_the_missing_one() -> None:
    stores = Several()
    async with serving(stores.settings()) as api:
        await some(api)
        stores["main"].away = True
        part = await api("GET", "/sessions?order=created&newest_first=false")
        assert [row["session"] for row in part["items"]][:2] == ["archive-0", "archive-1"]
        assert part["missing"] == ["main"]


async def test_every_page_behind_a_store_that_was_passed_over_names_it() -> None:
    stores = Several()
    async with serving(stores.settings()) as api:
        await some(api)
        stores["archive"].away = True
        path, cursor = "/sessions?order=created&newest_first=false&limit=1", ""
        seen: list[tuple[list[str], list[str]]] = []
        while True:
            page = await api("GET", path + cursor)
            seen.append(([row["session"] for row in page["items"]], page["missing"]))
            if len(seen) == 3:
                stores["archive"].away = False  # what it has was passed over all the same
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert [ids for ids, _ in seen] == [["main-0"], ["main-1"], ["other-0"], ["other-1"]]
        assert [missing for _, missing in seen] == [[], [], ["archive"], ["archive"]]


async def test_a_list_that_stands_in_a_store_which_goes_away_goes_on_in_the_next() -> None:
    stores = Several()
    async with serving(stores.settings()) as api:
        await some(api)
        path = "/sessions?order=created&newest_first=false&limit=3"
        first = await api("GET", path)
        assert [row["session"] for row in first["items"]][-1] == "archive-0"
        stores["archive"].away = True
        second = await api("GET", f"{path}&cursor={first['cursor']}")
        assert [row["session"] for row in second["items"]] == ["other-0", "other-1"]
        assert second["missing"] == ["archive"]


async def test_a_page_for_which_no_store_answers_is_refused_and_its_cursor_stays_good() -> None:
    stores = Several("main", "archive")
    async with serving(stores.settings()) as api:
        for n in range(2):
            await begin(api, f"m{n}")
            await begin(api, f"a{n}", ARCHIVE)
        path = "/sessions?order=created&newest_first=false&limit=2"
        first = await api("GET", path)
        stores["archive"].away = True
        behind = f"{path}&cursor={first['cursor']}"
        failed = await api.ask("GET", behind)
        assert (failed.status_code, PLACE in failed.text) == (503, False)
        stores["main"].away = True
        for all_of_them in ("/sessions", "/pending"):
            answer = await api.ask("GET", all_of_them)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "store_unavailable")
            assert error["retryable"]
        stores["main"].away = stores["archive"].away = False
        answer = await api.answered(200, "GET", behind)
        assert [row["session"] for row in answer.json()["items"]] == ["a0", "a1"]


async def test_whoever_waits_is_told_of_what_the_others_have() -> None:
    stores = Several()
    async with serving(stores.settings()) as api, asyncio.timeout(PATIENCE):
        stores["archive"].away = True
        begun = asyncio.create_task(api("GET", "/pending?wait=25"))
        await begin(api, "here", {"store": {"kind": "main"}})
        await api.ask_for_refund("here")
        page = await begun
        assert [item["session"] for item in page["items"]] == ["here"]
        assert page["missing"] == ["archive"]
        again = asyncio.create_task(api("GET", f"/pending?wait=25&tag={page['tag']}"))
        stores["archive"].away = False
        await begin(api, "there", ARCHIVE)
        await api.ask_for_refund("there")
        page = await again
        assert [item["session"] for item in page["items"]] == ["here", "there"]
        assert page["missing"] == []


async def test_a_store_that_never_answers_holds_no_list_up_for_its_patience(tmp_path: Path) -> None:
    stores = {"main": f"sqlite:{tmp_path / 'm.db'}", "away": UNREACHABLE}
    async with serving(settings(stores)) as api:
        await begin(api, "one", {"store": {"kind": "main"}})
        for _ in range(3):
            page = await api("GET", "/sessions")
            assert [row["session"] for row in page["items"]] == ["one"]
            assert page["missing"] == ["away"]


async def test_a_database_that_falls_silent_holds_nobody_up(tmp_path: Path) -> None:
    url = places.url("postgres", tmp_path)
    port = urlsplit(url).port
    assert port is not None
    with Wire(port) as wire:
        far = url.replace(f":{port}/", f":{wire.port}/")
        stores = {"main": f"sqlite:{tmp_path / 'm.db'}", "archive": far}
        async with serving(settings(stores)) as api:
            await begin(api, "here")
            await begin(api, "there", ARCHIVE)
            silent = wire.silent()
            await asyncio.to_thread(silent.__enter__)
            try:
                for _ in range(2):
                    page = await api("GET", "/sessions")
                    assert [row["session"] for row in page["items"]] == ["here"]
                    assert page["missing"] == ["archive"]
                await api.fails("store_unavailable", "GET", "/sessions/nobody")
            finally:
                await asyncio.to_thread(silent.__exit__, None, None, None)
            await api.until("/sessions", lambda page: page["missing"] == [])
            await api.answered(404, "GET", "/sessions/nobody")


async def test_a_client_sees_what_is_missing() -> None:
    stores = Several()
    async with serving(stores.settings()) as api:
        await some(api)
        stores["other"].away = True
        async with Client(api.url, "ann@acme") as client:
            page = await client.list(limit=9)
            assert (len(page.items), page.missing) == (4, ["other"])
            assert (await client.pending()).missing == ["other"]
        async with Client(api.url, "ann@acme", patience=Patience(total=0.1)) as hasty:
            with pytest.raises(StoreUnavailable):
                await hasty.list(store="other")


async def test_the_document_names_it(api: Api) -> None:
    document = await api("GET", "/openapi.json")
    for name in ("RowPage", "PendingPage"):
        (shape,) = (
            one for key, one in document["components"]["schemas"].items() if key.endswith(name)
        )
        assert shape["properties"]["missing"]["items"] == {"type": "string"}


# Sessions that were moved


async def test_a_session_that_was_moved_is_listed_where_it_lives(tmp_path: Path) -> None:
    stores = two(f"sqlite:{tmp_path / 'main.db'}", tmp_path)
    async with serving(settings(stores)) as api:
        for n in range(6):
            await begin(api, f"s{n}")
        await begin(api, "gone")
        await api.ask("POST", "/sessions/gone/bundle/move?to=elsewhere")
    async with connect(stores["main"]) as here, connect(stores["archive"]) as there:
        for n in (0, 1, 2, 4):
            await copy_session(here, there, Scope("acme", f"s{n}"), move=True)
    async with serving(settings(stores)) as api:
        path = "/sessions?order=created&newest_first=false"
        assert await listed(api, f"{path}&limit=9") == [
            ["s3", "s5", "gone", "s0", "s1", "s2", "s4"],
        ]
        pages = await listed(api, f"{path}&limit=2")
        assert pages == [["s3", "s5"], ["gone", "s0"], ["s1", "s2"], ["s4"]]
        every = await listed(api, f"{path}&store=main&limit=9")
        assert every == [["s0", "s1", "s2", "s3", "s4", "s5", "gone"]]
        for id in ("s0", "s3"):
            found = await api("GET", f"/sessions/{id}")
            assert found["row"].get("sealed") is None
        assert (await api("GET", "/sessions/gone"))["row"]["sealed"] == "elsewhere"


# Sessions that only the missing store may have


async def test_an_id_that_a_store_may_have_is_in_doubt_while_it_is_away() -> None:
    stores = Several("main", "archive")
    async with serving(stores.settings()) as api:
        await begin(api, "known", ARCHIVE)
        await begin(api, "here")
        stores["archive"].away = True
        asks: list[tuple[Any, ...]] = [
            ("GET", "/sessions/nobody"),
            ("GET", "/sessions/known"),
            ("PUT", "/sessions/nobody", {}),
            ("PUT", "/sessions/known", {}),
            ("POST", "/sessions", {"id": "nobody"}),
            ("POST", "/sessions/nobody/messages", {"content": "Hello"}),
            ("DELETE", "/sessions/nobody"),
            ("POST", "/resolve", {"surface": "mail", "address": "new@example.com"}),
        ]
        for ask in asks:
            answer = await api.ask(*ask)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "store_unavailable"), ask
            assert error["retryable"]
            assert PLACE not in answer.text
        assert "archive" in error["fields"]["problem"]
        await api("GET", "/sessions/here")
        await api("PUT", "/sessions/here", {}, status=200)
        assert (await listed(api, "/sessions?limit=9")) == [["here"]]
        stores["archive"].away = False
        await api.answered(404, "GET", "/sessions/nobody")
        await begin(api, "nobody")
        assert (await api("PUT", "/sessions/known", {}))["store"] == "archive"


async def test_a_surface_that_a_store_may_have_is_in_doubt_for_as_long_as_it_is_away() -> None:
    stores = Several("main", "archive")
    about = {"surface": "mail", "address": "ann@example.com"}
    async with serving(stores.settings(unsure=0.001)) as api:
        stores["archive"].away = True
        for _ in range(2):
            await api.answered(503, "POST", "/resolve", about)
        stores["archive"].away = False
        wanted = time.monotonic() + 30
        while (await api.ask("POST", "/resolve", about)).status_code == 503:
            assert time.monotonic() < wanted
            await asyncio.sleep(0.1)


async def test_a_session_that_cannot_be_elsewhere_is_begun_all_the_same() -> None:
    stores = Several()
    async with serving(stores.settings()) as api:
        await begin(api, "there", {"store": {"kind": "other"}})
        stores["archive"].away = True
        new = await api("POST", "/sessions", {}, status=201)
        assert new["store"] == "main"
        named = {"store": {"kind": "main"}}
        await api("PUT", "/sessions/one", named, status=201)
        await api("PUT", "/sessions/one", named, status=200)
        await api("POST", "/sessions", {"id": "two", **named}, status=201)
        other = {"store": {"kind": "other"}}
        assert (await api("PUT", "/sessions/three", other, status=201))["store"] == "other"
        assert (await api("PUT", "/sessions/there", other, status=200))["store"] == "other"
        assert (await api("GET", "/sessions/there"))["store"] == "other"
        await api.fails("store_unavailable", "PUT", "/sessions/four", ARCHIVE)


async def test_the_doubt_ends_but_not_about_what_is_known_to_be_there() -> None:
    """Found there by nobody's entry, or moved there, it is not begun anew, however long."""
    stores = Several("main", "archive")
    main, archive = stores["main"].inner, stores["archive"].inner
    async with serving(stores.settings(unsure=0.05)) as api, asyncio.timeout(PATIENCE):
        for id in ("mover", "found"):
            await begin(api, id)
            await copy_session(main, archive, Scope("acme", id), move=id == "mover")
        await main.delete(Scope("acme", "found"))
        await begin(api, "entered", ARCHIVE)
        assert (await api("GET", "/sessions/found"))["store"] == "archive"
        stores["archive"].away = True
        await api.answered(201, "PUT", "/sessions/new", {})
        await api.fails("session_not_found", "GET", "/sessions/nobody")
        for id in ("found", "entered"):
            for method, body in (("GET", None), ("PUT", {})):
                await api.fails("store_unavailable", method, f"/sessions/{id}", body)
        await api.fails("session_moved", "POST", "/sessions/mover/messages", {"content": "Hello"})


async def test_nobody_waits_for_the_patience_of_a_store_that_may_have_a_session(
    tmp_path: Path,
) -> None:
    stores = {"main": f"sqlite:{tmp_path / 'm.db'}", "away": UNREACHABLE}
    limits = ServerLimits(rate=None, unsure_seconds=0.5)
    async with serving(settings(stores, limits=limits)) as api, asyncio.timeout(PATIENCE):
        await api.fails("store_unavailable", "GET", "/sessions/nobody")
        await api.answered(404, "GET", "/sessions/nobody")
        await begin(api, "new")


# The end


async def test_a_server_that_ends_gives_up_a_store_that_it_was_about_to_open(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()

    async def opening(options: Any) -> Store:
        begun.set()
        return await connect(UNREACHABLE.replace("=30", "=3000"))

    stores = {"main": f"sqlite:{tmp_path / 'm.db'}", "away": opening}
    async with asyncio.timeout(PATIENCE), serving(settings(stores)) as api:
        await begin(api, "one", {"store": {"kind": "main"}})
        asked = asyncio.create_task(api.ask("GET", "/sessions?store=away"))
        await begun.wait()
        await api.until("/sessions/one", lambda one: True)
        service_of(api.app).leave()  # as a signal would
        assert (await asked).status_code == 503


def test_a_process_that_is_told_to_end_does_not_wait_for_a_store(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    away = UNREACHABLE.replace("=30", "=3000")
    config.write_text(
        '[agents]\nshop = "shop:shop"\n[auth]\nkind = "none"\n'
        f'[stores]\nsqlite = "sqlite:x.db"\naway = "{away}"\n'
    )
    (tmp_path / "shop.py").write_text(PROGRAM)
    port = free_port()
    words = ["serve", "--config", str(config), "--port", str(port)]
    process = forks.popen(
        *("-m", "holdfast.cli", *words),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        page = _listed_by(process, f"http://127.0.0.1:{port}/v1/sessions")
        assert page["missing"] == ["away"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)


def _listed_by(process: subprocess.Popen[bytes], url: str) -> Any:
    """The list of a server, once it is there; by then it opens its second store."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url, timeout=60).json()
        time.sleep(0.05)
    raise AssertionError("the server did not come up")
