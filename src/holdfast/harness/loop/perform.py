"""Performs the steps that `decide` returned. Every effect of a step is recorded in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Literal

from msgspec.structs import replace

from ...log import events as ev
from ...log.codec import LIMITS
from ...log.events import NewEvent, ids
from ...log.state import OpenCall
from ...models.port import FromUser, ModelCall, Text, TextChunk
from ..agents.agent import settled
from ..agents.config import ANSWER
from ..faults import classify, make, public
from ..tools import ToolResult
from ..tools.thread_runner import asked_to_stop
from ..tools.values import UNKNOWN, clean
from .budgets import questions
from .delegation import report, stop_all
from .driver import Driving, model_called
from .hooks import run_hooks
from .model_call import call_model, finished, interrupted, steering_removed
from .model_stream import checked_chunks
from .probes import ask_probes
from .proposed_calls import outcome, title, too_many
from .run_start import start_driving, start_events
from .schedule_firing import tick
from .steps import (
    AskOutcome,
    AskProbe,
    CallModel,
    Compact,
    Conclude,
    Expire,
    Finish,
    Fire,
    Refuse,
    Report,
    RunTools,
    SetDue,
    Start,
    Step,
    Supersede,
    Tick,
    Wait,
    Warn,
)
from .tool_call import carry_out, run_tools, unreadable

BATCH = 500  # outcomes of calls in one append
SUMMARISE = (
    "Summarise the conversation above for yourself, so that you can continue without it: what the "
    "user wants, what was decided and done, names, numbers and open points. Be short and exact."
)
WORDS = {
    "denied": "This call was denied.",
    "expired": "Nobody answered in time; the call was not made.",
    "superseded": "A new message came instead of an answer; the call was not made.",
    "abandoned": "The call was abandoned and not made.",
}


async def perform(step: Step, driving: Driving) -> None:
    """Perform one step. If the log has grown since the decision, do nothing: the next step is then
    decided again."""
    await _STEPS[type(step)](driving, step)


async def take_up(driving: Driving) -> None:
    """Resume a run that was waiting, or that another driver left unfinished. The text of an
    unfinished message is kept in the log, but not shown to the model, which will write the message
    again."""
    head = driving.state.head  # the state that the decision was based on; it may grow meanwhile
    reason = "answered" if driving.run.status == "waiting" else "driver_lost"
    if driving.config.versions == "warn" and driving.config.another(driving.state):
        reason = "version"
        before, now = driving.run.version, driving.config.agent.version
        driving.log.warning("agent_changed", category="run", before=before, now=now)
    events = [
        driving.event(
            "message.interrupted",
            ev.MessageInterrupted(text=draft.text[:ANSWER], reason="driver_lost", shown=False),
            id=draft.message,
        )
        for draft in await driving.live.store.drafts(driving.live.key)
    ]
    payload = ev.RunResumed(driver=driving.config.owner, reason=reason)
    events.append(driving.event("run.resumed", payload))
    if await driving.write(*events, expected=head):
        driving.take(driving.run.id)


async def hand_over(driving: Driving) -> None:
    """Record that the run waits and is due now, so that another driver can resume it
    immediately."""
    while driving.mine and driving.state.active is not None:
        # Due by the clock of the store, if the clock of this process is ahead.
        due = min(driving.now(), driving.state.driven)
        payload = ev.RunWaiting(due=due, reason="handover")
        events = [*interrupted(driving, "handover", shown=False)]
        events.append(driving.event("run.waiting", payload))
        if await driving.write(*events, expected=driving.state.head):
            driving.flight = None


async def _start(driving: Driving, step: Start) -> None:
    message = await driving.live.taken(step.input)
    if not driving.still(step):
        return  # it was removed from the queue, or another message is first now
    events = start_events(driving.config, driving.state, step, message)
    if await driving.write(*events, expected=driving.state.head):
        start_driving(driving, driving.run.id)
        if not step.full:
            await run_hooks(driving)
            await take_turns(driving)


async def _call_model(driving: Driving, step: CallModel) -> None:
    # The last call may have been stopped at a time limit, and the clock set back afterwards.
    events = [*interrupted(driving, "stopped", shown=False), model_called(driving, step)]
    if await driving.write(*events, expected=driving.state.head):
        driving.flight = None
        await run_hooks(driving)
        await take_turns(driving)


async def take_turns(driving: Driving) -> None:
    """Call the model, carry out its tool calls, and repeat, as long as the intent of the next call
    was logged together with the outcome of the last call."""
    while ready := await call_model(driving):
        if not await carry_out(driving, ready):
            return


async def _refuse(driving: Driving, step: Refuse) -> None:
    message = await driving.live.payload(step.seq, ev.MessageCompleted)
    if message is None:
        raise unreadable(driving, step.seq)
    if not driving.still(step):
        return
    some = message.calls[len(message.calls) - step.left :][:BATCH]
    before = driving.state.excess
    written = await driving.write(
        *(too_many(driving, call.id) for call in some), expected=driving.state.head
    )
    if written and driving.state.excess == before:  # the outcomes exist, but are not counted
        raise unreadable(driving, step.seq)


async def _run_tools(driving: Driving, step: RunTools) -> None:
    if await run_tools(driving, step.calls):
        await take_turns(driving)


async def _conclude(driving: Driving, step: Conclude) -> None:
    events: list[NewEvent] = []
    for id in step.calls[:BATCH]:  # the rest follows in the next step
        call = driving.state.calls[id]
        events.append(await _concluded(driving, id, call))
        events.extend(
            _settle(driving, item, "abandoned")
            for item, open in driving.state.pending.items()
            if open.call == id
        )
    if driving.still(step):
        await driving.write(*events, expected=driving.state.head)


async def _concluded(driving: Driving, id: str, call: OpenCall) -> NewEvent:
    """Create the event with the outcome of a call that is not carried out. The outcome follows from
    the decision about the call."""
    if call.status == "started":
        result = ToolResult(code="unknown", content=UNKNOWN)
        return outcome(driving, id, result, "unknown")
    said = await driving.live.payload(call.since, ev.PendingSettled)
    if call.status == "answered" and said is not None:
        return outcome(driving, id, ToolResult(data=said.answer))
    reason = said.reason if said is not None else None
    if call.started is not None and not call.parked:
        text = f"{UNKNOWN} {reason or ''}".strip()
        return outcome(driving, id, ToolResult(content=text, code="unknown"), "unknown")
    words = WORDS.get(call.status, WORDS["abandoned"])
    result = ToolResult(
        content=f"{words} Reason: {reason}" if reason else words, code=_code(call.status)
    )
    how = "denied" if call.status == "denied" else "cancelled"
    return outcome(driving, id, result, how, error=reason)


def _code(status: str) -> str:
    return status if status in WORDS else "abandoned"


async def _ask_outcome(driving: Driving, step: AskOutcome) -> None:
    events: list[NewEvent] = []
    for id in step.calls:
        call = driving.state.calls[id]
        message = await driving.live.payload(call.seq, ev.MessageCompleted)
        made = next((c for c in message.calls if c.id == id), None) if message else None
        start = await driving.live.payload(call.started or 0, ev.ToolStarted)
        if made is not None and start is not None and start.arguments is not None:
            made = replace(made, arguments=start.arguments)  # an approver changed the arguments
        payload = ev.PendingOpened(
            id=f"{id}@{call.started}",
            what="external",
            call=id,
            title=f"Did this happen? {title(made) if made else call.name}",
            detail={
                "tool": call.name,
                "arguments": made.arguments if made else None,
                "why": await _why(driving, call),
                "answers": "approve: run it again; deny: tell the model; answer: its result",
            },
        )
        events.append(driving.event("pending.opened", payload))
    if driving.still(step):
        await driving.write(*events, expected=driving.state.head)


async def _why(driving: Driving, call: OpenCall) -> str:
    """Return the reason why the outcome of a call is not known."""
    why = "the process crashed while the tool was running"
    if call.probe != "unknown":
        return why
    probed = await driving.live.payload(call.since, ev.ToolProbed)
    reason = f" ({probed.reason})" if probed is not None and probed.reason else ""
    return f"{why}, and its probe does not know whether it happened{reason}"


async def _expire(driving: Driving, step: Expire) -> None:
    events = [_settle(driving, id, "expired") for id in step.items]
    await driving.write(*events, expected=driving.state.head)  # it may have been extended


async def _supersede(driving: Driving, step: Supersede) -> None:
    await driving.write(*(_settle(driving, id, "superseded") for id in step.items))


async def _warn(driving: Driving, step: Warn) -> None:
    events = [driving.event("pending.warned", ev.PendingWarned(id=id)) for id in step.items]
    await driving.write(*events, expected=driving.state.head)


async def _fire(driving: Driving, step: Fire) -> None:
    events: list[NewEvent] = []
    for id, timer in [(id, driving.state.timers[id]) for id in step.timers]:
        if sum(len(event.data) for event in events) > LIMITS.append_bytes // 8:
            break  # the rest follows in the next step
        told = await driving.live.payload(timer.seq, ev.TimerSet)
        text = told.text if told else ""
        metadata = {**(told.metadata if told else {}), "timer": id}
        message = ev.MessageReceived(text=text, metadata=metadata)
        rest: dict[str, Any] = {"id": ids.timer_id(timer.seq), "actor": "timer"}
        events.append(NewEvent.of("message.received", message, **rest))
        events.append(NewEvent.of("timer.fired", ev.TimerFired(id=id)))
    if driving.still(step):
        await driving.write(*events, expected=driving.state.head)


async def _plan(driving: Driving, step: SetDue) -> None:
    event = NewEvent.of("timer.planned", ev.TimerPlanned(due=step.due))
    await driving.write(event, expected=driving.state.head)


async def _wait(driving: Driving, step: Wait) -> None:
    event = driving.event("run.waiting", ev.RunWaiting(due=step.due))
    await driving.write(event, expected=driving.state.head, last=True)


async def _finish(driving: Driving, step: Finish) -> None:
    await stop_all(driving)  # first, since nothing aborts them after the run has ended
    state = driving.state
    events = [*interrupted(driving, step.code), *steering_removed(driving), *_closed(driving, step)]
    while len(events) > BATCH:  # many nested calls are open
        if not await driving.write(*events[:BATCH], expected=state.head):
            return
        driving.flight, state, events = None, driving.state, events[BATCH:]
    fault = message = None
    if step.status == "failed":
        fault = make(step.code or "run_failed")
        message = public(fault, driving.config.policy, driving.config.redactor).message
    events.append(finished(driving, step.status, step.code, message))
    if step.code == "limit_budget":
        events += questions(driving)
    if await driving.write(*events, expected=state.head, last=True):
        driving.flight = None
        driving.log.info("run_finished", category="run", status=step.status, code=step.code)
        if fault is not None and fault.category == "run":  # all others were logged before
            driving.log.warning("run_failed", category="run", error=fault)


def _closed(driving: Driving, step: Finish) -> list[NewEvent]:
    """Create the events that settle all open items and calls of a run that ends. Questions about
    budgets stay open for an operator."""
    how: Any = "superseded" if step.status == "interrupted" else "abandoned"
    open = (id for id in driving.state.pending if not ids.is_budget(id))
    events = [_settle(driving, id, how) for id in open]
    for id, call in driving.state.calls.items():
        started = call.started is not None and not (call.parked and call.status != "started")
        text = UNKNOWN if started else f"The run was {step.status}; the call was not made."
        result = ToolResult(content=text, code="unknown" if started else _code(call.status))
        events.append(outcome(driving, id, result, "unknown" if started else "cancelled"))
    return events


async def _compact(driving: Driving, step: Compact) -> None:
    """Compact older turns, with a summary if the harness has a summariser. If summarising fails,
    compact without a summary."""
    bounds, history = driving.config.bounds, driving.live.history
    made = history.cut(bounds.tokens // 2, max(1, bounds.turns // 2))
    if made is None:  # a single turn is too large: let the model reject it
        driving.uncut = driving.run.id
        return
    if driving.config.summarise is not None:
        summary = await driving.watch(_summary(driving, made.upto))
        if summary is None:
            return
        made = ev.CompactionMade(
            upto=made.upto,
            carry=made.carry,
            tokens=made.tokens,
            turns=made.turns,
            summary=summary or history.summary,
        )
    await driving.write(driving.event("compaction.made", made), expected=driving.state.head)


async def _summary(driving: Driving, upto: int) -> str:
    config = driving.config
    ref = config.model_ref(driving.state, driving.run.model) or ""
    messages = driving.live.history.until(upto, ref, {})
    if isinstance(config.summarise, str) and "/" in config.summarise:
        ref = config.summarise
    asked = (*messages, FromUser((Text(SUMMARISE),)))
    call = ModelCall(
        model=ref.partition("/")[2],
        messages=asked,
        run=driving.run.id,
        session=driving.live.key.session,
    )
    try:
        if callable(config.summarise):
            return _short(clean(str(await settled(config.summarise(messages)))))
        async with aclosing(checked_chunks(config.model(ref), call)) as chunks:
            said = [chunk.text async for chunk in chunks if isinstance(chunk, TextChunk)]
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and asked_to_stop():
            raise
        # Without a summary, the turns are still compacted.
        fault = classify(error, source="model", policy=config.policy)
        driving.log.warning("summary_failed", category="model", error=fault)
        return ""
    return "".join(said)


def _short(summary: str) -> str:
    if len(summary) > ANSWER:
        raise ValueError(f"the summary has {len(summary)} characters; the limit is {ANSWER}")
    return summary


def _settle(
    driving: Driving, id: str, how: Literal["expired", "superseded", "abandoned"]
) -> NewEvent:
    payload = ev.PendingSettled(id=id, outcome=how)
    return driving.event("pending.settled", payload, id=ids.settle_id(id))


_STEPS: dict[type[Any], Callable[[Driving, Any], Awaitable[None]]] = {
    SetDue: _plan,
    Fire: _fire,
    Warn: _warn,
    Expire: _expire,
    Supersede: _supersede,
    Start: _start,
    CallModel: _call_model,
    Compact: _compact,
    Refuse: _refuse,
    RunTools: _run_tools,
    Conclude: _conclude,
    AskOutcome: _ask_outcome,
    Wait: _wait,
    Report: report,
    Finish: _finish,
    AskProbe: ask_probes,
    Tick: tick,
}
