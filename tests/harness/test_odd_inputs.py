"""What a program gives that it should not: refused with the field and the remedy, before anything
is written; and asking again what was asked before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Agent, Harness, HarnessClosed, InvalidValue, Media, tool
from holdfast.harness.session.session import Session
from holdfast.models import Say, ScriptedModel, Use
from holdfast.values.options import Content

from .kernel.scene import Slow, only, read

NAN = float("nan")
PNG = b"\x89PNG"


class Order(msgspec.Struct):
    number: int


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    return "paid"


def served(*steps: Any, **settings: Any) -> Harness:
    model = ScriptedModel(steps or ("hi",), per_turn=True, repeat=True)
    agent = Agent("desk", instructions="Help.", tools=[pay])
    return Harness(agent, **{"default_model": model, **settings})


# What is refused

ODD: dict[str, tuple[str, Callable[[Any, Any], Awaitable[Any]]]] = {
    "send(None)": ("content", lambda h, s: s.send(None)),
    "send(5)": ("content", lambda h, s: s.send(5)),
    "send(dict)": ("content", lambda h, s: s.send({"a": 1})),
    "send(bytes)": ("content", lambda h, s: s.send(b"x")),
    "send([5])": ("content", lambda h, s: s.send(["x", 5])),
    "post(None)": ("content", lambda h, s: s.post(None)),
    "harness.send(None)": ("content", lambda h, s: h.send("s", None)),
    "metadata": ("metadata", lambda h, s: s.send("x", metadata=[1])),
    "metadata names": ("metadata", lambda h, s: s.send("x", metadata={1: 2})),
    "actor": ("actor", lambda h, s: s.send("x", actor=5)),
    "key": ("key", lambda h, s: s.send("x", key=5)),
    "busy": ("busy", lambda h, s: s.send("x", busy="never")),
    "model": ("model", lambda h, s: s.send("x", model=5)),
    "option of send": ("kye", lambda h, s: s.send("x", kye="a")),
    "option of post": ("kye", lambda h, s: s.post("x", kye="a")),
    "option of harness.send": ("kye", lambda h, s: h.send("new", "x", kye="a")),
    "option of harness.stream": ("kye", lambda h, s: h.stream("new", "x", kye="a")),
    "get_or_create(5)": ("id", lambda h, s: h.get_or_create(5)),
    "open(None)": ("id", lambda h, s: h.open(None)),
    "delete(5)": ("id", lambda h, s: h.delete(5)),
    "labels": ("labels", lambda h, s: h.get_or_create("n", labels="vip")),
    "metadata of a session": ("metadata", lambda h, s: h.get_or_create("n", metadata=[1])),
    "timer nan": ("seconds", lambda h, s: s.timers.set("t", seconds=NAN)),
    "timer inf": ("seconds", lambda h, s: s.timers.set("t", seconds=float("inf"))),
    "timer x": ("seconds", lambda h, s: s.timers.set("t", seconds="x")),
    "timer far": ("at", lambda h, s: s.timers.set("t", seconds=1e300)),
    "timer text": ("text", lambda h, s: s.timers.set(None, seconds=1)),
    "timer metadata": ("metadata", lambda h, s: s.timers.set("t", seconds=1, metadata=[1])),
    "state": ("state", lambda h, s: s.state.update(a=object())),
    "state nan": ("state", lambda h, s: s.state.update(a=NAN)),
    "state list": ("state", lambda h, s: s.state.replace([1])),
    "seed short": ("messages", lambda h, s: s.seed([("user",)])),
    "seed number": ("messages", lambda h, s: s.seed([("user", 5)])),
    "seed text": ("messages", lambda h, s: s.seed("hello")),
    "seed role": ("messages", lambda h, s: s.seed([("system", "x")])),
    "edit text": ("text", lambda h, s: s.threads.edit(2, None)),
    "regenerate 0": ("seq", lambda h, s: s.threads.regenerate(0)),
    "regenerate 1": ("seq", lambda h, s: s.threads.regenerate(1)),
    "regenerate 99": ("seq", lambda h, s: s.threads.regenerate(99)),
    "edit 1": ("seq", lambda h, s: s.threads.edit(1, "x")),
}


@pytest.mark.parametrize("name", ODD)
async def test_it_is_refused_by_name(name: str) -> None:
    field, call = ODD[name]
    async with served() as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue) as caught:
            await call(harness, session)
        assert caught.value.field == field
        assert caught.value.remedy
        assert [row.session for row in (await harness.list()).items] == ["s"]
        assert session.status.head == 1


async def test_an_option_that_there_is_not_is_refused_before_a_stream_is_read() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        with pytest.raises(InvalidValue, match="kye"):
            session.stream("x", kye="a")  # type: ignore[call-arg]


async def test_what_a_message_may_be() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        picture = Media(PNG, "image/png")
        contents: list[Content] = ["x", ["x", "y"], ("x",), picture, ["x", picture]]
        for content in contents:
            assert (await session.send(content)).status == "done"


async def test_a_message_is_named_once_in_an_order() -> None:
    model = Slow(quick=["a", "b", "c"])
    async with served(default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await model.gate.someone()
        a, _, c = [await session.post(text) for text in "abc"]
        with pytest.raises(InvalidValue) as caught:
            await session.queue.reorder([c, c, a])
        assert caught.value.field == "seqs"
        assert [item.text for item in await session.queue.list()] == ["a", "b", "c"]
        model.gate.open()
        await session.wait()


async def test_blanks_around_an_id_do_not_count() -> None:
    async with served() as harness:
        session = await harness.get_or_create(" pad ")
        assert session.id == "pad"
        assert harness.get(" pad ") is session
        assert await harness.open("pad ") is session
        assert (await harness.delete(" pad ")).removed["logs"] == 1
        assert harness.get("pad") is None


async def test_a_listener_is_a_plain_function() -> None:
    async def listen(event: str, id: str, value: Any) -> None: ...

    class Listens:
        async def __call__(self, event: str, id: str, value: Any) -> None: ...

    async with served() as harness:
        for bad in (listen, Listens(), None, "print"):
            with pytest.raises(InvalidValue) as caught:
                harness.subscribe(bad)  # type: ignore[arg-type]
            assert caught.value.field == "listener"
        heard: list[str] = []
        harness.subscribe(lambda event, id, value: heard.append(event))
        await harness.get_or_create("s")
        assert "session.created" in heard


async def test_a_result_is_there_when_the_stream_was_read() -> None:
    async with served() as harness:
        stream = (await harness.get_or_create("s")).stream("x")
        with pytest.raises(InvalidValue, match="before the stream has ended"):
            _ = stream.result
        async for _ in stream:
            pass
        assert stream.result.text == "hi"


OF_HARNESS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("get_or_create", "open", "delete", "close", "approve", "deny"), ("s",)),
    **dict.fromkeys(("send", "stream", "answer"), ("s", "x")),
    **dict.fromkeys(("list", "pending", "close_all", "start"), ()),
    "delete_thread": ("s", "t"),
}
OF_SESSION: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("send", "post", "answer", "mode.switch", "timers.clear"), ("x",)),
    **dict.fromkeys(("wait", "abort", "pending", "approve", "deny", "close"), ()),
    **dict.fromkeys(("transcript", "events", "usage_all", "usage.by_run", "approval.list"), ()),
    **dict.fromkeys(("checkpoints.create", "checkpoints.list", "queue.list", "model.clear"), ()),
    **dict.fromkeys(("threads.create", "threads.list", "threads.get", "threads.messages"), ()),
    **dict.fromkeys(("threads.fork", "threads.clone", "threads.first_user_messages"), ()),
    **dict.fromkeys(("threads.rename", "threads.delete", "threads.switch"), ("x",)),
    **dict.fromkeys(("threads.restore", "checkpoints.delete", "grant_tool"), ("x",)),
    **dict.fromkeys(("threads.regenerate", "queue.remove"), (2,)),
    **dict.fromkeys(("state.update", "state.replace", "threads.settings.set"), ({"a": 1},)),
    **{"emit": ("a.b",), "seed": ([("user", "x")],), "extend": ("x", 1)},
    **{"threads.edit": (2, "x"), "timers.set": ("x",), "queue.reorder": ([2],)},
    "model.set": ("scripted/demo",),
}


async def test_nothing_is_done_after_the_end() -> None:
    harness = served()
    await harness.start()
    session = await harness.get_or_create("s")
    await session.send("x")
    await harness.aclose()
    verbs: list[Any] = [(harness, *each) for each in OF_HARNESS.items()]
    verbs += [(session, *each) for each in OF_SESSION.items()]
    for whose, name, given in verbs:
        named = {"seconds": 1} if name == "timers.set" else {}
        try:
            found = await attrgetter(name)(whose)(*given, **named)
        except HarnessClosed:
            continue
        except Exception as error:
            found = error
        pytest.fail(f"{name} came to {found!r}")
    with pytest.raises(HarnessClosed):
        harness.subscribe(print)
    with pytest.raises(HarnessClosed):
        session.subscribe()
    assert session.status.phase == "closed"
    await harness.aclose()


# Typed answers


@pytest.mark.parametrize("given", [None, Order])
async def test_waiting_knows_the_type_of_the_answer(given: Any) -> None:
    steps = [Say(calls=[Use("pay")]), Say(calls=[Use("final_result", value={"number": 3})])]
    async with served(*steps) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go", output_type=Order)).status == "waiting"
        await session.approve()
        result = await session.wait(given)
        assert result.output == Order(3)
        again = await session.threads.regenerate(2)
        assert (await again.wait()).status == "waiting"
        await again.approve()
        assert (await again.wait()).output == Order(3)


async def test_elsewhere_the_type_is_given(tmp_path: Path) -> None:
    steps = [Say(calls=[Use("pay")]), Say(calls=[Use("final_result", value={"number": 3})])]
    storage = f"sqlite:{tmp_path}/x.db"
    async with served(*steps, store=storage) as harness:
        await harness.send("s", "go", output_type=Order)
    async with served(*steps, store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.approve()
        assert (await session.wait()).output == {"number": 3}
        assert (await session.wait(Order)).output == Order(3)


# Asking again


async def test_what_is_asked_again_comes_with_all_that_it_came_with() -> None:
    async with served() as harness:
        session = await harness.get_or_create("s")
        seq = await session.post(
            ["look", Media(PNG, "image/png", "x.png")],
            metadata={"n": 1},
            model="scripted/demo",
            limits={"steps": 7},
            actor="ann",
            output_type=Order,
        )
        await session.abort()
        await session.wait()
        sent = (await session.events(kinds=("message.received",)))[0]
        assert sent.seq == seq
        again = await session.threads.regenerate(seq)
        edited = await session.threads.edit(seq, "see")
        for fork, text in ((again, "look"), (edited, "see")):
            await fork.abort()
            got = next(e for e in await fork.events() if e.kind == sent.kind)
            assert got.json() == {**sent.json(), "text": text}
            assert (got.actor, got.id != sent.id) == ("ann", True)


async def busy(session: Session, model: Slow, how: Any = "queue") -> tuple[int, int]:
    """Two messages that came while a run was going, and were read after it, or in it."""
    await session.post("first")
    await model.gate.someone()
    seqs = [await session.post(text, busy=how) for text in ("second", "third")]
    return seqs[0], seqs[1]


async def test_a_message_that_had_to_wait_is_asked_where_it_was_read() -> None:
    model = Slow(quick=["second", "2nd", "third", "other"])
    async with served(default_model=model) as harness:
        session = await harness.get_or_create("s")
        second, third = await busy(session, model)
        await session.queue.edit(second, "2nd")
        model.gate.open()
        await session.wait()
        before = await session.events()

        again = await session.threads.regenerate(second)
        assert (await again.wait()).text == "quick 2nd"
        assert read(model.calls[-1]) == ["user: first", "model: Let me see.", "user: 2nd"]
        said = [(m.role, m.text) for m in await again.transcript()]
        assert said == [
            *(("user", "first"), ("assistant", "Let me see.")),
            *(("user", "2nd"), ("assistant", "quick 2nd")),
        ]

        edited = await session.threads.edit(third, "other")
        assert (await edited.wait()).text == "quick other"
        assert read(model.calls[-1])[-3:] == ["user: 2nd", "model: quick 2nd", "user: other"]
        texts = [m.text for m in await edited.transcript() if m.role == "user"]
        assert texts == ["first", "2nd", "other"]
        assert [m.text for m in await edited.threads.messages(2)] == ["other", "quick other"]
        assert await session.events() == before


async def test_a_message_that_joined_a_run_is_asked_after_what_began_it() -> None:
    model = Slow(quick=["second", "third", "second | third"])
    async with served(default_model=model) as harness:
        session = await harness.get_or_create("s")
        second, _ = await busy(session, model, "steer")
        model.gate.open()
        await session.wait()
        again = await session.threads.regenerate(second)
        await again.wait()
        texts = [m.text for m in await again.transcript() if m.role == "user"]
        assert texts == ["first", "second"]
        assert "user: second" in read(model.calls[-1])
        assert not any("third" in line for line in read(model.calls[-1]))


async def test_what_was_removed_is_not_shown() -> None:
    model = Slow(quick=["second", "third"])
    async with served(default_model=model) as harness:
        session = await harness.get_or_create("s")
        second, _ = await busy(session, model)
        await session.queue.remove(second)
        model.gate.open()
        await session.wait()
        users = [m.text for m in await session.transcript() if m.role == "user"]
        assert users == ["first", "third"]
        assert (await session.threads.messages(4))[0].text == "first"
        assert len(only(await session.events(), "message.received")) == 3


# Types


async def typed(harness: Harness) -> None:
    """Never called: that the last four are found by a type checker, `scripts/check` sees."""
    session = await harness.get_or_create("s")
    await session.send("x", limits={"steps": 3}, busy="steer", key="k", actor="a", metadata={})
    await session.send(["x", Media(b"", "image/png")], model="a/b", output_type=int)
    await session.send("x", busy="nonsense")  # type: ignore[arg-type]
    await session.post("x", kye="typo")  # type: ignore[call-arg]
    session.stream("x", key=5)  # type: ignore[arg-type]
    await harness.send("s", ["x", b"bytes"])  # type: ignore[list-item]
