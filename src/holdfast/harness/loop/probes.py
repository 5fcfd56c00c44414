"""Probes: ask a tool whether a call whose outcome was lost took effect, and write the answer to the
log.

This is the only module that calls a probe. A probe only reads, so it may be asked again; whatever
goes wrong in it means that it does not know.
"""

from __future__ import annotations

import asyncio

from ...cancellation import completed, forget
from ...errors import InvalidValue, LogDamaged, ToolError
from ...log import events as ev
from ...log.events import NewEvent
from ...log.state import OpenCall
from ..faults import classify
from ..tools import BadArguments, DontKnow, Happened, NotHappened, ProbeAnswer, Tool
from ..tools.thread_runner import asked_to_stop, escaped
from ..tools.values import clean
from .cancellation import GRACE
from .driver import Driving
from .large_results import shortened
from .proposed_calls import outcome
from .steps import AskProbe
from .tool_call import call_of, failure_text, missing, terms_of
from .tool_context import Acting

REASON = 1_000  # characters of the reason why a probe does not know


class ProbeContext(Acting):
    """The context of a probe: that of the call, with the same key, but without the methods that
    change the session."""

    def _acts(self) -> Driving:
        raise ToolError(problem="a probe only looks: it cannot change the session or call a tool")


async def ask_probes(driving: Driving, step: AskProbe) -> None:
    """Ask the probes of these calls concurrently. Each answer is logged as soon as it is
    available."""
    await driving.watch(_all(driving, step.calls))


async def _all(driving: Driving, ids: tuple[str, ...]) -> None:
    several = asyncio.Semaphore(driving.config.parallel)

    async def one(id: str) -> None:
        async with several:
            await ask_probe(driving, id)

    tasks = [asyncio.create_task(one(id)) for id in ids]
    try:
        await completed(*tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.add_done_callback(forget)
            task.cancel()
        await asyncio.wait(tasks, timeout=GRACE)
        raise


async def ask_probe(driving: Driving, id: str) -> None:
    """Ask the probe of one call, and write the answer. If the call happened, the same append has
    its outcome."""
    open = driving.state.calls[id]
    answer = await _answer(driving, id, open)
    if asked_to_stop() or driving.state.calls.get(id) != open:
        return  # the probe ignored its cancellation, and the call may have ended meanwhile
    try:
        await driving.write(*_events(driving, id, await _shortened(driving, id, open, answer)))
    except InvalidValue as error:  # the log cannot hold the result
        unknown = _failed(driving, open, error)
        await driving.write(*_events(driving, id, unknown))


async def _shortened(driving: Driving, id: str, open: OpenCall, answer: ProbeAnswer) -> ProbeAnswer:
    tool = driving.config.agent.tool(open.name, driving.config.mode(driving.state))
    if tool is None or not isinstance(answer, Happened):
        return answer
    return Happened(await shortened(driving, tool, id, answer.result))


def _events(driving: Driving, id: str, answer: ProbeAnswer) -> list[NewEvent]:
    if isinstance(answer, Happened):
        payload = ev.ToolProbed(call=id, outcome="happened")
        return [driving.event("tool.probed", payload), outcome(driving, id, answer.result)]
    if isinstance(answer, NotHappened):
        return [driving.event("tool.probed", ev.ToolProbed(call=id, outcome="not_happened"))]
    reason = None if answer.reason is None else clean(str(answer.reason))[:REASON]
    payload = ev.ToolProbed(call=id, outcome="unknown", reason=reason)
    return [driving.event("tool.probed", payload)]


async def _answer(driving: Driving, id: str, open: OpenCall) -> ProbeAnswer:
    """Return the answer of the probe of a call, for the arguments with which it was started. Raises
    `ToolMissing` if the tool does not exist here: a program that has it asks its probe."""
    tool = driving.config.agent.tool(open.name, driving.config.mode(driving.state))
    if tool is None:
        raise missing(driving, open.name)
    if tool.probe is None:
        return DontKnow("The tool has no probe any more.")
    try:
        call = await call_of(driving, id, open)
        arguments, _, _ = await terms_of(driving, call, open)
        parsed = tool.parse(arguments)
    except (BadArguments, LogDamaged):
        return DontKnow("The tool does not take the arguments of this call any more.")
    answer = await _asked(driving, tool, open, parsed, ProbeContext(driving, id, tool.name))
    about = {"tool": tool.name, "call": id, "answer": type(answer).__name__}
    driving.log.info("tool_probed", category="tool", **about)
    return answer


async def _asked(
    driving: Driving, tool: Tool, open: OpenCall, arguments: dict[str, object], acting: Acting
) -> ProbeAnswer:
    time = asyncio.timeout(tool.probe_timeout)
    try:
        async with time:
            return await tool.probed(arguments, acting)
    except asyncio.CancelledError:
        if asked_to_stop():
            raise
        stray = ToolError(problem="the probe was cancelled without a request to stop")
        return _failed(driving, open, stray)
    except BaseException as error:  # a probe may raise anything
        late = isinstance(error, TimeoutError) and time.expired()
        problem = f"The probe did not answer within {tool.probe_timeout:g} s." if late else None
        return _failed(driving, open, escaped(error), problem)


def _failed(
    driving: Driving, open: OpenCall, error: BaseException, problem: str | None = None
) -> DontKnow:
    fault = classify(error, source="tool", policy=driving.config.policy)
    driving.log.warning("probe_failed", category="tool", tool=open.name, error=fault)
    return DontKnow(problem or failure_text(driving, "probe", error))
