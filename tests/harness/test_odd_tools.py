"""Tools that do what no tool should: they hang, end the process, or return and ask what cannot be
written down. The run goes on, and so does everything else."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from holdfast import tool
from holdfast.errors import ToolError
from holdfast.harness.session.session import Session
from holdfast.harness.tools import Park, Tool, ToolContext, ToolResult
from holdfast.harness.tools.allowance import Allowance
from holdfast.harness.tools.thread_runner import run_in_thread
from holdfast.models.scripted import Say, Use

from .kernel.scene import PATIENCE, Gate, helper, only, serve, until

HANGS = """
import asyncio, threading
from holdfast import Agent, Harness, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

forever = threading.Event()

@tool(timeout=0.2)
def hang() -> str:
    "Never return."
    forever.wait()
    return "late"

@tool
def quick() -> str:
    "Return at once."
    return "quick"

async def main() -> None:
    steps = [Say(calls=[Use("hang")] * 40), Say(calls=[Use("quick")]), "end"]
    agent = Agent("a", instructions="x", tools=[hang, quick])
    model = ScriptedModel(steps)
    async with Harness(agent, default_model=model, parallel_tools=40) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        ended = [e.json() for e in await session.events(kinds=("tool.finished",))]
    print([e.get("code") or e["result"] for e in ended].count("tool_timeout"), ended[-1]["result"])

asyncio.run(main())
"""


async def outcomes(session: Session) -> list[dict[str, Any]]:
    return only(await session.events(), "tool.finished")


async def first(session: Session, kind: str) -> dict[str, Any]:
    """The first event of a kind, when it is there."""
    while not (found := only(await session.events(), kind)):  # noqa: ASYNC110 - see `until`
        await asyncio.sleep(0.005)
    return found[0]


def raising(error: BaseException, *, plain: bool) -> Tool:
    def act() -> str:
        """Act."""
        raise error

    async def act_on_the_loop() -> str:
        """Act."""
        raise error

    return tool(act if plain else act_on_the_loop, name="act")


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        StopIteration(),
        StopAsyncIteration(),
        SystemExit(2),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_python_ends_things_with_is_a_failure_like_any_other(
    error: BaseException, plain: bool
) -> None:
    gate = Gate()

    @tool
    async def other() -> str:
        """Work beside it."""
        await gate.pass_through()
        return "worked"

    agent = helper(tools=[raising(error, plain=plain), other])
    async with serve(agent, Say(calls=[Use("act"), Use("other")]), "Well.") as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        async with asyncio.timeout(PATIENCE):
            ended = await first(session, "tool.finished")
            assert (ended["outcome"], ended["code"]) == ("failed", "tool_failed")
            gate.open()
            result = await sending
        assert (result.status, result.text) == ("done", "Well.")
        assert [item.get("outcome", "ok") for item in await outcomes(session)] == ["failed", "ok"]


async def test_the_model_reads_that_an_iterator_was_empty() -> None:
    @tool
    def find(order: str) -> str:
        """Find an order."""
        return next(known for known in ["1"] if known == order)

    async with serve(helper(tools=[find]), Say(calls=[Use("find", order="2")]), "No.") as harness:
        session = await harness.get_or_create("s")
        async with asyncio.timeout(PATIENCE):
            await session.send("go")
        [ended] = await outcomes(session)
        assert ended["content"] == "The tool failed: the function raised StopIteration"


async def test_tools_that_hang_keep_no_other_from_running_nor_the_process_from_its_end() -> None:
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HANGS, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(2 * PATIENCE):
            said, _ = await run.communicate()
    finally:
        if run.returncode is None:
            run.kill()
            await run.wait()
    assert (run.returncode, said.decode().strip()) == (0, "40 quick")


def test_what_was_left_alone_ends_in_silence_even_after_its_loop() -> None:
    go, began, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def late() -> str:
        threads.append(threading.current_thread())
        began.set()
        assert go.wait(PATIENCE)
        return "late"

    async def leave() -> None:
        task = asyncio.create_task(run_in_thread(late))
        await until(began.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    go.set()
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


async def test_a_function_apart_hands_over_its_value_and_its_error() -> None:
    def divide(a: int, b: int) -> float:
        return a / b

    assert await run_in_thread(divide, 1, 2) == 0.5
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(divide, 1, 0)
    with pytest.raises(ToolError, match="raised SystemExit"):
        await run_in_thread(sys.exit, 3)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(content="x", metadata={"ratio": float("nan")}),
        ToolResult(content="x", metadata={"who": object()}),
        ToolResult(data=deep(200)),
        ToolResult(content="x", code="\ud83d"),
    ],
    ids=["nan", "object", "deep", "surrogate"],
)
async def test_a_result_that_a_log_cannot_hold_is_a_failure(result: ToolResult) -> None:
    @tool
    def act() -> ToolResult:
        """Act."""
        return result

    async with serve(helper(tools=[act]), Say(calls=[Use("act")]), "Well.") as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "Well."
        assert [item["outcome"] for item in await outcomes(session)] == ["failed"]


@pytest.mark.parametrize("park", [Park("\ud83d"), Park("Why?", detail={"x": {1, object()}})])
async def test_a_question_that_a_log_cannot_hold_is_a_failure(park: Park) -> None:
    @tool
    def act() -> str:
        """Ask."""
        raise park

    async with serve(helper(tools=[act]), Say(calls=[Use("act")]), "Well.") as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "Well."
        assert [item["outcome"] for item in await outcomes(session)] == ["failed"]


async def test_words_of_an_error_that_utf8_cannot_carry_are_spelled_out() -> None:
    @tool
    def act() -> str:
        """Act."""
        raise ToolError(problem="half \ud83d")

    async with serve(helper(tools=[act]), Say(calls=[Use("act")]), "Well.") as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "Well."
        assert [item["content"] for item in await outcomes(session)] == [
            "The tool failed: half \\ud83d"
        ]


async def test_a_timeout_of_the_tools_own_is_not_ours() -> None:
    @tool(timeout=PATIENCE)
    async def act() -> str:
        """Act."""
        raise TimeoutError("elsewhere")

    async with serve(helper(tools=[act]), Say(calls=[Use("act")]), "Well.") as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        assert [item["code"] for item in await outcomes(session)] == ["tool_failed"]


async def test_no_time_passes_while_it_is_held_here_or_further_in() -> None:
    outer = Allowance(0.05)
    inner = Allowance(None, outer)
    async with outer, inner:
        with inner.held():
            with outer.held():
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.1)
    assert not outer.over


async def test_what_is_left_passes_afterwards() -> None:
    time = Allowance(0.05)

    async def work() -> None:
        async with time:
            with time.held():
                await asyncio.sleep(0.1)
            await asyncio.sleep(PATIENCE)

    with pytest.raises(TimeoutError):
        await work()
    assert time.over


async def ordering(answer: str) -> dict[str, Any]:
    """The outcome of a call that waited for a person, within another, for longer than it has."""

    @tool(approval="ask")
    async def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    @tool(timeout=2)
    async def order(context: ToolContext) -> str:
        """Order."""
        paid = await context.invoke("pay", n=1)
        return f"{'failed' if paid.failed else 'ok'}: {paid.content}"

    async with serve(helper(tools=[pay, order]), Say(calls=[Use("order")]), "Well.") as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        await until(lambda: session.status.pending)
        await asyncio.sleep(2.2 if answer == "approve" else 0)
        await (session.approve() if answer == "approve" else session.deny(reason=answer))
        async with asyncio.timeout(PATIENCE):
            await sending
            assert (await session.wait()).text == "Well."
        return (await outcomes(session))[-1]


async def test_the_time_of_a_person_is_not_the_tools() -> None:
    assert (await ordering("approve"))["result"] == "ok: paid 1"


async def test_a_no_to_a_call_within_a_call_is_its_result() -> None:
    said = (await ordering("paid by hand"))["result"]
    assert said == "failed: This call was denied. paid by hand"
