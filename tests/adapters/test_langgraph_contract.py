"""The promises of LangGraph's checkpointer on every kind of store: odd values, lost replies,
several writers, long threads, and what deletes and exports leave."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from holdfast import Store, Vault, connect, export_bundle, key
from holdfast.adapters import retries
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.thread import CHECKPOINT, WRITES
from holdfast.log.events import Event
from holdfast.testing.adapter_contract import ODD
from holdfast.testing.faults import Fail, FaultyStore

from .conftest import URLS

ODD_VALUES = {
    **ODD,
    "NaN": float("nan"),
    "infinite": -float("inf"),
    "tuple": (1, ("a",)),
    "bytes": b"x",
}
NOT_IN_MESSAGES = ("tuple", "bytes")  # LangGraph's serializer changes these in a message
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
PHRASE = "canary-of-7f3a"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)


@pytest.fixture(params=[*URLS, "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    vault = Vault([Vault.new_key("first")]) if request.param == "vault" else None
    url = URLS["sqlite" if vault else request.param](tmp_path)
    async with connect(url, vault=vault) as store:
        yield store


class Thread:
    """Writes checkpoints of a thread as a graph does; each one follows the last."""

    def __init__(self, saver: HoldfastSaver, name: str, run: str | None = None) -> None:
        self.saver, self.run = saver, run
        self.config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self.versions: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    async def put(self, **changes: Any) -> str:
        """Write a checkpoint, and return its id."""
        new = {
            channel: self.saver.get_next_version(self.versions.get(channel), None)
            for channel in changes
        }
        self.versions |= new
        self.values |= changes
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = dict(self.values)
        checkpoint["channel_versions"] = dict(self.versions)
        metadata: Any = {"source": "loop", "step": 0, "parents": {}}
        if self.run:
            metadata["run_id"] = self.run
        self.config = await self.saver.aput(self.config, checkpoint, metadata, new)
        return str(checkpoint["id"])

    async def writes(self, *writes: tuple[str, Any], task: str = "task") -> None:
        await self.saver.aput_writes(self.config, writes, task)


def at(name: str, id: str | None = None) -> Any:
    place = {"thread_id": name, "checkpoint_ns": ""}
    return {"configurable": place | ({"checkpoint_id": id} if id else {})}


async def loaded(store: Store, name: str, id: str | None = None) -> Any:
    """Return the values of a checkpoint, as another process reads them."""
    found = await HoldfastSaver(store).aget_tuple(at(name, id))
    return None if found is None else found.checkpoint["channel_values"]


async def events(store: Store, name: str) -> list[Event]:
    return [event async for event in store.read(key(name))]


@pytest.mark.parametrize("name", ODD_VALUES)
async def test_odd_value_comes_back_equal_everywhere(store: Store, name: str) -> None:
    value = ODD_VALUES[name]
    saver = HoldfastSaver(store)
    thread = Thread(saver, "odd")
    kept = {"value": None if name in NOT_IN_MESSAGES else value}
    said = AIMessage("said", id="m", additional_kwargs=kept)
    await thread.put(plain=value, listed=["before", value, "after"], messages=[said])
    await thread.writes(("plain", value), ("listed", [value]))
    for reader in (saver, HoldfastSaver(store)):
        found = await reader.aget_tuple(at("odd"))
        assert found is not None
        values = found.checkpoint["channel_values"]
        assert repr(values["plain"]) == repr(value)
        assert repr(values["listed"]) == repr(["before", value, "after"])
        assert repr(values["messages"][0].additional_kwargs) == repr(kept)
        assert [repr(write[2]) for write in found.pending_writes or []] == [
            repr(value),
            repr([value]),
        ]


async def test_values_that_a_graph_changes_later_stay_as_they_were_stored(store: Store) -> None:
    saver = HoldfastSaver(store)
    thread = Thread(saver, "changed")
    said = HumanMessage([{"type": "text", "text": "a"}], id="m", additional_kwargs={"a": {"b": 1}})
    first = {"inner": [1]}
    stored = copy.deepcopy({"state": first, "messages": [said], "listed": [first]})
    id = await thread.put(state=first, messages=[said], listed=[first])

    def change(values: Any) -> None:
        values["state"]["inner"].append(2)
        values["listed"][0]["inner"].append(2)
        values["listed"].append(3)
        values["messages"][0].additional_kwargs["a"]["b"] = 2
        values["messages"][0].content[0]["text"] = "b"

    for reader in (saver, saver, HoldfastSaver(store)):
        found = await reader.aget_tuple(at("changed", id))
        assert found is not None
        assert found.checkpoint["channel_values"] == stored
        change(found.checkpoint["channel_values"])
        found.checkpoint["channel_versions"]["state"] = 99
        found.checkpoint["versions_seen"]["node"] = {"state": 99}
        found.metadata["parents"]["a"] = "b"
    change(thread.values)
    found = await saver.aget_tuple(at("changed"))
    assert found is not None
    assert found.checkpoint["channel_values"] == stored
    assert found.checkpoint["channel_versions"] == thread.versions
    assert (found.checkpoint["versions_seen"], found.metadata["parents"]) == ({}, {})


async def test_two_writers_of_a_thread_keep_all_checkpoints_of_both(store: Store) -> None:
    async def write(name: str) -> dict[str, Any]:
        thread = Thread(HoldfastSaver(store), "two")
        ids = {}
        for number in range(8):
            id = await thread.put(listed=[f"{name} {n}" for n in range(number + 1)])
            await thread.writes(("listed", [f"{name} {number}"]), task=name)
            ids[id] = thread.values["listed"]
        return ids

    both = await asyncio.gather(write("a"), write("b"))
    expected = both[0] | both[1]
    saver = HoldfastSaver(store)
    found = [each async for each in saver.alist(at("two"))]
    assert [each.checkpoint["id"] for each in found] == sorted(expected, reverse=True)
    for each in found:
        listed = each.checkpoint["channel_values"]["listed"]
        assert listed == expected[each.checkpoint["id"]]
        assert [write[2] for write in each.pending_writes or []] == [[listed[-1]]]
    assert await loaded(store, "two") == {"listed": expected[max(expected)]}


@pytest.mark.parametrize("after", [True, False])
async def test_lost_reply_changes_nothing(store: Store, after: bool) -> None:
    for call in range(1, 7):
        faulty = FaultyStore(store, [Fail(method="append", call=call, after=after)])
        name = f"lost {call} {after}"
        thread = Thread(HoldfastSaver(faulty), name)
        for number in range(3):
            await thread.put(messages=[HumanMessage(f"{n}", id=f"{n}") for n in range(number + 1)])
            await thread.writes(("messages", number))
        kinds = [event.kind for event in await events(store, name)]
        counts = [kinds.count(kind) for kind in (CHECKPOINT, WRITES, "message.received")]
        assert counts == [3, 3, 3]
        assert await loaded(store, name) == thread.values
        found = await HoldfastSaver(store).aget_tuple(at(name))
        assert found is not None
        assert found.pending_writes == [("task", "messages", 2)]


@pytest.mark.parametrize("method", ["row", "read", "seqs"])
async def test_failed_read_of_the_store_is_repeated(store: Store, method: str) -> None:
    await Thread(HoldfastSaver(store), "reads").put(listed=[1, 2])
    faults = [Fail(method=method, call=call, after=False) for call in (1, 2)]
    found = await HoldfastSaver(FaultyStore(store, faults)).aget_tuple(at("reads"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"listed": [1, 2]}


async def test_threads_at_once_do_not_mix(store: Store) -> None:
    saver = HoldfastSaver(store)

    async def turns(name: str) -> Any:
        thread = Thread(saver, name)
        for number in range(4):
            await thread.put(listed=[f"{name} {n}" for n in range(number + 1)])
        return thread.values

    names = [f"{n}/x" for n in range(8)] + ["a:b", "a", "a%2Fb"]
    values = await asyncio.gather(*map(turns, names))
    assert [await loaded(store, name) for name in names] == values
    assert len([each async for each in saver.alist(None)]) == 4 * len(names)


class CountingStore(FaultyStore):
    """Counts the events that are read, too."""

    read_events = 0

    async def _stream(self, method: str, inner: Any) -> AsyncGenerator[Any, None]:
        async for item in super()._stream(method, inner):
            self.read_events += 1
            yield item


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
async def test_thread_of_600_checkpoints_opens_without_reading_its_log(
    kind: str, tmp_path: Path
) -> None:
    async with connect(
        URLS[kind](tmp_path) + ("" if kind == "memory" else "?durability=process")
    ) as store:
        thread = Thread(HoldfastSaver(store), "long")
        ids, messages = [], []
        for number in range(600):
            messages.append(HumanMessage(f"{number}", id=f"{number}"))
            ids.append(await thread.put(count=number, messages=[*messages[-50:]]))
        counting = CountingStore(store)
        saver = HoldfastSaver(counting)
        for id, number in ((None, 599), (ids[300], 300), (ids[0], 0)):
            counting.calls.clear()
            counting.read_events = 0
            found = await saver.aget_tuple(at("long", id))
            assert found is not None
            values = found.checkpoint["channel_values"]
            assert values["count"] == number
            assert [m.content for m in values["messages"]] == [
                f"{n}" for n in range(max(0, number - 49), number + 1)
            ]
            assert counting.read_events < 400
            assert sum(counting.calls.values()) < 20
        newest = [each.checkpoint["id"] async for each in saver.alist(at("long"), limit=3)]
        assert newest == ids[:-4:-1]
        before = saver.alist(at("long"), before=at("long", ids[5]))
        assert [each.checkpoint["id"] async for each in before] == ids[4::-1]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "file"])
async def test_new_saver_reads_a_long_list_once(kind: str, tmp_path: Path) -> None:
    async with connect(
        URLS[kind](tmp_path) + ("" if kind == "memory" else "?durability=process")
    ) as store:
        thread = Thread(HoldfastSaver(store), "long")
        messages: list[Any] = []
        for number in range(600):
            messages += [
                HumanMessage(f"{number}", id=f"{number}"),
                AIMessage("ok", id=f"a{number}"),
            ]
            await thread.put(messages=[*messages])
        counting = CountingStore(store)
        found = await HoldfastSaver(counting).aget_tuple(at("long"))
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == messages
        assert counting.read_events <= len(await events(store, "long")) + 40
        assert sum(counting.calls.values()) < 10


async def test_message_that_was_changed_in_place_is_stored_again(store: Store) -> None:
    saver = HoldfastSaver(store)
    thread = Thread(saver, "changed")
    messages = [HumanMessage(f"{number}", id=f"{number}") for number in range(4)]
    await thread.put(messages=[*messages])
    messages[2].content = "new"
    messages[3].additional_kwargs["a"] = 1
    await thread.put(messages=[*messages])
    assert (await loaded(store, "changed"))["messages"] == messages


async def canaries(store: Store) -> Thread:
    """Write a thread that has the phrase in every place that holds something of a user."""
    thread = Thread(HoldfastSaver(store), "person", run="run-1")
    await thread.put(
        state={"text": PHRASE},
        listed=[PHRASE],
        messages=[HumanMessage(PHRASE, id="1"), AIMessage(PHRASE, id="2")],
    )
    await thread.writes(("state", PHRASE), ("other", (PHRASE, 1)))
    return thread


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("how", ["delete_thread", "delete_for_runs", "prune"])
async def test_deleted_content_is_in_no_file(kind: str, how: str, tmp_path: Path) -> None:
    async with connect(URLS[kind](tmp_path)) as store:
        thread = await canaries(store)
        if how == "delete_thread":
            await thread.saver.adelete_thread("person")
            assert await loaded(store, "person") is None
        elif how == "delete_for_runs":
            await thread.saver.adelete_for_runs(["run-1"])
            assert await loaded(store, "person") is None
        else:
            await thread.put(state="new", listed=[], messages=[])
            await thread.saver.aprune(["person"])
            assert await loaded(store, "person") == {"state": "new", "listed": [], "messages": []}
    assert files_with(PHRASE, tmp_path) == []


def files_with(text: str, folder: Path) -> list[str]:
    files = [path for path in [folder, *folder.rglob("*")] if path.is_file()]
    assert files
    return [path.name for path in files if text.encode() in path.read_bytes()]


async def test_sanitized_export_has_no_secret_of_a_checkpoint(store: Store, tmp_path: Path) -> None:
    thread = Thread(HoldfastSaver(store), "secret")
    text = f"token {TOKEN}"
    await thread.put(
        state={"text": text, "keys": [text]},
        listed=[text, {"in": text}],
        messages=[HumanMessage(text, id="1"), AIMessage("ok", additional_kwargs={"k": text})],
    )
    await thread.writes(("state", text), ("other", (text, {"in": [text]})))
    await export_bundle((store, key("secret").scope), "sanitized", to=tmp_path / "out.json")
    assert files_with("langgraph.checkpoint", tmp_path / "out.json")
    assert not files_with(TOKEN, tmp_path / "out.json")
