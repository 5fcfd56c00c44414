"""The client has the verbs, values and errors of the library."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AlreadyDecided, Ask, Delta, Event, InvalidValue, NotPending, SessionNotFound
from holdfast.client import Client, Stream
from holdfast.client.transport import address
from holdfast.errors import SessionMoved, Unauthorized, UnknownEngine, UnknownStore
from holdfast.values.display import Display

from ..server.scene import serving
from .scene import PATIENCE, SECRET, STORY, connected


async def test_a_message_is_answered_and_what_happened_can_be_read() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s", title="First")
        result = await session.send("Tell a story.")
        assert (result.status, result.text, result.session) == ("done", STORY, "s")
        assert [m.text for m in await session.transcript()] == ["Tell a story.", STORY]
        events = await session.events()
        assert [event.seq for event in events] == [*range(1, len(events) + 1)]
        assert [event.kind for event in await session.events(kinds=("run.finished",))] == [
            "run.finished"
        ]
        assert (await session.usage.get()).input_tokens == 7
        assert (await session.about()).row.title == "First"
        (row,) = (await client.list()).items
        assert row.session == "s"


@pytest.mark.parity("computeragent", "S13", "S20")
async def test_a_stream_shows_what_happens_and_has_the_result() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create()
        stream = session.stream("Tell a story.")
        with pytest.raises(InvalidValue, match="result"):
            _ = stream.result
        items = [item async for item in stream]
        kinds = [item.kind for item in items if isinstance(item, Event)]
        assert kinds[0] == "message.received"
        assert kinds[-1] == "run.finished"
        assert "".join(item.text for item in items if isinstance(item, Delta)) == STORY
        assert stream.result.text == STORY
        second = session.stream("Good day?")
        seen = [item.seq async for item in second if isinstance(item, Event)]
        assert seen[0] == second.seq
        assert second.result.text == "Good day."
        assert second.result is second.result


@pytest.mark.parity("computeragent", "S16", "S17")
async def test_a_name_that_is_nearly_right_is_guessed_and_the_right_one_works() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        with pytest.raises(UnknownStore, match="did you mean 'memory'"):
            await client.get_or_create("s", session_store={"kind": "memroy"})
        with pytest.raises(UnknownEngine, match="did you mean 'holdfast'"):
            await client.get_or_create("s", engine="holdfats")
        with pytest.raises(UnknownEngine) as unlike:
            await client.get_or_create("s", engine="xyzzy")
        assert "did you mean" not in str(unlike.value)
        with pytest.raises(SessionNotFound):
            await client.open("s")
        session = await client.get_or_create("s", session_store={"kind": "memory"})
        assert (await session.send("Good day?")).text == "Good day."


async def test_an_approval_is_given_once_and_by_whom_is_known() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        result = await session.send("Pay.")
        assert result.status == "waiting"
        (ask,) = result.pending
        assert isinstance(ask, Ask)
        assert await session.pending() == [ask]
        (waiting,) = (await client.pending(wait=5.0)).items
        assert (waiting.session, waiting.id) == ("s", ask.id)
        decision = await session.approve(arguments={"amount": 9})
        assert (decision.outcome, decision.by) == ("approved", "shared-secret")
        with pytest.raises(AlreadyDecided):
            await session.deny(ask.id)
        done = await session.wait()
        assert (done.status, done.text) == ("done", "Paid.")
        with pytest.raises(NotPending):
            await session.approve()
        (call,) = [c for m in await session.transcript() for c in m.calls]
        assert call.outcome is not None
        assert call.outcome.result == "paid 9"


async def test_the_inbox_tells_when_it_is_not_what_it_was() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        empty = await client.pending()
        assert empty.items == []
        waiting = asyncio.create_task(client.pending(wait=20.0, tag=empty.tag))
        await session.send("Pay.")
        page = await waiting
        assert [item.session for item in page.items] == ["s"]
        waiting = asyncio.create_task(client.pending(wait=20.0, tag=page.tag))
        await session.deny(reason="no")
        assert (await waiting).items == []


async def test_the_parts_of_a_session_are_read_and_changed() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        assert await session.mode.get() == "counter"
        assert await session.mode.switch("office") is True
        assert await session.mode.switch("office") is False
        assert await session.model.get() == "scripted/demo"
        assert await session.state.update(a=1, b=2) == {"a": 1, "b": 2}
        assert await session.state.drop("a") == {"b": 2}
        assert await session.state.replace({"c": 3}) == await session.state.get() == {"c": 3}
        await session.send("Pay.")
        first, second = await session.follow_ups.add("One."), await session.follow_ups.add("Two.")
        await session.follow_ups.reorder([second, first])
        await session.follow_ups.edit(second, "Second.")
        assert [q.text for q in await session.follow_ups.list()] == ["Second.", "One."]
        await session.follow_ups.remove(first)
        assert [q.seq for q in await session.follow_ups.list()] == [second]
        status = await session.status()
        assert (status.queued, status.pending, status.mode) == (1, 1, "office")
        await session.abort("enough")
        await session.wait()
        assert (await session.status()).phase == "idle"
        rules = await session.permissions.set(tool="pay", rule="deny")
        assert rules.tools == {"pay": "deny"}


async def test_threads_are_made_forked_and_removed() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        await session.send("Good day?")
        other = await session.threads.create("Other", id="other")
        assert (await other.send("Good day?")).thread == "other"
        forked = await session.threads.fork(title="Fork")
        assert [m.text for m in await forked.transcript()] == ["Good day?", "Good day."]
        await session.threads.rename("Another", "other")
        titles = {row.thread: row.title for row in (await session.threads.list()).items}
        assert titles == {"main": None, "other": "Another", forked.thread.id: "Fork"}
        await session.threads.delete("other")
        with pytest.raises(SessionNotFound):
            await session.threads.switch("other").status()


async def test_schedules_are_set_paused_resumed_and_removed() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        made = await session.schedules.set("check", message="Good day?", every=3_600)
        assert (made.name, made.every, made.missed, made.paused) == ("check", 3_600, "once", False)
        assert await session.schedules.list() == [made]
        assert (await session.schedules.pause("check")).paused
        assert (await session.display.get()).schedules["check"].paused
        assert await session.schedules.resume("check") == made
        assert await session.schedules.remove("check")
        assert not await session.schedules.remove("check")
        with pytest.raises(InvalidValue, match="60 or more"):
            await session.schedules.set("check", message="Good day?", every=-1)


async def test_a_display_is_fetched_once_and_then_made_of_what_happens() -> None:
    async with connected(delay=0.005) as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        seen: list[Display] = []
        changes = session.display.changes()
        async for display in changes:
            if not seen:
                await session.post("Tell a story.")
            seen.append(display)
            if display.phase == "idle" and display.run is not None:
                break
        await changes.aclose()
        assert seen[-1].message is not None
        assert seen[-1].message.text == STORY
        assert any(d.message and 0 < len(d.message.text) < len(STORY) for d in seen)
        assert await session.display.get() == seen[-1]


@pytest.mark.parity("user-demand", 24)
async def test_a_session_that_is_not_there_is_the_same_error_as_in_the_library() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        for call in (
            client.open("nobody"),
            client.session("nobody").send("Hello."),
            client.delete("nobody"),
            client.session("nobody").events(),
        ):
            with pytest.raises(SessionNotFound, match="nobody"):
                await call
        with pytest.raises(SessionNotFound):
            async for _ in client.session("nobody").follow():
                pass
        session = await client.get_or_create("s")
        await session.delete()
        with pytest.raises(SessionNotFound):
            await session.status()


async def test_a_stream_can_be_cancelled_before_during_and_while_it_waits_for_its_turn() -> None:
    async with connected(delay=0.05) as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        never = session.stream("Good day?")
        await never.cancel()
        assert [item async for item in never] == []
        assert never.result.status == "removed"
        stream = session.stream("Tell a story.")
        queued = session.stream("Good day?")
        async for item in stream:
            if isinstance(item, Delta) and queued.seq is None:
                reading = asyncio.create_task(_read(queued))
                await _accepted(queued)
                await queued.cancel()
                await stream.cancel("enough")
        assert stream.result.status == "aborted"
        await reading
        assert queued.result.status == "removed"


async def _read(stream: Stream) -> None:
    async for _ in stream:
        pass


async def _accepted(stream: Stream) -> None:
    while stream.seq is None:  # noqa: ASYNC110 - it does not tell
        await asyncio.sleep(0.01)


async def test_a_session_is_taken_along_as_a_bundle_and_a_person_is_given_what_is_theirs() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        await session.send("Tell a story.")
        data = await client.bundles.export("s", mode="local", purpose="copy")
        about = await client.bundles.validate(data, allow_secrets=True)
        assert (about.session, about.threads) == ("s", ["main"])
        moved = await client.bundles.move("s", to="elsewhere")
        assert (await client.bundles.validate(moved, allow_secrets=True)).purpose == "move"
        with pytest.raises(SessionMoved):
            await session.send("More.")
        await session.delete()
        assert (await client.bundles.load(data)).session == "s"
        assert [m.text for m in await session.transcript()] == ["Tell a story.", STORY]
        found = [record async for record in client.people.export("shared-secret")]
        assert {record.session for record in found} == {"s"}
        erased = await client.people.erase("shared-secret", reason="asked for")
        assert [*erased.sessions] == ["s"]
        assert [record async for record in client.people.export("of/another name")] == []
        assert (await client.list()).items == []


async def test_surfaces_find_the_session_again() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.resolve("chat", "room-1")
        await session.surfaces.attach("mail", "ann@example.com")
        shown = {(one.surface, one.address) for one in await session.surfaces.list()}
        assert ("mail", "ann@example.com") in shown
        assert (await client.resolve("mail", "ann@example.com")).id == session.id
        left = await session.surfaces.detach("mail", "ann@example.com")
        assert ("mail", "ann@example.com") not in {(one.surface, one.address) for one in left}


async def test_a_wrong_key_is_refused_and_no_key_is_ever_shown() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        url = client._transport._urls[0]
        wrong = type(client)(url, "hk_a-wrong-key-of-somebody")
        session = wrong.session("s")
        with pytest.raises(Unauthorized) as refused:
            await session.status()
        await wrong.aclose()
        shown = [repr(x) for x in (wrong, session, refused.value, wrong._transport)]
        assert not any("hk_a-wrong" in text for text in [*shown, str(refused.value)])
        assert SECRET not in repr(client)
        for bad in ("http://user:hk_secret@host", "host", "http://host?key=hk_secret", ""):
            with pytest.raises(InvalidValue) as invalid:
                type(client)(bad)
            assert "hk_secret" not in str(invalid.value)
        with pytest.raises(InvalidValue) as invalid:
            type(client)(url, "hk_secret\r\nx: y")
        assert "hk_secret" not in str(invalid.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x"])
async def test_a_name_leads_nowhere_else(name: str) -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        with pytest.raises(InvalidValue, match="path"):
            await session.thread.delete(name)
        with pytest.raises(InvalidValue, match="path"):
            await session.thread.rename("x", name)
        with pytest.raises(InvalidValue, match="path"):
            await client.get_or_create(name)
        with pytest.raises(InvalidValue, match="path"):
            await client.delete(name)
        assert (await session.about()).row.title is None


async def test_the_address_is_that_of_the_server_or_of_its_routes() -> None:
    async with serving() as api:
        for url in (api.url, f"{api.url}/", f"{api.url}/v1", f"{api.url}/v1/"):
            async with Client(url, "ann@acme") as client:
                assert (await client.get_or_create("one")).id == "one"


def test_an_id_is_given_where_a_session_is_asked_for() -> None:
    about: Any = {"session_id": "one"}
    with pytest.raises(InvalidValue, match="get_or_create"):
        Client("http://127.0.0.1:1", **about)


def test_only_the_path_of_an_address_loses_its_version() -> None:
    given = (
        "http://v1",
        "https://v1/",
        "http://host/v1",
        "http://host/base/v1/",
        "http://host/v1x",
    )
    assert [address(url) for url in given] == [
        *("http://v1", "https://v1", "http://host", "http://host/base", "http://host/v1x"),
    ]


async def test_a_conversation_is_rewound_and_its_display_starts_afresh() -> None:
    async with connected() as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        await session.send("Tell a story.")
        before = await session.display.get()
        assert before.message is not None
        shown = session.display.changes()
        await anext(shown)
        seq = await session.rewind(0)
        fresh = await anext(shown)
        await shown.aclose()
        assert (fresh.message, fresh.run, fresh.head) == (None, None, seq)
        assert fresh == await session.display.get()
        assert await session.transcript() == []
        assert [event.seq for event in await session.events(kinds=("thread.rewound",))] == [seq]
        with pytest.raises(InvalidValue, match="to"):
            await session.rewind(seq + 5)
