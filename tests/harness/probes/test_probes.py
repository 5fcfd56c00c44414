"""A call whose outcome was lost: its probe is asked first, and only what it does not know is put to
a person."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    Harness,
    InvalidValue,
    NewEvent,
    Sessions,
    ToolContext,
    ToolMissing,
    connect,
    tool,
)
from holdfast import events as ev
from holdfast.harness.faults import ErrorPolicy
from holdfast.harness.tools import DontKnow, Happened, NotHappened, ToolResult
from holdfast.log.events import ids
from holdfast.values.audit import Probed

from ..kernel.scene import Gate, only
from .scene import AT, PAID, Bank, agent, ended, kinds, lost_call, model, place, taken_up

KINDS = ("memory", "sqlite", "postgres")
UNKNOWN = ("tool.probed", ev.ToolProbed(call="c1", outcome="unknown", reason="no line"))
NOT = ("tool.probed", ev.ToolProbed(call="c1", outcome="not_happened"))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_happened_ends_with_its_result_and_is_not_repeated(
    kind: str, tmp_path: Path
) -> None:
    bank = Bank(Happened(PAID))
    async with taken_up(bank, place=place(kind, tmp_path)) as session:
        assert (await session.wait()).text == "Done."
        assert (bank.asked, bank.made) == ([("c1", 5)], [])
        assert await ended(session) == [("ok", PAID)]
        events = await session.events()
        (probed,) = only(events, "tool.probed")
        assert probed == {"call": "c1", "outcome": "happened"}
        assert "pending.opened" not in await kinds(session)
        found = [event.kind for event in events]
        assert found.index("tool.finished") == found.index("tool.probed") + 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_did_not_happen_is_made_again_with_its_key(
    kind: str, tmp_path: Path
) -> None:
    bank = Bank(NotHappened())
    async with taken_up(bank, place=place(kind, tmp_path)) as session:
        assert (await session.wait()).text == "Done."
        assert (bank.asked, bank.made) == ([("c1", 5)], [("c1", 5)])
        starts = only(await session.events(), "tool.started")
        assert [start["key"] for start in starts] == ["c1", "c1"]
        assert "pending.opened" not in await kinds(session)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_person_is_asked_only_what_the_probe_does_not_know(
    kind: str, tmp_path: Path
) -> None:
    bank = Bank(DontKnow("the bank is closed"))
    async with taken_up(bank, place=place(kind, tmp_path)) as session:
        (ask,) = (await session.wait()).pending
        assert (ask.what, ask.tool, bank.made) == ("external", "pay", [])
        assert (
            "its probe does not know whether it happened (the bank is closed)" in ask.detail["why"]
        )
        await session.answer("it did", ask.id)
        assert (await session.wait()).text == "Done."
        assert await ended(session) == [("ok", "it did")]
    assert bank.asked == [("c1", 5)]


async def breaks(context: Any) -> Any:
    raise RuntimeError("the password is hunter2")


async def exits(context: Any) -> Any:
    raise SystemExit(3)


async def cancels(context: Any) -> Any:
    raise asyncio.CancelledError


async def hangs(context: Any) -> Any:
    await asyncio.Event().wait()


async def changes(context: Any) -> Any:
    await context.update_state(paid=True)


async def calls(context: Any) -> Any:
    return Happened((await context.invoke("pay", cents=1)).content)


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (breaks, "The probe failed."),
        (exits, "The probe failed: the function raised SystemExit"),
        (cancels, "was cancelled without a request to stop"),
        (hangs, "The probe did not answer within 0.05 s."),
        (changes, "a probe only looks"),
        (calls, "a probe only looks"),
        (None, "pay.probe returned a NoneType"),
        (True, "pay.probe returned a bool"),
        (Happened({1, 2}.__iter__()), "cannot be encoded as JSON"),
        (Happened(deep(200)), "nested"),
        (DontKnow(7), "(7)"),  # type: ignore[arg-type]
    ],
)
async def test_whatever_goes_wrong_in_a_probe_means_that_it_does_not_know(
    answer: Any, said: str
) -> None:
    bank = Bank(answer)
    async with taken_up(bank, probe_timeout=0.05) as session:
        (ask,) = (await session.wait()).pending
        assert (ask.what, bank.made) == ("external", [])
        assert said in ask.detail["why"]
        assert "hunter2" not in ask.detail["why"]
        assert only(await session.events(), "tool.probed")[0]["outcome"] == "unknown"
        await session.deny(ask.id)
        await session.wait()
        assert [how for how, _ in await ended(session)] == ["unknown"]


async def test_the_reason_of_a_failed_probe_is_shown_if_the_policy_shows_errors() -> None:
    policy = ErrorPolicy(expose_internal_errors=True)
    async with taken_up(Bank(breaks), settings={"error_policy": policy}) as session:
        (ask,) = (await session.wait()).pending
        assert "hunter2" in ask.detail["why"]


async def test_a_plain_function_is_a_probe_and_takes_what_it_names() -> None:
    asked: list[str] = []

    def look(context: Any) -> NotHappened:
        asked.append(context.key)
        return NotHappened()

    bank = Bank()
    async with taken_up(bank, probe=look) as session:
        assert (await session.wait()).text == "Done."
    assert (asked, bank.made) == (["c1"], [("c1", 5)])


async def test_a_probe_gets_the_arguments_that_an_approver_changed() -> None:
    bank = Bank(NotHappened())
    async with taken_up(bank, lost={"arguments": {"cents": 3}}) as session:
        await session.wait()
        assert (bank.asked, bank.made) == ([("c1", 3)], [("c1", 3)])
        starts = only(await session.events(), "tool.started")
        assert [start["arguments"] for start in starts] == [{"cents": 3}, {"cents": 3}]


async def test_a_failure_that_the_probe_found_is_the_outcome() -> None:
    bank = Bank(Happened(ToolResult(failed=True, content="declined", code="declined")))
    async with taken_up(bank) as session:
        await session.wait()
        assert await ended(session) == [("failed", "declined")]


# Before anything else, and not without need


@pytest.mark.parametrize(
    ("answer", "made", "outcome"),
    [(Happened(PAID), 0, "ok"), (NotHappened(), 1, "ok"), (DontKnow(), 1, "ok")],
)
async def test_the_probe_of_a_repeat_safe_tool_is_asked_first(
    answer: Any, made: int, outcome: str
) -> None:
    bank = Bank(answer)
    async with taken_up(bank, repeat_safe=True, lost={"repeat": True}) as session:
        assert (await session.wait()).status == "done"
        assert (len(bank.asked), len(bank.made)) == (1, made)
        assert [how for how, _ in await ended(session)] == [outcome]


@pytest.mark.parametrize(("answer", "outcome"), [(DontKnow(), "unknown"), (Happened(PAID), "ok")])
async def test_the_model_is_told_only_what_the_probe_does_not_know(
    answer: Any, outcome: str
) -> None:
    bank = Bank(answer)
    async with taken_up(bank, on_unknown="tell", lost={"tell": True}) as session:
        assert (await session.wait()).status == "done"
        assert (len(bank.asked), bank.made) == (1, [])
        assert [how for how, _ in await ended(session)] == [outcome]


@pytest.mark.parametrize(("more", "made", "asks"), [(NOT, 1, False), (UNKNOWN, 0, True)])
async def test_an_answer_that_is_in_the_log_is_not_asked_for_again(
    more: tuple[str, ev.Payload], made: int, asks: bool
) -> None:
    bank = Bank(DontKnow())
    async with taken_up(bank, more) as session:
        result = await session.wait()
        assert (bank.asked, len(bank.made), bool(result.pending)) == ([], made, asks)
        if asks:
            assert "(no line)" in result.pending[0].detail["why"]


async def test_a_second_attempt_that_is_lost_is_probed_again() -> None:
    bank = Bank(Happened(PAID))
    again = ("tool.started", ev.ToolStarted(call="c1", name="pay", key="c1", probe=True))
    async with taken_up(bank, NOT, again) as session:
        await session.wait()
        assert (bank.asked, bank.made) == ([("c1", 5)], [])


async def test_an_answer_of_a_probe_whose_result_was_not_kept_is_asked_for_again() -> None:
    """A copy may end between the two events."""
    bank = Bank(Happened(PAID))
    happened = ("tool.probed", ev.ToolProbed(call="c1", outcome="happened"))
    async with taken_up(bank, happened) as session:
        await session.wait()
        assert await ended(session) == [("ok", PAID)]


@pytest.mark.parametrize(("erased", "asked"), [(6, 0), (7, 1)])
async def test_an_erased_start_or_answer_leads_to_no_repetition(erased: int, asked: int) -> None:
    bank = Bank(DontKnow())
    async with connect("memory:") as store:
        await lost_call(store, NOT)
        await store.erase(AT, [erased], reason="asked for")
        async with Harness(agent(bank), default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.wait()).pending[0].what == "external"
    assert (bank.made, len(bank.asked)) == ([], asked)


async def test_calls_are_probed_at_once_and_each_answer_is_kept() -> None:
    gate, found = Gate(), dict[int, Any]()

    async def look(n: int, context: Any) -> Any:
        if n == 2:
            await gate.pass_through()
        return {0: Happened("zero"), 1: NotHappened(), 2: Happened("two")}[n]

    @tool(probe=look)
    async def work(n: int) -> str:
        """Work."""
        found[n] = "made"
        return "one"

    calls = [ev.Call(id=f"c{n}", name="work", arguments={"n": n}) for n in range(3)]
    async with connect("memory:") as store:
        await store.append(AT, [NewEvent.of("session.created", {"agent": "shop"})], create=True)
        starts = [ev.ToolStarted(call=c.id, name="work", key=c.id, probe=True) for c in calls]
        events = [
            NewEvent.of("message.received", ev.MessageReceived(text="go")),
            NewEvent.of("run.started", ev.RunStarted(driver="gone", inputs=[2]), run="r"),
            NewEvent.of("model.called", ev.ModelCalled(model="scripted/demo"), run="r"),
            NewEvent.of("message.completed", ev.MessageCompleted(calls=calls), run="r"),
            *(NewEvent.of("tool.started", start, run="r") for start in starts),
        ]
        await store.append(AT, events)
        one = Agent("shop", instructions="Help.", tools=[work])
        async with Harness(one, default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            await gate.someone()
            while len(only(await session.events(), "tool.probed")) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert [end["call"] for end in only(await session.events(), "tool.finished")] == ["c0"]
            gate.open()
            assert (await session.wait()).text == "Done."
            assert await ended(session) == [("ok", "zero"), ("ok", "one"), ("ok", "two")]
    assert found == {1: "made"}


# Aborts, shutdowns, limits


async def test_an_abort_stops_a_probe_and_the_outcome_stays_unknown() -> None:
    gate = Gate()

    async def waits(context: Any) -> Any:
        await gate.pass_through()

    bank = Bank(waits)
    async with taken_up(bank) as session:
        await gate.someone()
        await session.abort()
        assert (await session.wait()).status == "aborted"
        assert [how for how, _ in await ended(session)] == ["unknown"]
        assert "tool.probed" not in await kinds(session)
    assert bank.made == []


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_probe_that_a_shutdown_stops_is_asked_by_the_next_process(deaf: bool) -> None:
    gate = Gate()

    async def waits(context: Any) -> Any:
        while not gate.opened.is_set():
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                if not deaf:
                    raise
        return Happened("too late")

    bank = Bank(waits)
    async with connect("memory:") as store:
        await lost_call(store)
        first = await Harness(agent(bank), default_model=model(), store=store).start()
        await first.get_or_create("s")
        await gate.someone()
        await first.aclose(grace=0.01)
        bank.answer = Happened(PAID)
        async with Harness(agent(bank), default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.wait()).text == "Done."
            gate.open()
            assert await ended(session) == [("ok", PAID)]
    assert (len(bank.asked), bank.made) == (2, [])


async def test_a_driver_that_lost_its_lease_writes_no_answer() -> None:
    gate = Gate()

    async def waits(context: Any) -> Any:
        await gate.pass_through()
        return NotHappened()

    bank = Bank(waits)
    async with connect("memory:") as store:
        await lost_call(store)
        slow = Harness(agent(bank), default_model=model(), store=store)
        async with slow:
            await slow.get_or_create("s")
            await gate.someone()
            lease = await store.acquire(AT, "other", ttl=60, steal="it seems dead")
            finished = ev.ToolFinished(call="c1", result=PAID)
            happened = ev.ToolProbed(call="c1", outcome="happened")
            events = [
                NewEvent.of("run.resumed", ev.RunResumed(driver="other"), run="r"),
                NewEvent.of("tool.probed", happened, run="r"),
                NewEvent.of("tool.finished", finished, id=ids.done_id("c1"), run="r"),
            ]
            await store.append(AT, events, fence=lease)
            gate.open()
            await store.release(lease)
            session = await slow.get_or_create("s")
            assert (await session.wait()).text == "Done."
            assert await ended(session) == [("ok", PAID)]
            assert len(only(await session.events(), "tool.probed")) == 1
    assert bank.made == []


async def test_a_run_that_is_closed_after_a_crash_asks_no_probe() -> None:
    bank = Bank(Happened(PAID))
    async with taken_up(bank, settings={"recovery": "close"}) as session:
        result = await session.wait()
        assert (result.code, bank.asked) == ("driver_lost", [])


# Another program


async def test_a_program_without_the_tool_leaves_the_call_to_one_that_has_it() -> None:
    bank = Bank(Happened(PAID))
    async with connect("memory:") as store:
        await lost_call(store)
        bare = Agent("shop", instructions="Help.")
        async with Harness(bare, default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            with pytest.raises(ToolMissing, match="pay"):
                await session.wait()
        async with Harness(agent(bank), default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            await session.wait()
            assert await ended(session) == [("ok", PAID)]


async def test_a_tool_that_has_no_probe_any_more_puts_the_call_to_a_person() -> None:
    async with taken_up(Bank(), probe=None) as session:
        (ask,) = (await session.wait()).pending
        assert "The tool has no probe any more." in ask.detail["why"]


async def test_arguments_that_the_tool_no_longer_takes_are_not_probed() -> None:
    bank = Bank(NotHappened())
    async with taken_up(bank, lost={"arguments": {"euros": 5}}) as session:
        (ask,) = (await session.wait()).pending
        assert (bank.asked, ask.arguments) == ([], {"euros": 5})


@pytest.mark.parametrize("how", ["rule", "function"])
async def test_a_call_that_did_not_happen_is_not_made_if_it_is_denied_now(how: str) -> None:
    bank = Bank(NotHappened())
    denies: dict[str, Any] = {"approval": lambda cents: "deny"} if how == "function" else {}
    async with connect("memory:") as store:
        await lost_call(store)
        rule = ev.PermissionChanged(tools={"pay": "deny"})
        if how == "rule":
            await store.append(AT, [NewEvent.of("permission.changed", rule)])
        async with Harness(agent(bank, **denies), default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            await session.wait()
            assert [said for said, _ in await ended(session)] == ["denied"]
    assert bank.made == []


async def test_a_call_that_a_person_approved_is_made_again_by_that_approval() -> None:
    bank = Bank(NotHappened())
    async with connect("memory:") as store:
        async with Harness(
            agent(bank, approval="ask"), default_model=model(), store=store
        ) as harness:
            session = await harness.get_or_create("s")
            (ask,) = (await session.send("go")).pending
        lease = await store.acquire(AT, "gone")
        events = [event async for event in store.read(AT)]
        run = next(event.run for event in events if event.kind == "run.started")
        call = only(events, "message.completed")[0]["calls"][0]["id"]
        start = ev.ToolStarted(call=call, name="pay", key=call, by=ask.id, probe=True)
        settled = ev.PendingSettled(id=ask.id, outcome="approved")
        resumed = ev.RunResumed(driver="gone", reason="answered")
        await store.append(
            AT,
            [
                NewEvent.of("pending.settled", settled, id=ids.settle_id(ask.id), actor="ann"),
                NewEvent.of("run.resumed", resumed, run=run),
                NewEvent.of("tool.started", start, run=run),
            ],
            fence=lease,
        )
        await store.release(lease)
        async with Harness(
            agent(bank, approval="ask"), default_model=model(), store=store
        ) as harness:
            session = await harness.get_or_create("s")
            assert (await session.wait()).status == "done"
            starts = only(await session.events(), "tool.started")
            assert [start["by"] for start in starts] == [ask.id, ask.id]
            assert len(only(await session.events(), "pending.opened")) == 1
    assert len(bank.made) == 1


# Calls within calls


@pytest.mark.parametrize(
    ("answer", "said", "made"),
    [(Happened(PAID), PAID, 0), (NotHappened(), PAID, 1), (DontKnow(), "It is not known", 0)],
)
async def test_a_nested_call_is_probed_when_its_outer_call_starts_again(
    answer: Any, said: str, made: int
) -> None:
    bank = Bank(answer)
    pay = agent(bank).tools[0]

    @tool(repeat_safe=True)
    async def bill(context: ToolContext) -> str:
        """Bill."""
        inner = await context.invoke("pay", cents=5)
        return f"bill: {inner.content}"

    outer = ev.Call(id="b1", name="bill", arguments={})
    inner = ev.Call(id="b1.1", name="pay", arguments={"cents": 5}, fingerprint=pay.fingerprint)
    async with connect("memory:") as store:
        await store.append(AT, [NewEvent.of("session.created", {"agent": "shop"})], create=True)
        make = partial(NewEvent.of, run="r")
        started = ev.ToolStarted(call="b1", name="bill", key="b1", repeat=True)
        begun = ev.ToolStarted(call="b1.1", name="pay", key="b1.1", probe=True)
        nested = ev.ToolNested(call=inner, parent="b1")
        events = [
            NewEvent.of("message.received", ev.MessageReceived(text="go")),
            make("run.started", ev.RunStarted(driver="gone", inputs=[2])),
            make("model.called", ev.ModelCalled(model="scripted/demo")),
            make("message.completed", ev.MessageCompleted(calls=[outer])),
            make("tool.started", started),
            make("tool.nested", nested, id=ids.nest_id("b1.1")),
            make("tool.started", begun),
        ]
        await store.append(AT, events)
        shop = Agent("shop", instructions="Help.", tools=[bill, pay])
        async with Harness(shop, default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.wait()).text == "Done."
            ((how, text),) = await ended(session)
            assert (how, text.startswith(f"bill: {said}")) == ("ok", True)
    assert (bank.asked, len(bank.made)) == ([("b1.1", 5)], made)


# Declaring one


def test_a_probe_that_cannot_be_called_is_refused() -> None:
    async def pay(cents: int) -> str:
        """Pay."""
        return ""

    def other(euros: int) -> NotHappened:
        return NotHappened()

    for probe in ("look", other):
        with pytest.raises(InvalidValue, match=r"pay\.probe"):
            tool(pay, probe=probe)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"pay\.probe_timeout"):
        tool(pay, probe=NotHappened, probe_timeout=0)
    assert tool(pay, probe=NotHappened).manifest["probe"] is True
    assert tool(pay).manifest["probe"] is False


async def test_a_call_that_is_not_lost_asks_no_probe() -> None:
    bank = Bank(DontKnow())
    async with Harness(agent(bank), default_model=model()) as harness:
        assert (await harness.send("s", "go")).text == "Done."
    assert (bank.asked, len(bank.made)) == ([], 1)


# What others see


@pytest.mark.parametrize("answer", [Happened(PAID), NotHappened(), DontKnow("the bank is closed")])
async def test_what_a_probe_said_is_shown_and_audited(answer: Any) -> None:
    names: dict[Any, str] = {Happened: "happened", NotHappened: "not_happened"}
    said = names.get(type(answer), "unknown")
    reason = getattr(answer, "reason", None)
    async with connect("memory:") as store:
        await lost_call(store)
        shop = agent(Bank(answer))
        async with Harness(shop, default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            result = await session.wait()
            assert session.display.get().tools["c1"].probed == said
            (message, *_) = [one for one in await session.transcript() if one.calls]
            assert message.calls[0].probed == said
            if result.pending:
                await session.answer(PAID, result.pending[0].id, actor="ann")
                await session.wait()
            probed = next(e for e in await session.events() if e.kind == "tool.probed")
        (audited,) = [one async for one in Sessions(store).audit("s")]
        assert audited.probes == [Probed(outcome=said, at=probed.at, reason=reason)]
        assert audited.outcome == "ok"
