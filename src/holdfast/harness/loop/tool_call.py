"""Tool calls: write the intent to the log, run the tool, write the outcome to the log.

This is the only module that calls a tool. Errors of a tool never end the run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...cancellation import forget, outcomes
from ...errors import HoldfastError, InvalidValue, LogDamaged, ToolError, ToolMissing
from ...log import events as ev
from ...log.codec import typed
from ...log.events import NewEvent, ids
from ...log.state import FINAL, OpenCall
from ..faults import classify
from ..tools import BadArguments, CallAnswer, Park, Tool, ToolResult
from ..tools.allowance import Allowance
from ..tools.signature import is_async
from ..tools.thread_runner import asked_to_stop, escaped
from ..tools.values import clean
from .budgets import read_again
from .cancellation import GRACE
from .decide import may_start_again
from .delegation import stop
from .driver import Driving, model_called, step_after
from .hooks import run_hooks
from .large_results import shortened
from .proposed_calls import TITLE, approval, asked, decision_events, denied, forbidden, outcome
from .steps import CallModel, RunTools
from .tool_context import Acting
from .typed_output import answer_tool

STOPPED = "It was stopped while it was running; its effects until then remain."


class Ready(Struct, frozen=True):
    """A call that may be carried out, with its tool and arguments. `by` is the reason why it is
    allowed: `policy`, or the id of its approval. `edited` says whether an approver changed the
    arguments, and `answer` is the answer to a question that the call asked."""

    call: ev.Call
    tool: Tool
    arguments: Any
    by: str
    edited: bool = False
    answer: CallAnswer | None = None


def startable(
    driving: Driving, calls: Sequence[ev.Call], message: Sequence[NewEvent]
) -> list[Ready]:
    """Return the calls of a message that is about to be logged, if all of them can be carried out
    right after it; otherwise an empty list."""
    config = driving.config
    found = [config.agent.tool(call.name, config.mode(driving.state)) for call in calls]
    allowed = [tool for tool in found if tool is not None and not denied(driving, tool)]
    wanted = RunTools(tuple(call.id for call in calls))
    if not calls or len(allowed) < len(calls) or step_after(driving, *message) != wanted:
        return []
    return [
        Ready(call, tool, call.arguments, "policy")
        for call, tool in zip(calls, allowed, strict=True)
    ]


async def run_tools(driving: Driving, ids: tuple[str, ...]) -> bool:
    """Carry out these calls concurrently. Each outcome is logged as soon as it is available.
    Returns whether the intent to call the model was logged together with the last outcome."""
    ready: list[Ready] = []
    events: list[NewEvent] = []
    for id in ids:
        found = await prepared(driving, id, driving.state.calls[id])
        (ready if isinstance(found, Ready) else events).append(found)  # type: ignore[arg-type]
    events.extend(started(driving, item) for item in ready)
    if not driving.still(RunTools(ids)) or any(refused(driving, item) for item in ready):
        return False  # the state changed while they were prepared: decide again
    if not (await driving.write(*events, expected=driving.state.head) and ready):
        return False
    await run_hooks(driving)
    return await carry_out(driving, ready)


async def carry_out(driving: Driving, ready: list[Ready]) -> bool:
    """Carry out calls whose start is logged. Returns whether the intent to call the model was
    logged together with the last outcome."""
    return bool(await driving.watch(_all(driving, ready)))


def refused(driving: Driving, ready: Ready) -> bool:
    """Return whether a call that is about to start is no longer allowed."""
    open = driving.state.calls[ready.call.id]
    begins = (open.status in ("proposed", "approved") or _not_made(open)) and not open.parked
    return begins and denied(driving, ready.tool)


def _not_made(open: OpenCall) -> bool:
    """Return whether a probe said that a started call did not take effect."""
    return open.status == "started" and open.probe == "not_happened"


def check_tools(driving: Driving) -> None:
    """Raise `ToolMissing` if a run that is about to resume needs a tool which does not exist."""
    config, state = driving.config, driving.state
    for call in state.calls.values():
        lost = call.status == "started" and (may_start_again(call) or call.probe == "due")
        needed = call.status == "approved" or lost
        if needed and config.agent.tool(call.name, config.mode(state)) is None:
            raise missing(driving, call.name)


def missing(driving: Driving, tool: str) -> ToolMissing:
    """Create the error for a tool that a call needs, but that does not exist here."""
    session = driving.live.key.session
    return ToolMissing(session=session, agent=driving.config.agent.key, tool=tool)


async def prepared(driving: Driving, id: str, open: OpenCall) -> Ready | NewEvent:
    """Return a call that is ready to run, or the event to write instead. If the tool has changed
    since the decision, approval is requested again. Raises `ToolMissing` if the tool no longer
    exists."""
    call = await call_of(driving, id, open)
    config = driving.config
    tool = config.agent.tool(open.name, config.mode(driving.state))
    if open.name == FINAL:
        tool = await answer_tool(driving)
    if tool is None and call.fingerprint is not None:
        raise missing(driving, open.name)
    if tool is None or (open.status == "proposed" and id not in driving.judged):
        # Another driver checked it, but its decision is lost: check it again before it runs.
        if about := await decision_events(driving, call, tool, again=driving.state.head):
            return about[0]
        assert tool is not None, "the tool was not found, although it was checked before"
    arguments, by, edited = await terms_of(driving, call, open)
    if call.fingerprint not in (None, tool.fingerprint) and not await _agreed(driving, open, tool):
        return asked(driving, replace(call, arguments=arguments), tool, again=open.since)
    try:
        parsed = tool.parse(arguments)
    except BadArguments as error:
        return outcome(driving, id, error.result())
    # The arguments or the rules may have changed since the approval: a denial still wins.
    allowed = (open.status == "approved" or _not_made(open)) and not open.parked
    if allowed and await approval(driving, call, tool, parsed) == "deny":
        return forbidden(driving, id)
    if open.status == "proposed" and denied(driving, tool):
        return forbidden(driving, id)
    return Ready(call, tool, arguments, by, edited, await _answer(driving, open))


async def terms_of(driving: Driving, call: ev.Call, open: OpenCall) -> tuple[Any, str, bool]:
    """Return the arguments of a call, the reason why the call is allowed, and whether an approver
    has changed the arguments, either now or before an earlier attempt."""
    arguments, by, edited = call.arguments, "policy", False
    if open.started is not None:
        before = await driving.live.payload(open.started, ev.ToolStarted)
        if before is not None:
            by = before.by or by
            edited = before.arguments is not None
            arguments = before.arguments if edited else arguments
    if open.status == "approved":
        by = open.item or "approval"
        settled = await driving.live.payload(open.since, ev.PendingSettled)
        if settled is not None and isinstance(settled.answer, dict):
            edited = edited or "arguments" in settled.answer
            arguments = settled.answer.get("arguments", arguments)
    return arguments, by, edited


async def _answer(driving: Driving, open: OpenCall) -> CallAnswer | None:
    """Return the answer to the question that a call asked, or None."""
    event = None if open.answer is None else await driving.live.event(open.answer)
    said = typed(event) if event is not None else None
    if event is None or not isinstance(said, ev.PendingSettled):
        return None
    return CallAnswer(outcome=said.outcome, value=said.answer, reason=said.reason, by=event.actor)


async def _agreed(driving: Driving, open: OpenCall, tool: Tool) -> bool:
    """Return whether the tool was approved after its last change."""
    if open.status != "approved" or "~" not in (open.item or ""):
        return False
    opened = int((open.item or "").rpartition("~")[2])
    async for event in driving.live.store.read(driving.live.key, after=opened):
        if event.kind == "pending.opened":
            payload = typed(event)
            if isinstance(payload, ev.PendingOpened) and payload.id == open.item:
                return bool((payload.detail or {}).get("fingerprint") == tool.fingerprint)
    return False


async def call_of(driving: Driving, id: str, open: OpenCall) -> ev.Call:
    """Return an open call with its arguments. Raises `LogDamaged` if they were erased."""
    if open.parent is not None:
        nested = await driving.live.payload(open.seq, ev.ToolNested)
        calls = [nested.call] if nested else []
    else:
        message = await driving.live.payload(open.seq, ev.MessageCompleted)
        calls = message.calls if message else []
    found = next((call for call in calls if call.id == id), None)
    if found is None:
        raise unreadable(driving, open.seq)
    return found


def unreadable(driving: Driving, seq: int) -> LogDamaged:
    """Create the error for an event whose calls can no longer be read."""
    key = driving.live.key
    return LogDamaged(
        problem=f"event {seq} is no longer readable: abort the run to continue",
        tenant=key.tenant,
        session=key.session,
        thread=key.thread,
        seq=seq,
    )


def started(driving: Driving, ready: Ready) -> NewEvent:
    """Create the event that records the intent to run a tool. Once it is logged, a call without an
    outcome may have taken effect."""
    tool = ready.tool
    payload = ev.ToolStarted(
        call=ready.call.id,
        name=tool.name,
        key=ready.call.id,
        by=ready.by,
        arguments=ready.arguments if ready.edited else None,
        repeat=tool.repeat_safe,
        tell=tool.on_unknown == "tell",
        probe=tool.probe is not None,
    )
    return driving.event("tool.started", payload)


async def _all(driving: Driving, ready: list[Ready]) -> bool:
    everything = asyncio.Semaphore(driving.config.parallel)
    names = {item.tool.name: item.tool.concurrency for item in ready}
    each = {name: asyncio.Semaphore(most or len(ready)) for name, most in names.items()}

    done: dict[str, ToolResult] = {}

    async def one(item: Ready) -> bool:
        async with each[item.tool.name], everything:
            try:
                done[item.call.id] = result = await carried_out(driving, item)
            except Park as park:
                await _park(driving, item, park)
                return False
        return await _kept_last(driving, item, result)

    tasks = {asyncio.create_task(one(item)): item for item in ready}
    try:
        # If one outcome cannot be written, the others still finish.
        ends = await outcomes(*tasks)
    except asyncio.CancelledError:
        await _cut(driving, tasks, done)
        raise
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return True in ends


async def _kept_last(driving: Driving, ready: Ready, result: ToolResult) -> bool:
    """Write the outcome of a call. If the model is called next, the same append records the intent
    to call it. Returns whether this intent was recorded."""
    await read_again(driving)
    with contextlib.suppress(InvalidValue):  # the log cannot hold the outcome
        logged = await shortened(driving, ready.tool, ready.call.id, result)
        event = outcome(driving, ready.call.id, logged)
        if isinstance(step := step_after(driving, event), CallModel):
            called = model_called(driving, step)
            if await driving.write(event, called, expected=driving.state.head):
                return True
    await kept(driving, ready, result)
    return False


async def kept(driving: Driving, ready: Ready, result: ToolResult) -> ToolResult:
    """Write the outcome of a call, and return its result. If the result cannot be logged, because
    it is too large or not JSON, the tool counts as failed."""
    try:
        logged = await shortened(driving, ready.tool, ready.call.id, result)
        await driving.write(outcome(driving, ready.call.id, logged))
    except InvalidValue as error:
        result = _failed(driving, ready.tool, error)
        await driving.write(outcome(driving, ready.call.id, result))
    return result


async def _park(driving: Driving, ready: Ready, park: Park) -> None:
    """Open the pending item with which a call waits for an answer. Has no effect if the item has an
    id of its own and was answered before it was opened. If the call is cancelled first, a sub-agent
    that it started is stopped."""
    try:
        await _asks(driving, ready, park)
    except asyncio.CancelledError:
        going = driving.failure is None and not driving.stopping  # otherwise the next driver asks
        if going and park.id is not None and ids.is_child(park.id):
            await stop(driving, [ids.child_call(park.id)])
        raise
    except (InvalidValue, TypeError) as error:  # the log cannot hold the question
        await kept(driving, ready, _failed(driving, ready.tool, error))


async def _asks(driving: Driving, ready: Ready, park: Park) -> None:
    event, id = _parked(driving, ready, park), ready.call.id
    if park.id is None:
        await driving.write(event)
        return
    while (call := driving.state.calls.get(id)) is not None and call.status == "started":
        if await driving.write(event, expected=driving.state.head):
            return


def _parked(driving: Driving, ready: Ready, park: Park) -> NewEvent:
    """Create the event that opens a pending item. The call resumes when the item is answered."""
    expires = None if park.expires is None else driving.now() + int(park.expires * 1000)
    payload = ev.PendingOpened(
        id=park.id or f"{ready.call.id}!{driving.state.head}",
        what=park.what,
        call=ready.call.id,
        title=park.title[:TITLE],
        expires=expires,
        detail={**park.detail, "tool": ready.tool.name, "arguments": ready.call.arguments},
        parked=True,
    )
    return driving.event("pending.opened", payload)


async def _cut(
    driving: Driving, tasks: dict[asyncio.Task[bool], Ready], done: dict[str, ToolResult]
) -> None:
    """Cancel the running calls, and write an outcome for each; results of finished calls are
    kept."""
    running = [task for task in tasks if not task.done()]
    for task in tasks:
        task.add_done_callback(forget)  # errors of other tasks are reported already
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=GRACE)
    if driving.failure is not None:
        return  # the lease is lost; the next driver records that the outcome is unknown
    stopped = ToolResult(content=f"This call was cancelled. {STOPPED}", code="cancelled")
    open = [item.call.id for item in tasks.values() if item.call.id in driving.state.calls]
    for item in tasks.values():
        if item.call.id in done and item.call.id in open:
            await kept(driving, item, done[item.call.id])
    events: list[NewEvent] = []
    if not driving.stopping:  # otherwise the next driver continues them, or asks
        ended = {i.call.id for t, i in tasks.items() if t.done() and is_async(i.tool.function)}
        for id in (id for id in open if id not in done):
            # A thread, or a task that ignores cancellation, may still be acting.
            how = "cancelled" if id in ended else "unknown"
            events.append(outcome(driving, id, stopped, how))
    if events:
        await driving.write(*events)


async def carried_out(driving: Driving, ready: Ready, outer: Acting | None = None) -> ToolResult:
    """Run the tool of a call, and return its result, or its error as text for the model. Errors of
    the tool are never raised. Raises `Park` if the call waits for an answer."""
    tool, call = ready.tool, ready.call
    acting = Acting(driving, call.id, tool.name, 0 if outer is None else outer.depth + 1)
    acting.answer, acting.open = ready.answer, True
    time = acting.time = Allowance(tool.timeout, None if outer is None else outer.time)
    driving.log.info("tool_started", category="tool", tool=tool.name, call=call.id)
    try:
        with driving.config.tracing.tool(tool.name, call.id):
            async with time:
                result = await tool.call(tool.parse(ready.arguments), acting)
        acting.returned = call.id in driving.state.calls
    except TimeoutError as error:
        problem = f"The tool did not finish within {tool.timeout:g} s." if time.over else None
        return _failed(driving, tool, error, problem, "tool_timeout" if time.over else None)
    except Park:
        if outer is None:
            raise
        nested = ToolError(problem="a nested call cannot wait for an answer")
        return _failed(driving, tool, nested)
    except asyncio.CancelledError:
        if asked_to_stop():
            raise
        stray = ToolError(problem="the function was cancelled without a request to stop")
        return _failed(driving, tool, stray)
    except BaseException as error:  # a tool may raise anything
        return _failed(driving, tool, escaped(error))
    driving.log.info("tool_finished", category="tool", tool=tool.name, call=call.id)
    return result


def _failed(
    driving: Driving,
    tool: Tool,
    error: BaseException,
    problem: str | None = None,
    code: str | None = None,
) -> ToolResult:
    fault = classify(error, source="tool", policy=driving.config.policy)
    driving.log.warning("tool_failed", category="tool", tool=tool.name, error=fault)
    problem = problem or failure_text(driving, "tool", error)
    code = code or fault.code
    data = {"error": {"code": code, "message": problem, "tool": tool.name}}
    return ToolResult(content=problem, data=data, failed=True, code=code)


def failure_text(driving: Driving, what: str, error: BaseException) -> str:
    """Describe a failed function of a tool. Holdfast's own error messages are safe to show; others
    may contain secrets."""
    plain = isinstance(error, HoldfastError) or driving.config.policy.expose_internal_errors
    return clean(f"The {what} failed: {error}") if plain else f"The {what} failed."
