"""The parts of a session that say where it stands, and the short ways to decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, InvalidValue
from holdfast.harness.session.session import core_of
from holdfast.models import Fail, Say, ScriptedModel, Use
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.stores import connect
from holdfast.values.usage import Usage, by_model, normalised, usage_of

from ..kernel.scene import Gate, Slow, helper, kinds, read, until
from .stage import says, workshop


def served(*steps: Any, **settings: Any) -> Harness:
    settings.setdefault("default_model", ScriptedModel(steps, per_turn=True))
    return Harness(settings.pop("agent", None) or workshop(), **settings)


# Who it is


async def test_it_says_who_it_is_in_any_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'i.db'}"
    for _ in range(2):
        async with served("Hi.", store=url, tenant="acme") as harness:
            session = await harness.get_or_create("s", user="ann")
            who = session.identity
            assert (who.session, who.thread, who.tenant) == ("s", "main", "acme")
            assert (who.user, who.resource, who.owner) == ("ann", "ann", "workshop")
            nobody = await harness.get_or_create("t", thread="side")
            assert (nobody.identity.user, nobody.identity.resource) == (None, "t")
            assert nobody.identity.thread == "side"


# What runs


@pytest.mark.parity("mastra-session", 106, 107)
async def test_a_run_has_an_id_while_it_goes_or_waits() -> None:
    model = Slow()
    async with served(default_model=model, agent=helper()) as harness:
        session = await harness.get_or_create("s")

        def stands() -> tuple[Any, ...]:
            stream, run = session.stream, session.run
            ids = {run.id, stream.active_run_id, session.current_run_id}
            assert len(ids) == 1
            assert stream.is_active == (run.id is not None)
            return run.id, run.is_running

        assert stands() == (None, False)
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        id, running = stands()
        assert running
        assert id is not None
        assert session.run.trace_id is None  # nothing is traced here
        await session.stream.abort()
        result = await sending
        assert (result.status, result.run) == ("aborted", id)
        assert stands() == (None, False)
        await session.stream.abort()  # of nothing
        assert (await kinds(session))[-1] == "run.finished"


async def test_a_run_that_waits_is_there_and_does_not_run() -> None:
    async with served(says(Use("pay", amount=1)), "Paid.") as harness:
        session = await harness.get_or_create("s")
        stream = session.stream("go")
        async for _ in stream:
            pass
        assert (session.run.id, session.run.is_running) == (stream.result.run, False)
        assert session.stream.is_active
        await session.respond_to_approval("approve")
        await session.wait()
        assert session.run.id is None


async def test_a_traced_run_names_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from holdfast.harness import setup
    from holdfast.harness.telemetry.spans import tracing

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(setup, "tracing", lambda wanted: tracing(True, provider))
    model = Slow()
    async with served(default_model=model, agent=helper()) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        trace = session.run.trace_id
        model.gate.open()
        await sending
        await until(exporter.get_finished_spans)
        await until(lambda: session.run.trace_id is None)
    contexts = [span.get_span_context() for span in exporter.get_finished_spans()]
    assert {f"{found.trace_id:032x}" for found in contexts if found is not None} == {trace}


# What waits


async def test_approvals_and_suspensions_are_told_apart() -> None:
    calls = [Use("pay", amount=1), Use("ask_user", question="Colour?")]
    async with served(says(*calls), "Done.") as harness:
        session = await harness.get_or_create("s")
        assert not session.approval.is_armed
        assert not session.suspensions.has_pending
        result = await session.send("go")
        approval, question = result.pending
        assert (session.approval.is_armed, session.suspensions.has_pending) == (True, True)
        assert await session.approval.list() == [approval]
        assert await session.suspensions.list() == [question]
        assert session.suspensions.has(str(question.call))
        assert not session.suspensions.has(str(approval.call))
        assert not session.suspensions.has("another")
        await session.answer("red", question.id)
        assert not session.suspensions.has_pending
        await session.respond_to_approval("decline", reason="too much")
        assert not session.approval.is_armed
        assert (await session.wait()).status == "done"


@pytest.mark.parity("mastra-session", 54, 55, 56, 57, 59, 60)
async def test_responding_decides_on_the_one_that_waits_longest_or_on_none() -> None:
    calls = [Use("pay", amount=1), Use("refund", amount=2), Use("pay", amount=3)]
    prompts: list[list[str]] = []

    def then(call: ModelCall) -> str:
        prompts.append(read(call))
        return "Done."

    async with served(says(*calls), then) as harness:
        session = await harness.get_or_create("s")
        assert await session.respond_to_approval("approve") is None  # nothing waits
        result = await session.send("go")
        first, second, third = (ask.id for ask in result.pending)
        with pytest.raises(InvalidValue, match="always_allow_category"):
            await session.respond_to_approval("maybe")  # type: ignore[arg-type]
        made = await session.respond_to_approval("approve", actor="ann")
        assert made is not None
        assert (made.item, made.outcome, made.by) == (first, "approved", "ann")
        assert await session.respond_to_approval("decline", first) is None  # decided before
        assert await session.respond_to_approval("decline", "another") is None
        assert [ask.id for ask in await session.approval.list()] == [second, third]
        call = result.pending[2].call
        declined = await session.respond_to_approval("decline", call, reason="too dear")
        assert declined is not None
        assert declined.item == third
        await session.respond_to_approval("always_allow_category")
        await session.wait()
        assert session.grants.categories == ("payments",)
        outcomes = [e["outcome"] for e in await finished(session)]
        assert sorted(outcomes) == ["denied", "ok", "ok"]
        assert "too dear" in prompts[0][-1]
        assert prompts[0][-1].count("paid") == 1


async def finished(session: Any) -> list[Any]:
    events = await session.events(kinds=("tool.finished",))
    return [{"outcome": "ok", **event.json()} for event in events]


@pytest.mark.parity("mastra-session", 57)
async def test_always_allowing_asks_no_more_about_the_category() -> None:
    steps = [says(Use("pay", amount=1)), says(Use("refund", amount=2)), "Done."]
    async with served(*steps) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.respond_to_approval("always_allow_category")
        assert (await session.wait()).status == "done"
        opened = await session.events(kinds=("pending.opened",))
        assert len(opened) == 1
        assert [e["outcome"] for e in await finished(session)] == ["ok", "ok"]


@pytest.mark.parity("mastra-session", 49, 50, 52)
async def test_grants_by_their_short_names() -> None:
    async with served(says(Use("pay", amount=1)), "Done.") as harness:
        session = await harness.get_or_create("s")
        assert (session.grants.tools, session.grants.categories) == ((), ())
        before = session.grants
        await session.grant_tool("pay")
        await session.grant_tool("pay")
        await session.grant_category("unheard of")
        assert (session.grants.tools, session.grants.categories) == (("pay",), ("unheard of",))
        assert before.tools == ()
        assert (await session.send("go")).status == "done"


# What follows


@pytest.mark.parity("mastra-session", 109)
async def test_a_follow_up_to_nothing_is_sent_at_once() -> None:
    async with served("Hi.") as harness:
        session = await harness.get_or_create("s")
        assert (session.follow_ups.count, session.follow_ups.is_empty) == (0, True)
        await session.follow_ups.add("go")
        assert (await session.wait()).text == "Hi."
        assert "queue.changed" not in await kinds(session)
        assert session.follow_ups.is_empty


@pytest.mark.parity("mastra-session", 110)
async def test_follow_ups_wait_in_order_and_are_counted() -> None:
    model = Slow(quick=["one!", "two", "three"])
    async with served(default_model=model, agent=helper()) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        one, two, three, four = [
            await session.follow_ups.add(text) for text in ("one", "two", "three", "four")
        ]
        assert (session.follow_ups.count, len(session.queue)) == (4, 4)
        assert session.display.get().queued == 4
        await session.follow_ups.remove(four)
        await session.follow_ups.edit(one, "one!")
        await session.follow_ups.reorder([three])
        listed = [(item.seq, item.text) for item in await session.follow_ups.list()]
        assert listed == [(three, "three"), (one, "one!"), (two, "two")]
        counts = [session.display.get().queued]
        core_of(session).live.watchers.append(lambda _: counts.append(session.display.get().queued))
        model.gate.open()
        await sending
        await session.wait()
        asked = [read(call)[-1] for call in model.calls]
        assert asked == ["user: go", "user: three", "user: one!", "user: two"]
        assert sorted(set(counts), reverse=True) == [3, 2, 1, 0]
        assert counts == sorted(counts, reverse=True)


class Ending:
    """A model that waits at its gate for the first message, and then ends as it is told."""

    ref = "slow/ending"

    def __init__(self, fails: bool) -> None:
        self.gate, self.fails = Gate(), fails

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        last = read(call)[-1]
        if last == "user: go":
            await self.gate.pass_through()
            if self.fails:
                raise RuntimeError("cable cut")
        yield TextChunk(f"answer to {last[-4:]}")
        yield EndChunk()


@pytest.mark.parity("mastra-session", 111)
@pytest.mark.parametrize("end", ["done", "failed", "aborted"])
async def test_the_queue_goes_on_however_a_run_ends(end: str) -> None:
    model = Ending(fails=end == "failed")
    async with served(default_model=model, agent=helper()) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await model.gate.someone()
        streams = [session.stream(text) for text in ("next", "last")]
        reading = [asyncio.create_task(whole(stream)) for stream in streams]
        await until(lambda: session.follow_ups.count == 2)
        if end == "aborted":
            await session.abort()
        model.gate.open()
        assert (await sending).status == end
        assert await asyncio.gather(*reading) == ["answer to next", "answer to last"]
        statuses = [e.json().get("status", "done") for e in await ends(session)]
        assert statuses == [end, "done", "done"]


async def whole(stream: Any) -> str:
    async for _ in stream:
        pass
    return str(stream.result.text)


async def ends(session: Any) -> list[Any]:
    return list(await session.events(kinds=("run.finished",)))


# What was used


@pytest.mark.parity("mastra-session", 140)
def test_counts_of_all_vendors_have_one_name() -> None:
    assert normalised({"prompt_tokens": 1, "completionTokens": "2", "total_tokens": "9"}) == {
        "input_tokens": 1,
        "output_tokens": 2,
        "total_tokens": 9,
    }
    both = {"input_tokens": 5, "prompt_tokens": 1, "odd": 3, "no": "x", "none": None, "yes": True}
    assert normalised(both) == {"input_tokens": 5, "odd": 3}
    assert normalised(dict(reversed(both.items()))) == {"input_tokens": 5, "odd": 3}
    cached = {"cachedInputTokens": 1, "cache_creation_input_tokens": 2, "reasoningTokens": 3}
    assert usage_of(cached) == Usage(cache_read_tokens=1, cache_write_tokens=2, reasoning_tokens=3)
    assert usage_of({"input_tokens": 2, "output_tokens": 3}).total_tokens == 5
    assert usage_of({"input_tokens": 2, "total_tokens": 9}, 0.5) == Usage(
        input_tokens=2, total_tokens=9, cost=0.5
    )
    assert usage_of({}, 0.5) + usage_of({}) == Usage(cost=0.5)


class Vendor:
    """A model that counts in a vendor's words."""

    def __init__(self, ref: str, **counts: Any) -> None:
        self.ref, self.counts = ref, counts

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        yield TextChunk("Hi.")
        yield EndChunk(usage=self.counts)


@pytest.mark.parity("mastra-session", 140, 141, 142)
async def test_usage_is_summed_by_thread_run_and_model(tmp_path: Path) -> None:
    models = [
        Vendor("a/m", prompt_tokens=10, completion_tokens="5"),
        Vendor("b/m", inputTokens=1, outputTokens=1, totalTokens=7, audio_tokens=4),
    ]
    settings: dict[str, Any] = {
        "agent": helper(),
        "default_model": "a/m",
        "providers": models,
        "store": f"sqlite:{tmp_path / 'u.db'}",
        "price": lambda ref, usage: 0.5 if ref == "a/m" else None,
    }
    async with served(**settings) as harness:
        session = await harness.get_or_create("s")
        assert session.usage.get() == Usage()
        runs = [await session.send("go"), await session.send("go")]
        runs.append(await session.send("go", model="b/m"))
        first = Usage(input_tokens=10, output_tokens=5, total_tokens=15, cost=0.5)
        other = Usage(input_tokens=1, output_tokens=1, total_tokens=7)
        assert session.usage.get() == first + first + other
        by_run = await session.usage.by_run()
        assert by_run == {
            str(run.run): n for run, n in zip(runs, [first, first, other], strict=True)
        }
        assert await session.usage.by_model() == {"a/m": first + first, "b/m": other}
        assert await session.usage.last() == {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 7,
            "audio_tokens": 4,
        }
        side = await harness.get_or_create("s", thread="side")
        assert side.usage.get() == Usage()
        forked = await session.threads.fork()
        assert forked.usage.get() == Usage()
        assert await forked.usage.by_model() == {}
        await forked.send("go")
        assert forked.usage.get() == first
        assert await forked.usage.by_model() == {"a/m": first}
    async with served(**settings) as harness:
        again = await harness.get_or_create("s")
        assert again.usage.get() == first + first + other == again.display.get().usage
        assert by_model(await again.events()) == await again.usage.by_model()


# The user state


async def test_a_table_of_what_each_run_of_each_thread_used_of_each_model() -> None:
    from holdfast import SubAgent

    models = [
        ScriptedModel.by_input(
            {
                "Find it.": says(text="Found."),
                "go": [says(Use("subagent", agent="scout", task="Find it.")), says(text="Done.")],
                "more": says(text="More."),
            },
            ref=f"{name}/m",
        )
        for name in ("a", "b")
    ]
    scout = SubAgent("scout", "finds", instructions="Find.", model="b/m")
    agent = workshop(modes=[], subagents=[scout])
    settings: dict[str, Any] = {"providers": models, "default_model": "a/m"}
    async with Harness(agent, **settings, price=lambda ref, used: 0.25) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("go")
        second = await session.send("more", model="b/m")
        fork = await session.thread.clone(id="fork")
        third = await fork.send("more")
        [child] = await session.subagents.list()
        table = [(row.thread, row.run, row.model, row.usage) for row in await fork.usage.table()]
        one = Usage(input_tokens=10, output_tokens=5, total_tokens=15, cost=0.25)
        runs = {row[1] for row in table if row[0] == child.thread}
        assert table == [
            ("main", first.run, "a/m", one + one),
            ("main", second.run, "b/m", one),
            (child.thread, *runs, "b/m", one),
            ("fork", third.run, "a/m", one),  # what it shares with its parent is its parent's
        ]
        whole = Usage()
        for row in table:
            whole += row[3]
        assert whole.cost == 1.25
        assert whole.input_tokens == (await session.usage_all())["input_tokens"]


@pytest.mark.parity("mastra-session", 138)
async def test_what_was_read_of_the_state_is_ones_own() -> None:
    async with served("Hi.") as harness:
        session = await harness.get_or_create("s")
        await session.state.update(list=[1], nested={"a": {"b": 1}})
        mine = session.state.get()
        mine["list"].append(2)
        mine["nested"]["a"]["b"] = 2
        assert session.state.get() == {"list": [1], "nested": {"a": {"b": 1}}}


async def test_without_await_the_parts_are_the_same() -> None:
    from holdfast import sync

    def work() -> None:
        model = ScriptedModel([Say("Hi.")], per_turn=True)
        with sync.Harness(helper(), default_model=model) as harness:
            session = harness.get_or_create("s")
            stream = session.stream("go")
            assert list(stream)
            assert stream.result.text == "Hi."
            assert session.stream.active_run_id is None
            assert session.run.is_running is False
            assert session.display.get().message.text == "Hi."
            assert session.follow_ups.is_empty

    await asyncio.to_thread(work)


async def test_a_failed_message_is_kept() -> None:
    async with (
        connect("memory:") as store,
        served(Fail(RuntimeError("cable cut")), store=store) as harness,
    ):
        session = await harness.get_or_create("s")
        await session.send("go")
        assert [m.text for m in await session.transcript(roles=("user",))] == ["go"]
