"""Approvals: who is asked about what, who may answer, and that an answer counts once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import textwrap
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    AlreadyDecided,
    Harness,
    InvalidValue,
    Mode,
    NotPending,
    Tool,
    ToolContext,
    ToolError,
    connect,
    hook,
    key,
    tool,
)
from holdfast.harness.host import sessions_of
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import Session
from holdfast.harness.tools.values import Permission
from holdfast.models.port import CallChunk
from holdfast.models.scripted import Say, Use
from tests import forks

from .scene import PATIENCE, Gate, helper, only, read, script, serve, until


class Till:
    """A tool that pays, and what it was called with."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[tuple[int, str]] = []

        @tool(**options)
        async def pay(cents: int, currency: str = "EUR") -> str:
            """Pay."""
            self.paid.append((cents, currency))
            return f"paid {cents}"

        self.tool: Tool = pay


def dynamic(answer: Any) -> Callable[..., Any]:
    return lambda cents: answer


@pytest.mark.parity("harness-kernel", 88)
@pytest.mark.parametrize(
    ("mode", "own"),
    [*product(("auto", "ask", "deny", "tool"), ("auto", "ask", "deny", True, False))],
)
async def test_what_the_mode_and_the_tool_say(mode: Any, own: Any) -> None:
    till = Till(approval=dynamic(own) if isinstance(own, bool) else own)
    plain = {True: "ask", False: "auto"}.get(own, own)
    expected = "deny" if "deny" in (plain, mode) else plain if mode == "tool" else mode
    agent = helper(modes=[Mode("a", tools=[till.tool], approval=mode)])
    async with serve(agent, Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert result.status == ("waiting" if expected == "ask" else "done")
        assert len(await session.pending()) == (expected == "ask")
        assert len(till.paid) == (expected == "auto")
        outcomes = [e.get("outcome", "ok") for e in only(await session.events(), "tool.finished")]
        assert outcomes == {"auto": ["ok"], "deny": ["denied"], "ask": []}[expected]


@pytest.mark.parity("harness-kernel", 89)
async def test_an_approval_function_gets_the_parsed_arguments() -> None:
    seen: list[Any] = []

    async def large(cents: int, currency: str, context: ToolContext) -> bool:
        seen.append((cents, currency, context.session.session))
        return cents > 100

    till = Till(approval=large)
    calls = [Use("pay", cents=5), Use("pay", cents=500, currency="USD")]
    async with serve(helper(tools=[till.tool]), Say(calls=calls), "ok") as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert [ask.arguments for ask in result.pending] == [{"cents": 500, "currency": "USD"}]
        await until(lambda: till.paid == [(5, "EUR")])
    assert seen == [(5, "EUR", "s"), (500, "USD", "s")]


@pytest.mark.parity("harness-kernel", 89)
async def test_an_approval_function_that_raises_asks_a_person() -> None:
    def broken(cents: int) -> bool:
        raise RuntimeError("no")

    till = Till(approval=broken)
    async with serve(helper(tools=[till.tool]), Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "waiting"
        await session.approve()
        assert (await session.wait()).text == "ok"


@pytest.mark.parity("harness-kernel", 28, 89)
async def test_an_abort_does_not_wait_for_an_approval_function() -> None:
    gate = Gate()

    async def slow(cents: int) -> bool:
        await gate.pass_through()
        return False

    till = Till(approval=slow)
    async with serve(helper(tools=[till.tool]), Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await gate.someone()
        await session.abort()
        assert (await session.wait()).status == "aborted"
        assert await session.pending() == []
    assert till.paid == []


@pytest.mark.parity("harness-kernel", 90)
async def test_what_a_person_is_shown() -> None:
    permission = Permission(kind="network", access="write")
    till = Till(
        approval="ask", risk="write", category="money", permissions=[permission], expires=60
    )
    async with serve(helper(tools=[till.tool]), Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        (asked,) = result.pending
        assert [asked] == await session.pending()
        assert (asked.what, asked.tool, asked.arguments) == ("approval", "pay", {"cents": 5})
        assert asked.title == "pay(cents=5)"
        (message, *_) = only(await session.events(), "message.completed")
        assert asked.call == message["calls"][0]["id"]
        assert asked.expires is not None
        assert asked.expires - asked.at == pytest.approx(60_000, abs=100)
        detail = asked.detail
        assert (detail["risk"], detail["category"], detail["mode"]) == ("write", "money", "default")
        assert detail["permissions"] == [{"kind": "network", "access": "write"}]
        (item,) = (await harness.pending()).items
        assert (item.id, item.session, item.title) == (asked.id, "s", asked.title)


@pytest.mark.parity("harness-kernel", 91)
async def test_what_nobody_answers_in_time_is_not_done() -> None:
    till = Till(approval="ask", expires=1)
    model = script(Say(calls=[Use("pay", cents=5)]), "ok")
    async with serve(helper(tools=[till.tool]), default_model=model, ttl=0.1) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "waiting"
        await until(lambda: session.status.phase == "idle")
        events = await session.events()
        kinds = [event.kind for event in events]
        assert kinds.index("pending.warned") < kinds.index("pending.settled")
        (settled,) = only(events, "pending.settled")
        assert settled["outcome"] == "expired"
        (ended,) = only(events, "tool.finished")
        assert (ended["outcome"], ended["code"]) == ("cancelled", "expired")
    assert till.paid == []
    assert "Nobody answered in time" in read(model.calls[1])[-1]


@pytest.mark.parity("harness-kernel", 91)
def test_a_time_that_is_none_is_refused_and_none_means_for_ever() -> None:
    for seconds in (0, -1):
        with pytest.raises(InvalidValue, match="expires"):
            Till(approval="ask", expires=seconds)
    assert Till(approval="ask").tool.expires is None


Path_ = Callable[[Harness, Session, str, bool], Awaitable[Any]]


async def by_session(harness: Harness, session: Session, item: str, yes: bool) -> Any:
    if yes:
        return await session.approve(item, actor="ann")
    return await session.deny(item, "too much", actor="ann")


async def by_harness(harness: Harness, session: Session, item: str, yes: bool) -> Any:
    if yes:
        return await harness.approve("s", item, actor="ann")
    return await harness.deny("s", item, reason="too much", actor="ann")


async def by_store(harness: Harness, session: Session, item: str, yes: bool) -> Any:
    """As another process does: the driver here sees it in the log."""
    reason = None if yes else "too much"
    outcome: Any = "approved" if yes else "denied"
    made = await settle_pending(
        harness.store, session.key, item, outcome, actor="ann", reason=reason
    )
    await sessions_of(harness).drivers.look()
    return made


@pytest.mark.parity("harness-kernel", 92, 94)
@pytest.mark.parametrize("path", [by_session, by_harness, by_store])
@pytest.mark.parametrize("yes", [True, False])
async def test_an_answer_counts_whichever_way_it_comes(path: Path_, yes: bool) -> None:
    till = Till(approval="ask")
    model = script(Say(calls=[Use("pay", cents=5)]), "ok")
    async with serve(helper(tools=[till.tool]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        (asked,) = (await session.send("go")).pending
        made = await path(harness, session, asked.id, yes)
        assert (made.item, made.by) == (asked.id, "ann")
        await until(lambda: session.status.phase == "idle")
        (settled,) = await session.events(kinds=("pending.settled",))
        assert settled.actor == "ann"
        assert settled.json()["outcome"] == ("approved" if yes else "denied")
    assert till.paid == ([(5, "EUR")] if yes else [])
    told = "tools: paid 5" if yes else "tools: This call was denied. Reason: too much"
    assert read(model.calls[1])[-1] == told


@pytest.mark.parity("harness-kernel", 93)
async def test_a_second_answer_is_told_who_was_first() -> None:
    till = Till(approval="ask")
    async with serve(helper(tools=[till.tool]), Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        (asked,) = (await session.send("go")).pending
        answers = await asyncio.gather(
            session.approve(asked.id, actor="ann"),
            session.deny(asked.id, actor="bob"),
            harness.approve("s", asked.id, actor="eve"),
            return_exceptions=True,
        )
        refused = [a for a in answers if isinstance(a, AlreadyDecided)]
        assert len(refused) == 2
        (won,) = [a for a in answers if not isinstance(a, BaseException)]
        assert {error.by for error in refused} == {won.by}
        await session.wait()
        with pytest.raises(AlreadyDecided):
            await session.approve(asked.id)
        for unknown in ("nobody", None):
            with pytest.raises(NotPending):
                await session.approve(unknown)


@pytest.mark.parity("harness-kernel", 92)
async def test_several_answers_in_any_order_each_reach_their_own_call() -> None:
    till = Till(approval="ask")
    calls = [Use("pay", cents=n) for n in range(5)]
    model = script(Say(calls=calls), "ok")
    async with serve(helper(tools=[till.tool]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        asked = (await session.send("go")).pending
        assert [a.arguments["cents"] for a in asked] == [0, 1, 2, 3, 4]
        with pytest.raises(NotPending):
            await session.approve()  # which one?
        for n in (3, 0, 4, 1, 2):
            if n % 2:
                await session.deny(asked[n].id, f"not {n}")
            else:
                await session.approve(asked[n].id, arguments={"cents": 100 + n})
        assert (await session.wait()).text == "ok"
    assert sorted(till.paid) == [(100, "EUR"), (102, "EUR"), (104, "EUR")]
    assert read(model.calls[1])[-1] == (
        "tools: paid 100 | This call was denied. Reason: not 1 | paid 102"
        " | This call was denied. Reason: not 3 | paid 104"
    )


async def test_edited_arguments_are_recorded_and_checked() -> None:
    till = Till(approval="ask")
    async with serve(helper(tools=[till.tool]), Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.approve(arguments={"cents": 7, "currency": "USD"})
        await session.wait()
        (started,) = only(await session.events(), "tool.started")
        assert started["arguments"] == {"cents": 7, "currency": "USD"}
        assert till.paid == [(7, "USD")]
        (asked,) = (await session.send("go")).pending
        # Whoever knows the tool refuses, and it still waits; for others the run does.
        for refuse in (session.approve, partial(harness.approve, "s")):
            with pytest.raises(InvalidValue) as wrong:
                await refuse(asked.id, arguments={"cents": "many"})
            assert wrong.value.field == "arguments.cents"
            with pytest.raises(InvalidValue, match=r"arguments\.money"):
                await refuse(asked.id, arguments={"cents": 1, "money": 2})
        assert [ask.id for ask in await session.pending()] == [asked.id]
        edited = {"arguments": {"cents": "many"}}
        await settle_pending(harness.store, session.key, asked.id, "approved", answer=edited)
        await sessions_of(harness).drivers.look()
        await until(lambda: session.status.phase == "idle")
        assert len(till.paid) == 1
        ended = only(await session.events(), "tool.finished")[-1]
        assert ended["code"] == "bad_arguments"


async def test_an_approval_takes_no_answer_in_place_of_yes_or_no() -> None:
    till = Till(approval="ask")
    async with serve(helper(tools=[till.tool]), Say(calls=[Use("pay", cents=5)]), "ok") as harness:
        session = await harness.get_or_create("s")
        (asked,) = (await session.send("go")).pending
        for refuse in (session.answer("no", asked.id), harness.answer("s", "no", asked.id)):
            with pytest.raises(InvalidValue, match=r"approve it.* or deny it"):
                await refuse
        with pytest.raises(InvalidValue, match=r"approve it.* or deny it"):
            await settle_pending(harness.store, session.key, asked.id, "answered", answer="no")
        assert [ask.id for ask in await session.pending()] == [asked.id]
        await session.approve(asked.id)
        assert (await session.wait()).text == "ok"
    assert till.paid == [(5, "EUR")]


@pytest.mark.parity("harness-kernel", 23, 92)
async def test_a_call_within_a_call_is_asked_about_too() -> None:
    till = Till(approval="ask")

    @tool
    async def settle_bill(context: ToolContext) -> str:
        """Settle."""
        result = await context.invoke(till.tool, cents=5)
        return f"bill: {result.content}"

    model = script(Say(calls=[Use("settle_bill")]), "ok")
    async with serve(helper(tools=[till.tool, settle_bill]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await until(lambda: session.status.pending == 1)
        (asked,) = await session.pending()
        assert (asked.tool, till.paid) == ("pay", [])
        await session.approve(asked.id)
        assert (await session.wait()).text == "ok"
        (nested,) = only(await session.events(), "tool.nested")
        (message, *_) = only(await session.events(), "message.completed")
        assert nested["parent"] == message["calls"][0]["id"]
        assert [e["name"] for e in only(await session.events(), "tool.started")] == [
            "settle_bill",
            "pay",
        ]
        ended = [e["call"] for e in only(await session.events(), "tool.finished")]
        assert ended == [nested["call"]["id"], nested["parent"]]  # the inner one first
    assert read(model.calls[1])[-1] == "tools: bill: paid 5"


@pytest.mark.parity("harness-kernel", 24)
async def test_calls_within_calls_have_an_end() -> None:
    depths: list[int] = []

    @tool
    async def deeper(context: ToolContext) -> str:
        """Deeper."""
        depths.append(len(depths))
        inner = await context.invoke("deeper")
        return inner.content

    model = script(Say(calls=[Use("deeper")]), "ok")
    async with serve(helper(tools=[deeper]), default_model=model) as harness:
        assert (await harness.send("s", "go")).text == "ok"
    assert len(depths) == 10
    assert "at most 9 deep" in read(model.calls[1])[-1]


@pytest.mark.parity("harness-kernel", 23)
async def test_only_tools_of_the_mode_can_be_invoked() -> None:
    hidden = Till().tool

    @tool
    async def reach(context: ToolContext) -> str:
        """Reach."""
        result = await context.invoke("pay", cents=1)
        return f"{result.failed} {result.content}"

    agent = helper(modes=[Mode("a", tools=[reach]), Mode("b", tools=[hidden])])
    model = script(Say(calls=[Use("reach")]), "ok")
    async with serve(agent, default_model=model) as harness:
        await harness.send("s", "go")
    assert read(model.calls[1])[-1] == "tools: True There is no tool 'pay' here."


@pytest.mark.parity("harness-kernel", 23)
async def test_tools_are_called_within_a_run() -> None:
    refused: list[str] = []

    @hook("my.event")
    async def eager(acting: Any, event: Any) -> None:
        with pytest.raises(ToolError) as caught:
            await acting.invoke("pay", cents=1)
        refused.append(str(caught.value))

    till = Till()
    async with serve(helper(tools=[till.tool], hooks=[eager]), "hi") as harness:
        session = await harness.get_or_create("s")
        await session.emit("my.event")
        await until(lambda: refused)
        assert "no run" in refused[0]
        assert (await session.send("go")).text == "hi"
    assert till.paid == []


@pytest.mark.parity("harness-kernel", 25)
async def test_calls_that_a_vendor_gave_one_id_are_told_apart() -> None:
    till = Till()
    calls = [CallChunk("pay", {"cents": n}, id="call_0") for n in (1, 2)]
    model = script(Say(calls=calls), lambda call: read(call)[-1])
    async with serve(helper(tools=[till.tool]), default_model=model) as harness:
        assert (await harness.send("s", "go")).text == "tools: paid 1 | paid 2"


@pytest.mark.parity("harness-kernel", 25)
async def test_many_calls_at_once_are_not_deep() -> None:
    running = most = 0

    @tool
    async def work(n: int) -> str:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (n % 5))
        running -= 1
        return str(n)

    calls = [Use("work", n=n) for n in range(50)]
    model = script(Say(calls=calls), "ok")
    async with serve(helper(tools=[work]), default_model=model, parallel_tools=20) as harness:
        result = await harness.send("s", "go")
        assert result.text == "ok"
        assert result.metrics is not None
        assert (result.metrics.tools["work"].count, result.metrics.tools["work"].errors) == (50, 0)
    assert read(model.calls[1])[-1] == "tools: " + " | ".join(map(str, range(50)))
    assert 9 < most <= 20


@pytest.mark.parity("harness-kernel", 20)
async def test_what_a_tool_raises_stays_with_us() -> None:
    @tool
    async def broken() -> str:
        """Break."""
        raise RuntimeError("password hunter2")

    model = script(Say(calls=[Use("broken")]), "ok")
    async with serve(helper(tools=[broken]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).status == "done"
        (ended,) = only(await session.events(), "tool.finished")
        assert (ended["outcome"], ended["code"]) == ("failed", "tool_failed")
        assert ended["result"] == {
            "error": {"code": "tool_failed", "message": "The tool failed.", "tool": "broken"}
        }
    assert read(model.calls[1])[-1] == "tools: The tool failed."


# A process that dies

WORKER = """
import asyncio, sys
from holdfast import Agent, Harness, tool
from holdfast.models.scripted import ScriptedModel, Say, Use

@tool(approval="ask")
async def pay(cents: int) -> str:
    "Pay."
    with open(sys.argv[2], "a") as file:
        file.write(f"{cents}\\n")
    return "paid"

@tool
async def hang(cents: int) -> str:
    "Hang."
    with open(sys.argv[2], "a") as file:
        file.write(f"hang {cents}\\n")
    print("hanging", flush=True)
    await asyncio.Event().wait()

async def main():
    steps = [Say("Well.", calls=[Use(sys.argv[3], cents=5)]), "all done"]
    model = ScriptedModel(steps, per_turn=True)
    agent = Agent("Payer", instructions="Pay.", tools=[pay, hang])
    harness = Harness(agent, default_model=model, store=sys.argv[1], ttl=0.5)
    await harness.start()
    session = await harness.get_or_create("s")
    result = await session.send("go")
    print(result.status, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def killed(storage: str, ledger: Path, tool_name: str, line: str) -> None:
    """Run the worker until it says `line`, and kill it."""
    with forks.popen(
        *("-c", textwrap.dedent(WORKER), storage, str(ledger), tool_name),
        needs=("holdfast.harness",),
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline().strip() == line
        finally:
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait(PATIENCE)


def payer(ledger: Path) -> Any:
    @tool(approval="ask")
    def pay(cents: int) -> str:
        """Pay."""
        with ledger.open("a") as file:
            file.write(f"{cents}\n")
        return "paid"

    @tool
    async def hang(cents: int) -> str:
        """Hang."""
        raise AssertionError("nobody may call this again")

    return helper(label="Payer", instructions="Pay.", tools=[pay, hang])


@pytest.mark.parity("harness-kernel", 95)
async def test_a_question_outlives_the_process_that_asked(tmp_path: Path) -> None:
    storage, ledger = f"sqlite:{tmp_path}/x.db", tmp_path / "ledger"
    await asyncio.to_thread(killed, storage, ledger, "pay", "waiting")
    assert not ledger.exists()
    store = await connect(storage)
    row = await store.row(key("s"))
    assert row is not None
    (item,) = row.pending
    made = await settle_pending(store, key("s"), item, "approved", actor="ann")
    await store.aclose()
    model = script(Say("Well.", calls=[Use("pay", cents=5)]), "all done")
    async with serve(payer(ledger), default_model=model, store=storage, ttl=0.5) as harness:
        session = await harness.get_or_create("s")
        result = await session.wait()
        assert (result.status, result.text) == ("done", "all done")
        with pytest.raises(AlreadyDecided):
            await session.deny(made.item)
        outcomes = [e.get("outcome", "ok") for e in only(await session.events(), "tool.finished")]
        assert outcomes == ["ok"]
    assert ledger.read_text() == "5\n"


@pytest.mark.parity("harness-kernel", 96)
async def test_a_run_whose_process_died_is_closed_where_that_is_wanted(tmp_path: Path) -> None:
    storage, ledger = f"sqlite:{tmp_path}/x.db", tmp_path / "ledger"
    await asyncio.to_thread(killed, storage, ledger, "hang", "hanging")
    model = script("fresh")
    async with serve(
        payer(ledger), default_model=model, store=storage, recovery="close", ttl=0.5
    ) as harness:
        session = await harness.get_or_create("s")
        result = await session.wait()
        assert (result.status, result.code) == ("interrupted", "driver_lost")
        (ended,) = only(await session.events(), "tool.finished")
        assert ended["outcome"] == "unknown"
        assert (await session.send("and now?")).text == "fresh"
    assert read(model.calls[0])[1:3] == [
        "model: Well. [hang]",
        "tools: It is not known whether this call took effect. Do not repeat it unasked.",
    ]


@pytest.mark.parity("harness-kernel", 96)
async def test_a_call_that_may_have_acted_is_put_to_a_person(tmp_path: Path) -> None:
    storage, ledger = f"sqlite:{tmp_path}/x.db", tmp_path / "ledger"
    await asyncio.to_thread(killed, storage, ledger, "hang", "hanging")
    model = script(Say("Well.", calls=[Use("hang", cents=5)]), "so be it")
    async with serve(payer(ledger), default_model=model, store=storage, ttl=0.5) as harness:
        session = await harness.get_or_create("s")
        result = await session.wait()
        (asked,) = result.pending
        assert (asked.what, asked.tool, asked.arguments) == ("external", "hang", {"cents": 5})
        await session.answer("it did happen", asked.id)
        assert (await session.wait()).text == "so be it"
    assert read(model.calls[-1])[-1] == "tools: it did happen"
    assert ledger.read_text() == "hang 5\n"
