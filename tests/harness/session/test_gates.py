"""What a person is asked before a call is made, what rules decide without asking, and what becomes
of a question when something else happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Agent,
    AlreadyDecided,
    Event,
    Harness,
    InvalidValue,
    Mode,
    NewEvent,
    NotPending,
    tool,
)
from holdfast import events as ev
from holdfast.errors import HarnessClosed
from holdfast.events import key
from holdfast.harness.builtins import ASKING
from holdfast.harness.session.session import Session, core_of
from holdfast.models import Say, ScriptedModel, Use
from holdfast.state import Grants, Rules
from holdfast.stores import connect
from holdfast.testing import FaultyStore
from holdfast.testing.faults import Fail, Stall

from ..kernel.scene import PATIENCE, kinds, only, read, script

AT = key("s")


class Till:
    """A shop whose tools say what they did."""

    def __init__(self, **modes: Any) -> None:
        self.did: list[int] = []

        @tool(category="payments", approval="ask")
        async def pay(amount: int) -> str:
            """Pay."""
            self.did.append(amount)
            return f"paid {amount}"

        @tool(approval="ask")
        async def gift(amount: int) -> str:
            """Give; this tool is of no category."""
            self.did.append(amount)
            return f"gave {amount}"

        @tool(category="payments")
        async def count(amount: int) -> str:
            """Count; nobody need be asked."""
            self.did.append(amount)
            return f"counted {amount}"

        self.agent = Agent(
            "till",
            instructions="Sell.",
            tools=[pay, gift, count, *ASKING],
            modes=[Mode("plan", **modes), Mode("build")],
        )

    def serve(self, *steps: Any, **settings: Any) -> Harness:
        settings.setdefault("default_model", script(*steps, "Done."))
        return Harness(self.agent, **settings)


def calls(*made: Any, text: str = "") -> Say:
    return Say(text, calls=list(made))


async def outcomes(session: Session) -> list[str]:
    found = only(await session.events(), "tool.finished")
    return [one.get("outcome", "ok") for one in found]


@pytest.mark.parity("mastra-session", 53)
async def test_what_is_asked_names_the_call_and_the_run_waits() -> None:
    till = Till()
    async with till.serve(calls(Use("pay", amount=1))) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        [ask] = result.pending
        assert (result.status, ask.what) == ("waiting", "approval")
        assert (ask.tool, ask.arguments, ask.title) == ("pay", {"amount": 1}, "pay(amount=1)")
        [opened] = only(await session.events(), "pending.opened")
        assert (opened["id"], opened["call"], opened["title"]) == (ask.id, ask.call, ask.title)
        assert (session.run.id, session.run.is_running) == (result.run, False)
        assert (session.approval.is_armed, till.did) == (True, [])
        assert session.display.get().tools[ask.call or ""].status == "waiting"


@pytest.mark.parity("mastra-session", 58)
async def test_always_allowing_what_has_no_category_allows_this_call_alone() -> None:
    till = Till()
    async with till.serve(calls(Use("gift", amount=1)), calls(Use("gift", amount=2))) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        decided = await session.respond_to_approval("always_allow_category")
        assert decided is not None
        assert decided.outcome == "approved"
        result = await session.wait()
        assert (result.status, till.did) == ("waiting", [1])  # and the next one is asked about
        assert session.grants == Grants()


@pytest.mark.parity("mastra-session", 61)
async def test_what_a_rule_allows_is_done_without_a_word_and_the_model_reads_it() -> None:
    till, model = Till(), script(calls(Use("pay", amount=1)), calls(Use("pay", amount=2)), "Done.")
    async with till.serve(default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.permissions.set(category="payments", rule="allow")
        assert (await session.send("go")).status == "done"
        assert "pending.opened" not in await kinds(session)
        assert read(model.calls[1])[-1] == "tools: paid 1"
        assert read(model.calls[2])[-1] == "tools: paid 2"
    assert till.did == [1, 2]


@pytest.mark.parity("mastra-session", 62)
async def test_what_a_rule_denies_is_refused_without_a_word_and_the_model_reads_it() -> None:
    till, model = Till(), script(calls(Use("pay", amount=1)), "Done.")
    async with till.serve(default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.permissions.set(tool="pay", rule="deny")
        await session.grant_tool("pay")
        assert (await session.send("go")).status == "done"
        assert "pending.opened" not in await kinds(session)
        assert await outcomes(session) == ["denied"]
        [shown] = session.display.get().tools.values()
        assert shown.status == "denied"
        assert "not allowed" in read(model.calls[1])[-1]
    assert till.did == []


@pytest.mark.parametrize("call", ["count", "pay"])
async def test_a_rule_that_comes_after_a_call_was_proposed_still_forbids_it(call: str) -> None:
    till, store = Till(), FaultyStore(await connect("memory:"))
    async with till.serve(calls(Use(call, amount=1)), store=store) as harness:
        session = await harness.get_or_create("s")
        if call == "pay":
            await session.grant_tool("pay")
        # It stops as it writes the message with the call: what it decided is older than the rule.
        stall = Stall(method="append", call=store.calls["append"] + 2)
        store.plan.append(stall)
        sending = asyncio.create_task(session.send("go"))
        async with asyncio.timeout(PATIENCE):
            await stall.reached.wait()
            assert "message.completed" not in await kinds(session)
            rule = ev.PermissionChanged(tools={call: "deny"})
            await store.inner.append(AT, [NewEvent.of("permission.changed", rule)])
            stall.go.set()
            assert (await sending).status == "done"
        order = await kinds(session)
        assert order.index("permission.changed") < order.index("message.completed")
        assert await outcomes(session) == ["denied"]
    assert till.did == []


@pytest.mark.parity("mastra-session", 63)
async def test_calls_at_once_are_all_asked_about_in_their_order() -> None:
    till = Till()
    three = [Use("pay", amount=n) for n in (1, 2, 3)]
    async with till.serve(calls(*three)) as harness:
        session = await harness.get_or_create("s")
        waiting = (await session.send("go")).pending
        assert [ask.arguments["amount"] for ask in waiting] == [1, 2, 3]
        for left in (2, 1, 0):  # the one that waits longest is meant where none is named
            assert till.did == []
            await session.respond_to_approval("approve")
            assert len(core_of(session).live.state.pending) == left
        await session.wait()
    assert sorted(till.did) == [1, 2, 3]


@pytest.mark.parity("mastra-session", 64)
@pytest.mark.parametrize("busy", ["queue", "steer"])
async def test_a_message_while_a_person_is_asked(busy: Any) -> None:
    till = Till()
    model = ScriptedModel.by_input({"go": [calls(Use("pay", amount=1)), "Done."], "stop": "Well."})
    async with till.serve(default_model=model) as harness:
        session = await harness.get_or_create("s")
        [ask] = (await session.send("go")).pending
        result = await session.send("stop", busy=busy)
        if busy == "queue":  # it decides nothing, and waits
            assert (result.status, session.approval.is_armed) == ("queued", True)
            await session.approve(ask.id)
            assert (await session.wait()).text == "Well."
            assert till.did == [1]
        else:  # it is put in the place of the answer, and the model is told both
            assert (result.status, result.text, till.did) == ("done", "Well.", [])
            [settled] = only(await session.events(), "pending.settled")
            assert settled["outcome"] == "superseded"
            assert read(model.calls[-1])[-1] == "user: stop"
            assert "came instead of an answer" in read(model.calls[-1])[-2]


@pytest.mark.parity("mastra-session", 65, 66)
@pytest.mark.parametrize("times", [1, 2])
async def test_an_abort_while_a_person_is_asked_is_clean(times: int) -> None:
    till = Till()
    both = [Use("pay", amount=1), Use("gift", amount=2)]
    async with till.serve(calls(*both)) as harness:
        session = await harness.get_or_create("s")
        listeners = [session.subscribe() for _ in range(2)]
        waiting = (await session.send("go")).pending
        await asyncio.gather(*(session.abort("enough") for _ in range(times)))
        result = await session.wait()
        assert (result.status, session.approval.is_armed, till.did) == ("aborted", False, [])
        assert await session.pending() == []
        assert len(await outcomes(session)) == 2  # no call is left open
        shown = session.display.get()
        assert {tool.status for tool in shown.tools.values()} <= {"denied", "cancelled"}
        assert shown.error is not None
        assert shown.error.code == "aborted"
        with pytest.raises(AlreadyDecided, match="abandoned"):
            await session.approve(waiting[0].id)
        ends = [only(await heard(one), "run.finished") for one in listeners]
        assert [[end["status"] for end in found] for found in ends] == [["aborted"], ["aborted"]]
        assert (await session.send("again")).status == "waiting"  # and the next run is its own


async def heard(listener: Any) -> list[Event]:
    """What a listener was told up to the end of the run."""
    found: list[Event] = []
    async for item in listener:
        if isinstance(item, Event):
            found.append(item)
            if item.kind == "run.finished":
                break
    listener.close()
    return found


@pytest.mark.parity("mastra-session", 68)
async def test_setting_one_rule_keeps_the_others() -> None:
    async with Till().serve() as harness:
        session = await harness.get_or_create("s")
        rules: list[dict[str, Any]] = [
            {"tool": "pay", "rule": "deny"},
            {"tool": "gift", "rule": "allow"},
            {"category": "payments", "rule": "ask"},
            {"category": "files", "rule": "deny"},
        ]
        await asyncio.gather(*(session.permissions.set(**one) for one in rules))
        wanted = {"payments": "ask", "files": "deny"}
        assert session.permissions.rules == Rules({"pay": "deny", "gift": "allow"}, wanted)
        await session.permissions.set(tool="gift", rule=None)
        assert session.permissions.rules == Rules({"pay": "deny"}, wanted)


@pytest.mark.parity("mastra-session", 69)
async def test_a_rule_that_cannot_be_set_changes_nothing() -> None:
    till, store = Till(), FaultyStore(await connect("memory:"))
    async with till.serve(calls(Use("count", amount=1)), store=store) as harness:
        session = await harness.get_or_create("s")
        await session.permissions.set(tool="count", rule="deny")
        before = session.permissions.rules
        for wrong in ({"rule": "perhaps", "tool": "count"}, {"rule": "allow"}):
            with pytest.raises(InvalidValue):
                await session.permissions.set(**wrong)  # type: ignore[arg-type]
        store.plan.append(Fail(method="append", call=store.calls["append"] + 1))
        with pytest.raises(Exception, match="planned fault"):
            await session.permissions.set(tool="count", rule="allow")
        assert session.permissions.rules == before
        await session.send("go")
        assert (await outcomes(session), till.did) == (["denied"], [])


# What a call asks itself


@pytest.mark.parity("mastra-session", 90, 91)
async def test_an_answer_without_a_name_is_for_the_only_question() -> None:
    till = Till()
    two = [Use("ask_user", question=text) for text in ("Colour?", "Size?")]
    async with till.serve(calls(*two)) as harness:
        session = await harness.get_or_create("s")
        first, second = (await session.send("go")).pending
        with pytest.raises(NotPending):
            await session.answer("red")
        with pytest.raises(NotPending):
            await session.answer("red", "somebody-else's")
        assert len(await session.suspensions.list()) == 2  # nothing was answered
        await session.answer("red", first.id)
        assert not session.suspensions.has(first.call or "")
        assert session.suspensions.has(second.call or "")
        await session.answer("large")  # now there is only one
        assert (await session.wait()).status == "done"
        results = [one["result"] for one in only(await session.events(), "tool.finished")]
        assert results == ["red", "large"]


@pytest.mark.parity("mastra-session", 92)
async def test_questions_at_once_are_asked_at_once_and_no_call_begins_anew() -> None:
    till = Till()
    two = [Use("ask_user", question=text) for text in ("Colour?", "Size?")]
    async with till.serve(calls(*two)) as harness:
        session = await harness.get_or_create("s")
        waiting = (await session.send("go")).pending
        assert [ask.title for ask in waiting] == ["Colour?", "Size?"]
        messages = (await kinds(session)).count("message.completed")
        for ask, answer in zip(reversed(waiting), ("large", "red"), strict=True):
            await session.answer(answer, ask.id)
        await session.wait()
        assert (await kinds(session)).count("message.completed") == messages + 1
        texts = [call.outcome.result for m in await session.transcript() for call in m.calls]  # type: ignore[union-attr]
        assert texts == ["red", "large"]


@pytest.mark.parity("mastra-session", 93)
async def test_a_run_that_waited_has_the_steps_that_are_left() -> None:
    from holdfast import RunLimits

    till = Till()
    ask = calls(Use("ask_user", question="More?"))
    model = ScriptedModel([ask], repeat=True)
    async with till.serve(default_model=model, limits=RunLimits(steps=4)) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        runs, asked = {result.run}, 0
        while result.status == "waiting":
            asked += 1
            await session.answer("yes")
            result = await session.wait()
            runs.add(result.run)
        assert (asked, result.status, result.code) == (4, "failed", "limit_steps")
        assert len(runs) == 1  # it is one run, however often it waits
        assert len(model.calls) == 4


@pytest.mark.parity("mastra-session", 95)
async def test_a_question_that_cannot_be_written_is_not_shown_and_the_fault_is() -> None:
    from holdfast import Attempts, ErrorPolicy, Retry

    till, store = Till(), FaultyStore(await connect("memory:"))
    policy = ErrorPolicy(retry=Retry(storage=Attempts(1, backoff=0)))
    settings: dict[str, Any] = {"store": store, "error_policy": policy, "ttl": 0.2}
    asking = calls(Use("ask_user", question="Colour?"))
    async with till.serve(asking, **settings) as harness:
        session = await harness.get_or_create("s")
        listener = session.subscribe()
        start = store.calls["append"]  # message and run, answer and call, question
        fail = Fail(method="append", call=start + 3)
        store.plan.append(fail)
        await session.post("go")
        async with asyncio.timeout(PATIENCE):
            seen: list[str] = []
            async for item in listener:
                seen.append(getattr(item, "kind", type(item).__name__))
                if seen[-1] == "Trouble":
                    break
            listener.close()
            assert "pending.opened" not in seen
            assert not session.suspensions.has_pending
            result = await session.wait()  # the next driver asks; nothing was half there
            assert (result.status, [ask.title for ask in result.pending]) == (
                "waiting",
                ["Colour?"],
            )
            await session.answer("red")
            assert (await session.wait()).status == "done"
        assert len(only(await session.events(), "pending.opened")) == 1


@pytest.mark.parity("mastra-session", 98)
@pytest.mark.parametrize("after", ["build", None])
async def test_an_approved_plan_leads_where_its_mode_says_or_nowhere(after: str | None) -> None:
    till = Till(after_plan=after)
    plan = calls(Use("submit_plan", title="Plan", plan="So."))
    async with till.serve(plan) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.approve()
        assert (await session.wait()).status == "done"
        assert session.mode.name == (after or "plan")
        changed = only(await session.events(), "mode.changed")
        assert [one["mode"] for one in changed] == ([after] if after else [])


async def test_a_closed_session_takes_no_answer() -> None:
    till = Till()
    async with till.serve(calls(Use("pay", amount=1))) as harness:
        session = await harness.get_or_create("s")
        [ask] = (await session.send("go")).pending
        await harness.close("s")
        with pytest.raises(HarnessClosed):
            await session.approve(ask.id)
        again = await harness.get_or_create("s")
        assert await again.pending() == [ask]
