"""Handles the tool calls that a model proposes. Each is validated, then allowed, submitted for
approval or denied, before any of them is carried out. The decisions are logged together with the
message."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from ...log import events as ev
from ...log.events import NewEvent, ids, new_id
from ...log.state import FINAL, OPEN_CALLS, Grants
from ...models.port import CallChunk
from ...values.risk import level
from ..agents.config import CALLS
from ..tools import Approval, BadArguments, Tool, ToolResult
from ..tools.stored_results import StoredResult
from .driver import Driving
from .large_results import offered
from .policy import allowed, hidden
from .tool_context import Acting
from .typed_output import NUDGE, answer, answer_tool

TITLE = 200
NUDGES = 3  # reminders in a row to a model that does not give its typed answer


async def proposed(
    driving: Driving, chunks: Sequence[CallChunk]
) -> tuple[list[ev.Call], list[NewEvent]]:
    """Return the calls that a model proposed, with new ids, and the events that record the
    decisions about them."""
    tools = offered(driving)
    output = await answer_tool(driving)
    if output is not None:
        tools = {**tools, FINAL: output}
        if not chunks:
            return [], [_nudge(driving)] if await _nudged(driving) < NUDGES else []
    calls: list[ev.Call] = []
    events: list[NewEvent] = []
    ids: set[str | None] = set()
    for n, chunk in enumerate(chunks):
        found = tools.get(chunk.name)
        call = ev.Call(
            id=new_id(),
            name=chunk.name,
            arguments=chunk.arguments,
            provider_id=chunk.id if chunk.id not in ids else None,
            fingerprint=found.fingerprint if found else None,
        )
        calls.append(call)
        ids.add(chunk.id)
        if n < CALLS:
            driving.judged.add(call.id)
            events.extend(await decision_events(driving, call, found))
        elif n < OPEN_CALLS:  # the rest is rejected in later steps
            events.append(too_many(driving, call.id))
    return calls, events


def too_many(driving: Driving, call: str) -> NewEvent:
    """Create the event that rejects a call because its message contains too many calls."""
    problem = f"A message can make at most {CALLS} calls: this one was not made."
    return outcome(driving, call, ToolResult(content=problem, failed=True))


async def decision_events(
    driving: Driving, call: ev.Call, tool: Tool | None, *, again: int = 0
) -> list[NewEvent]:
    """Return the events that record the decision on one call; an empty list if the call may be
    carried out. If `again` is set, a new approval is requested, regardless of an earlier
    decision."""
    if tool is None:
        problem = f"There is no tool {call.name!r} here."
        refused = ToolResult(content=problem, failed=True, code="no_such_tool")
        return [outcome(driving, call.id, refused)]
    try:
        arguments = tool.parse(call.arguments)
    except BadArguments as error:
        return [outcome(driving, call.id, error.result())]
    if tool.name == FINAL:
        return [outcome(driving, call.id, ToolResult(data=answer(call.arguments)))]
    match await approval(driving, call, tool, arguments):
        case "deny":
            return [forbidden(driving, call.id)]
        case "ask":
            return [asked(driving, call, tool, again=again)]
        case _:
            return []


async def approval(
    driving: Driving, call: ev.Call, tool: Tool, arguments: dict[str, Any]
) -> Approval:
    """Return the approval policy's decision about a call, based on the current rules, grants, mode
    and tool."""
    mode = driving.config.mode(driving.state)
    said: Approval | None
    try:
        judging = tool.approval_of(arguments, Acting(driving, call.id, tool.name))
        said = await driving.watch(judging) if callable(tool.approval) else await judging
    except Exception as error:  # if the decision fails, ask a person
        driving.log.error("approval_failed", category="approval", error=error, tool=tool.name)
        said = "ask"
    grants = driving.state.grants
    decided, _ = allowed(
        said or "ask",
        mode.approval,
        tool=tool.name,
        category=tool.category,
        rules=driving.shared.state.rules,
        grants=grants if grants.driver == driving.config.owner else Grants(),
        several=tool.approvals > 1,
    )
    return decided


def denied(driving: Driving, tool: Tool) -> bool:
    """Return whether a rule or the mode denies the tool now, regardless of the decision when the
    call was proposed."""
    rules, mode = driving.shared.state.rules, driving.config.mode(driving.state)
    return hidden(tool.name, tool.category, rules) or mode.approval == "deny"


def forbidden(driving: Driving, call: str) -> NewEvent:
    """Create the event that rejects a call because a rule, a mode or the tool itself denies it."""
    result = ToolResult(content="This call is not allowed here.", code="denied")
    return outcome(driving, call, result, "denied")


def asked(driving: Driving, call: ev.Call, tool: Tool, *, again: int = 0) -> NewEvent:
    """Create the event that requests an approval of a call, for this version of the tool and these
    arguments."""
    expires = None if tool.expires is None else driving.now() + int(tool.expires * 1000)
    detail = {
        "tool": tool.name,
        "arguments": call.arguments,
        "fingerprint": tool.fingerprint,
        "category": tool.category,
        "risk": tool.risk,
        "permissions": msgspec.to_builtins(tool.permissions),
        "mode": driving.config.mode(driving.state).name,
    }
    payload = ev.PendingOpened(
        id=f"{call.id}~{again}" if again else call.id,
        what="approval",
        call=call.id,
        title=title(call),
        expires=expires,
        detail={name: value for name, value in detail.items() if value},
        risk=level(tool.name, call.arguments, tool.risk),
        approvals=tool.approvals,
    )
    return driving.event("pending.opened", payload)


def title(call: ev.Call) -> str:
    """Format a call as users read it: `refund(order='42', cents=1999)`."""
    given = call.arguments if isinstance(call.arguments, dict) else {}
    listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"{call.name}({listed})"[:TITLE]


def outcome(
    driving: Driving, call: str, result: ToolResult, how: Any = None, **more: Any
) -> NewEvent:
    """Create the event with the outcome of a call. Its id is derived from the call's id, so that
    there is only one such event."""
    text = None if result.data is None else msgspec.json.encode(result.data).decode()
    same = text is None or text == result.content
    stored = result.stored if isinstance(result, StoredResult) else []
    plain = result.content or None if result.data is None and not stored else result.data
    payload = ev.ToolFinished(
        call=call,
        outcome=how or ("failed" if result.failed else "ok"),
        result=plain,
        content=None if (same and not stored) or not result.content else result.content,
        stored=stored,
        refs=[msgspec.to_builtins(ref) for ref in result.refs],
        metadata=result.metadata,
        code=result.code or ("tool_failed" if result.failed else None),
        **more,
    )
    return driving.event("tool.finished", payload, id=ids.done_id(call))


async def _nudged(driving: Driving) -> int:
    """Return how many reminders the model has received since its last tool call."""
    live, found = driving.live, 0
    read = live.store.read(live.key, after=driving.run.seq, reverse=True, log=live.log)
    async with contextlib.aclosing(read) as events:
        async for event in events:
            if event.kind == "message.completed" and event.payload(ev.MessageCompleted).calls:
                break
            if event.kind == "message.received" and event.run == driving.run.id:
                found += event.payload(ev.MessageReceived).text == NUDGE
    return found


def _nudge(driving: Driving) -> NewEvent:
    payload = ev.MessageReceived(text=NUDGE, how="steer", metadata={"by": "holdfast"})
    return driving.event("message.received", payload)
