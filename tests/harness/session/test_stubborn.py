"""Models and tools that do not listen when they are told to stop: the run ends without them, and
what they do later changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from holdfast import ModelUnavailable, ToolContext, tool
from holdfast.harness.faults import Attempts, ErrorPolicy, Retry
from holdfast.harness.loop import cancellation
from holdfast.harness.session.session import Session
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.values.delta import Delta

from ..kernel.scene import PATIENCE, Gate, helper, read, serve


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nobody waits for what does not end, how long it is waited for is not the point."""
    monkeypatch.setattr(cancellation, "GRACE", 0.05)
    monkeypatch.setattr("holdfast.harness.loop.tool_call.GRACE", 0.05)


class Deaf:
    """Waits until it is let go, and for nothing else. `over` is set when it has said its last."""

    def __init__(self) -> None:
        self.begun, self.over = Gate(), asyncio.Event()
        self.free = asyncio.Event()

    async def wait(self) -> None:
        self.begun.met.set()
        while not self.free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.free.wait()

    async def let_go(self) -> None:
        self.free.set()
        async with asyncio.timeout(PATIENCE):
            await self.over.wait()
        for _ in range(50):  # whatever it would still do
            await asyncio.sleep(0)


@pytest.fixture
async def deaf() -> AsyncGenerator[Deaf, None]:
    one = Deaf()
    yield one
    one.free.set()  # or no loop could end


class DeafModel:
    """Says a word, does not listen, and then goes on as `then` does."""

    ref = "deaf/model"

    def __init__(self, deaf: Deaf, then: Callable[[], AsyncGenerator[Chunk, None]]) -> None:
        self.deaf, self.calls, self._then = deaf, 0, then
        self.second = Gate()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls += 1
        last = read(call)[-1].split()[-1]
        if last == "go":
            try:
                if self._then is not _fails:
                    yield TextChunk("Once ")
                await self.deaf.wait()
                async for chunk in self._then():
                    yield chunk
            finally:
                self.deaf.over.set()
        elif last == "slowly":
            yield TextChunk("Let me")
            await self.second.pass_through()
            yield TextChunk(" see.")
        else:
            yield TextChunk("Fine.")
        yield EndChunk()


AT_ONCE = ErrorPolicy(retry=Retry(model=Attempts(3, backoff=0.0)))


async def _talks() -> AsyncGenerator[Chunk, None]:
    yield TextChunk("late words")
    yield TextChunk("and more")


async def _fails() -> AsyncGenerator[Chunk, None]:
    for chunk in [TextChunk("never")]:
        if chunk.text:
            raise ModelUnavailable(model="deaf/model", problem="not now")
        yield chunk


async def aborted(session: Session, deaf: Deaf) -> None:
    """Stop the run in which somebody is deaf."""
    await session.post("go")
    await deaf.begun.someone()
    await session.abort()
    async with asyncio.timeout(PATIENCE):
        assert (await session.wait()).status == "aborted"


@pytest.mark.parametrize("then", [_talks, _fails])
async def test_a_run_ends_without_a_model_that_does_not_listen(deaf: Deaf, then: Any) -> None:
    model = DeafModel(deaf, then)
    async with serve(helper(), default_model=model, error_policy=AT_ONCE) as harness:
        session = await harness.get_or_create("s")
        await aborted(session, model.deaf)
        async with asyncio.timeout(PATIENCE):
            assert (await session.send("again")).text == "Fine."
        before, display = await session.events(), session.display.get()
        await model.deaf.let_go()
        assert await session.events() == before
        assert session.display.get() == display
        assert model.calls == 2  # it is not asked again in the name of what was stopped


@pytest.mark.parametrize("then", [_talks, _fails])
async def test_what_it_says_later_is_no_part_of_the_next_run(deaf: Deaf, then: Any) -> None:
    model = DeafModel(deaf, then)
    async with serve(helper(), default_model=model, error_policy=AT_ONCE) as harness:
        session = await harness.get_or_create("s")
        await aborted(session, model.deaf)
        heard: list[Any] = []
        stream = session.stream("slowly")

        async def listen() -> None:
            async for item in stream:
                heard.append(item)

        listening = asyncio.create_task(listen())
        await model.second.someone()
        await model.deaf.let_go()
        model.second.open()
        async with asyncio.timeout(PATIENCE):
            await listening
        assert stream.result.text == "Let me see."
        assert "".join(item.text for item in heard if isinstance(item, Delta)) == "Let me see."
        assert model.calls == 2
        kinds = [event.kind for event in await session.events()]
        assert kinds.count("run.finished") == 2


Act = Callable[[ToolContext], Awaitable[Any]]
LATE: dict[str, Act] = {
    "progress": lambda context: context.progress("late"),
    "state": lambda context: context.update_state(late=True),
    "tool": lambda context: context.invoke("other"),
    "nothing": lambda context: asyncio.sleep(0),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("during", [False, True])
async def test_a_run_ends_without_a_tool_that_does_not_listen(
    deaf: Deaf, late: str, during: bool
) -> None:
    gate, made = Gate(), list[str]()

    @tool
    async def hang(context: ToolContext) -> str:
        """Hang."""
        await deaf.wait()
        try:
            await LATE[late](context)
        finally:
            deaf.over.set()
        return "late words"

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.pass_through()
        return "waited"

    @tool
    async def other() -> str:
        """Something else."""
        made.append("other")
        return "done"

    model = ScriptedModel.by_input(
        {
            "go": [Say(calls=[Use("hang")])],
            "again": [Say(calls=[Use("wait")]), "Fine."],
        }
    )
    async with serve(helper(tools=[hang, wait, other]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await aborted(session, deaf)
        await session.post("again")
        await gate.someone()
        if not during:
            gate.open()
            async with asyncio.timeout(PATIENCE):
                await session.wait()
        before = await session.events()
        await deaf.let_go()
        assert await session.events() == before
        gate.open()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "Fine."
        assert (made, session.state.get()) == ([], {})


async def test_of_calls_that_are_stopped_together_each_is_told_how_it_ended(deaf: Deaf) -> None:
    polite = Gate()

    @tool
    async def listens() -> str:
        """Listen."""
        await polite.pass_through()
        return "never"

    @tool
    async def hang() -> str:
        """Hang."""
        await deaf.wait()
        deaf.over.set()
        return "late words"

    model = ScriptedModel([Say(calls=[Use("listens"), Use("hang")])])
    async with serve(helper(tools=[listens, hang]), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("go")
        await polite.someone()
        await deaf.begun.someone()
        await session.abort()
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).status == "aborted"  # while the one still hangs
        (message,) = await session.events(kinds=("message.completed",))
        names = {call["id"]: call["name"] for call in message.json()["calls"]}
        ended = [event.json() for event in await session.events(kinds=("tool.finished",))]
        told = {names[one["call"]]: one["outcome"] for one in ended}
        assert told == {"listens": "cancelled", "hang": "unknown"}
        await deaf.let_go()


async def test_a_timeout_that_cancels_and_tells_nobody_is_tried_again() -> None:
    """Some clients' timeouts cancel their own task; nobody has told the model to stop."""

    class Late:
        ref = "late/one"
        calls = 0

        async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
            self.calls += 1
            task = asyncio.current_task()
            if self.calls == 1 and task is not None:
                asyncio.get_running_loop().call_soon(task.cancel)
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    raise TimeoutError("read timed out") from None
            yield TextChunk("hello")
            yield EndChunk("stop", {})

    model = Late()
    async with serve(helper(), default_model=model, error_policy=AT_ONCE) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("Hi")
        assert (result.status, result.text, model.calls) == ("done", "hello", 2)


async def test_what_a_tool_left_to_do_behind_it_may_still_speak() -> None:
    left: list[asyncio.Task[None]] = []
    go = asyncio.Event()

    @tool
    async def build(context: ToolContext) -> str:
        """Begin something, and return."""

        async def later() -> None:
            await go.wait()
            await context.update_state(built=True)

        left.append(asyncio.create_task(later()))
        return "begun"

    @tool
    async def wait() -> str:
        """Wait for it."""
        go.set()
        await left[0]
        return "built"

    steps = (Say("", calls=[Use("build")]), Say("", calls=[Use("wait")]), "Built.")
    async with serve(helper(tools=[build, wait]), *steps) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Build it")).text == "Built."
        assert session.state.get()["built"] is True
