"""Nested calls: one tool invokes another. The inner call is checked, logged and carried out like
any other call; the model sees only the result of the outer call."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...errors import ToolError
from ...log import events as ev
from ...log.events import NewEvent, ids
from ...log.state import OpenCall
from ..tools import Tool, ToolResult, as_result
from ..tools.stored_results import StoredResult
from ..tools.values import UNKNOWN
from .decide import may_start_again
from .driver import Driving
from .large_results import whole_result
from .probes import ask_probe
from .proposed_calls import decision_events, outcome
from .tool_call import Ready, carried_out, kept, prepared, refused, started
from .tool_context import DEPTH, Acting


async def invoke(
    driving: Driving, outer: Acting, wanted: Tool | str, arguments: dict[str, Any], id: str
) -> ToolResult:
    """Carry out the inner call `id`, or return its outcome if it is already in the log."""
    if driving.state.active is None:
        raise ToolError(problem="no run is active: tools can only be called during a run")
    if outer.depth >= DEPTH:
        raise ToolError(problem=f"nested calls may be at most {DEPTH} deep")
    config = driving.config
    name = wanted if isinstance(wanted, str) else wanted.name
    tool = config.agent.tools_in(config.mode(driving.state)).get(name)
    known = None if tool is None else tool.fingerprint
    call = ev.Call(id=id, name=name, arguments=arguments, fingerprint=known)
    if (before := await _before(driving, call)) is not None:
        return before
    if id not in driving.state.calls:
        payload = ev.ToolNested(call=call, parent=outer.call)
        about = await decision_events(driving, call, tool)
        driving.judged.add(id)
        await driving.write(driving.event("tool.nested", payload, id=ids.nest_id(id)), *about)
    return await _settled(driving, outer, call)


async def _settled(driving: Driving, outer: Acting, call: ev.Call) -> ToolResult:
    """Wait for the approval of a nested call, if needed. Then carry out the call, or return its
    outcome."""
    id = call.id
    with outer.time.held():  # the timeout pauses while a user decides
        while await _waits(driving, id):
            pass
    open = driving.state.calls.get(id)
    if open is None:
        return await _before(driving, call) or ToolResult(content="No result.", failed=True)
    if open.status == "started" and open.probe == "due":
        await ask_probe(driving, id)
        return await _settled(driving, outer, call)
    if open.status == "started" and not may_start_again(open):
        result = ToolResult(content=UNKNOWN, failed=True, code="unknown")
        await driving.write(outcome(driving, id, result, "unknown"))
        return result
    if open.status not in ("proposed", "approved", "started"):
        said = await driving.live.payload(open.since, ev.PendingSettled)
        if open.status == "answered" and said is not None:
            result = as_result(said.answer)
            await driving.write(outcome(driving, id, result))
            return result
        reason = said.reason if said is not None and said.reason else ""
        result = ToolResult(content=f"This call was {open.status}. {reason}".strip(), failed=True)
        how = "denied" if open.status == "denied" else "cancelled"
        await driving.write(outcome(driving, id, result, how))
        return result
    ready = await prepared(driving, id, open)
    if not (await _begun(driving, id, open, ready) and isinstance(ready, Ready)):
        return await _settled(driving, outer, call)  # the log has grown: the call may be denied now
    return await kept(driving, ready, await carried_out(driving, ready, outer))


async def _begun(driving: Driving, id: str, open: OpenCall, ready: Ready | NewEvent) -> bool:
    """Write the event that starts a call, or, if the call is not ready, the event that must be
    written first. Returns False, and writes nothing, if the state has changed. Nested calls start
    one at a time, so that concurrent calls of one tool do not interfere."""
    async with driving.turn:
        if driving.state.calls.get(id) != open:
            return False
        if not isinstance(ready, Ready):
            return await driving.write(ready, expected=driving.state.head)
        if refused(driving, ready):
            return False
        return await driving.write(started(driving, ready), expected=driving.state.head)


async def _waits(driving: Driving, id: str) -> bool:
    """Wait for the next event, or until the pending item of the call expires. An expiry is recorded
    by this function, because the driver is busy with the outer call. Returns False, without
    waiting, if the call does not wait for a decision."""
    open = driving.state.calls.get(id)
    if open is None or open.status != "waiting":
        return False
    item = driving.state.pending.get(open.item or "")
    head, expires = driving.state.head, item.expires if item is not None else None
    left = None if expires is None else max(0.0, (expires - driving.now()) / 1000)
    try:
        async with asyncio.timeout(left):
            await driving.live.until(lambda: driving.state.head > head)
    except TimeoutError:
        late = ev.PendingSettled(id=open.item or "", outcome="expired")
        event = driving.event("pending.settled", late, id=ids.settle_id(late.id))
        await driving.write(event, expected=head)  # no effect if the item was extended
    return True


async def _before(driving: Driving, call: ev.Call) -> ToolResult | None:
    """Return the outcome of an inner call if it is in the log, so that the call is not repeated.
    Raises an error if the id was used for a different call before."""
    live, id = driving.live, call.id
    given = msgspec.json.decode(msgspec.json.encode(call.arguments))
    async for event in live.store.read(live.key, after=driving.run.seq, log=live.log):
        if event.kind == "tool.nested" and event.id == ids.nest_id(id):
            made = event.payload(ev.ToolNested).call
            if (made.name, made.arguments) != (call.name, given):
                raise ToolError(
                    problem=f"id {id} was already used for {made.name!r} with other arguments"
                )
        if event.kind == "tool.finished" and event.id == ids.done_id(id):
            said = event.payload(ev.ToolFinished)
            text = said.content if said.content is not None else said.result
            found = StoredResult(
                content=text if isinstance(text, str) else "",
                data=said.result,
                failed=said.outcome != "ok",
                code=said.code,
                stored=said.stored,
            )
            return await whole_result(driving, found)
    return None
