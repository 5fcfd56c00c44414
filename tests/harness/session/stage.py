"""What the tests of a session's parts share: a workshop of tools, and conversations that use
everything a display shows."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from holdfast import Agent, Mode, ToolContext, ToolError, ToolResult, tool
from holdfast.events import Event
from holdfast.harness.builtins import ASKING, TASKS
from holdfast.harness.session.session import Session
from holdfast.harness.tools import Ref
from holdfast.log.state import fold
from holdfast.models import Say, Use
from holdfast.values.display import Display, display_of, reduce, since

Role: TypeAlias = Literal["created", "modified"]
USAGE = {"input_tokens": 10, "output_tokens": 5}


@tool(approval="auto")
async def write(path: str, context: ToolContext, role: Role = "created") -> ToolResult:
    """Write a file."""
    await context.progress({"written": 1})
    refs = [Ref(kind="file", value=path, role=role)]
    return ToolResult(content="written", data={"path": path}, refs=refs)


@tool(approval="auto")
async def spoil(path: str) -> ToolResult:
    """Fail to write a file."""
    ref = Ref(kind="file", value=path, role="modified")
    return ToolResult(content="the disk is full", refs=[ref], failed=True)


@tool(approval="auto")
async def look(path: str) -> ToolResult:
    """Read a file."""
    return ToolResult(content="text", refs=[Ref(kind="file", value=path, role="read")])


@tool(approval="auto")
async def break_down() -> str:
    """Raise."""
    raise ToolError(problem="the handle came off")


@tool(category="payments", approval="ask")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(category="payments", approval="ask")
async def refund(amount: int) -> str:
    """Pay back."""
    return f"refunded {amount}"


@tool(approval="auto")
async def outer(context: ToolContext) -> str:
    """Call another tool."""
    return (await context.invoke(write, path="inner.txt")).content


def workshop(**parts: Any) -> Agent:
    tools = [write, spoil, look, break_down, pay, refund, outer, *ASKING, *TASKS]
    modes = [Mode("plan", model="scripted/demo"), Mode("build")]
    return Agent("workshop", instructions="Work.", tools=tools, **{"modes": modes, **parts})


def says(*calls: Any, text: str = "", **more: Any) -> Say:
    return Say(text, calls=list(calls), usage=USAGE, **more)


WORK: list[Any] = [
    says(
        Use("write", path="a.txt"),
        Use("write", path="a.txt", role="modified"),
        Use("spoil", path="b.txt"),
        Use("look", path="c.txt"),
        Use("break_down"),
        Use("outer"),
        text="First the files.",
        thought="Which files?",
    ),
    says(Use("task_write", tasks=[{"content": "Paint it", "status": "pending"}])),
    says(Use("task_write", tasks=[{"content": "Paint it", "status": "completed"}])),
    says(Use("pay", amount=1), Use("refund", amount=2), Use("ask_user", question="Colour?")),
    says(text="All done."),
]


async def worked(session: Session) -> list[Event]:
    """A conversation in which everything happens; its log."""
    await session.mode.switch("build")
    result = await session.send("go")
    assert [ask.what for ask in result.pending] == ["approval", "approval", "question"]
    await session.approve(result.pending[0].id)
    await session.deny(result.pending[1].id, "no")
    await session.answer("red", result.pending[2].id)
    assert (await session.wait()).status == "done"
    await session.mode.switch("plan")
    return await session.events()


def played(events: list[Event], start: Display | None = None) -> list[Display]:
    """The display after each event."""
    display, found = start or Display(), []
    for event in events:
        display = reduce(display, event)
        found.append(display)
    return found


def anew(events: list[Event], start: Display | None = None) -> Display:
    """The display of a log, made as a new process makes it."""
    state = fold(events)
    return display_of(state, [e for e in events if e.seq >= since(state)], start=start)
