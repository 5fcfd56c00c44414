"""Calls within calls: a tool that invokes another. The inner call is decided on, logged and
carried out like any other; the model sees only what the outer one returns."""

from __future__ import annotations

from typing import Any

from .. import events as ev
from ..errors import ToolError
from .acting import DEPTH, Acting
from .driving import Driving
from .proposals import judged, outcome
from .tooling import Ready, carried_out, prepared, started
from .tools import Tool, ToolResult


async def invoke(
    driving: Driving, outer: Acting, wanted: Tool | str, arguments: dict[str, Any], id: str
) -> ToolResult:
    """Carry out the inner call `id`, or give its outcome if an earlier driver has it already."""
    if driving.state.active is None:
        raise ToolError(problem="there is no run: tools are called within one")
    if outer.depth >= DEPTH:
        raise ToolError(problem=f"calls within calls go {DEPTH} deep at most")
    config = driving.config
    name = wanted if isinstance(wanted, str) else wanted.name
    tool = config.agent.tools_in(config.mode(driving.state)).get(name)
    known = None if tool is None else tool.fingerprint
    call = ev.Call(id=id, name=name, arguments=arguments, fingerprint=known)
    if (before := await _before(driving, id)) is not None:
        return before
    if id not in driving.state.calls:
        payload = ev.ToolNested(call=call, parent=outer.call)
        about = await judged(driving, call, tool)
        driving.judged.add(id)
        await driving.write(driving.event("tool.nested", payload, id=f"nest:{id}"), *about)
    return await _settled(driving, outer, id)


async def _settled(driving: Driving, outer: Acting, id: str) -> ToolResult:
    """Wait for the answer, if one is needed; then do what it says."""

    def decided() -> bool:
        call = driving.state.calls.get(id)
        return call is None or call.status != "waiting"

    await driving.live.until(decided)
    open = driving.state.calls.get(id)
    if open is None:
        return await _before(driving, id) or ToolResult(content="No result.", failed=True)
    if open.status not in ("proposed", "approved"):
        said = await driving.live.payload(open.since, ev.PendingSettled)
        reason = said.reason if said is not None and said.reason else ""
        result = ToolResult(content=f"This call was {open.status}. {reason}".strip(), failed=True)
        how = "denied" if open.status == "denied" else "cancelled"
        await driving.write(outcome(driving, id, result, how))
        return result
    ready = await prepared(driving, id, open)
    if not isinstance(ready, Ready):
        await driving.write(ready)
        return await _settled(driving, outer, id)
    await driving.write(started(driving, ready))
    result = await carried_out(driving, ready, outer.depth + 1)
    await driving.write(outcome(driving, id, result))
    return result


async def _before(driving: Driving, id: str) -> ToolResult | None:
    """The outcome of an inner call that is in the log: its work is not done again."""
    live = driving.live
    async for event in live.store.read(live.key, after=driving.run.seq, log=live.log):
        if event.kind == "tool.finished" and event.id == f"done:{id}":
            said = event.payload(ev.ToolFinished)
            text = said.content if said.content is not None else said.result
            return ToolResult(
                content=text if isinstance(text, str) else "",
                data=said.result,
                failed=said.outcome != "ok",
                code=said.code,
            )
    return None
