"""Stores that were written before there were links: they open, go on, are sound, and what is added
to them is bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast import Key, Store
from tests.compat.test_corpus import CORPORA
from tests.compat.write import STORES, copy

from .places import InFiles, InSqlite, Place
from .scene import fork, note, row_of, told
from .tampering import Log, changed

pytestmark = pytest.mark.parity("user-demand", 65)

# Those that come later may have them.
WITHOUT_LINKS = [path for path in CORPORA if path.name <= "0004"]
CASES = [(corpus, kind) for corpus in WITHOUT_LINKS for kind in (*STORES, "file without index")]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].name} {case[1]}")
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    corpus, kind = request.param
    stored = kind.partition(" ")[0]
    copy(corpus / STORES[stored], tmp_path / STORES[stored])
    if stored == "sqlite":
        return InSqlite(tmp_path)
    return InFiles(tmp_path, index=kind == "file")


@pytest.fixture
def names(place: Place, request: pytest.FixtureRequest) -> list[Key]:
    """The logs that can go on."""
    corpus, kind = request.node.callspec.params["place"]
    expected = msgspec.json.decode((corpus / "expected.json").read_bytes())
    logs = expected[kind.partition(" ")[0]]["says"]["logs"]
    open = [log for log in logs if log["row"].get("sealed") is None]
    return [msgspec.convert(log["key"], Key) for log in open]


async def extended(store: Store, names: list[Key]) -> dict[Key, tuple[str, int]]:
    """Three more events in each log, and a fork of it; the log, and where it ended before."""
    logs = {}
    for name in names:
        row = await row_of(store, name)
        assert row.link is None
        logs[name] = row.log, row.head
        await store.append(name, [note(1), note(2)])
        await fork(store, name, f"of-{name.thread}", row.head)
        await store.append(name, [note(3)])
        assert (await row_of(store, name)).link is not None
    return logs


async def test_it_opens_goes_on_and_is_sound(place: Place, names: list[Key]) -> None:
    async with place.opened() as store:
        assert await told(store) == {}
        logs = await extended(store, names)
        assert await told(store) == {}
        for name, (_, head) in logs.items():
            await store.erase(name, [1, head, head + 1], reason="asked to")
        assert await told(store) == {}
    async with place.opened() as store:
        assert await told(store) == {}


# What is done to the first, second and third event behind a number
WAYS: list[Callable[[Log, int], Log]] = [
    lambda log, head: changed(log, head + 1, actor="mallory the intruder"),
    lambda log, head: changed(log, head + 2, actor="mallory the intruder"),
    lambda log, head: changed(log, head + 3, data={"n": "another"}),
]


async def test_what_was_added_is_bound(place: Place, names: list[Key]) -> None:
    async with place.opened() as store:
        logs = await extended(store, names)
    for n, how in enumerate(WAYS, 1):
        wholes = {log: await place.taken(log) for log, _ in logs.values()}
        for log, head in logs.values():
            await place.put(how(wholes[log], head))
        async with place.opened() as store:
            found = [one for some in (await told(store)).values() for one in some]
            wanted = [("broken", name.thread, head + n) for name, (_, head) in logs.items()]
            assert sorted(found) == sorted(wanted)
        for whole in wholes.values():
            await place.put(whole)
        async with place.opened() as store:
            assert await told(store) == {}
