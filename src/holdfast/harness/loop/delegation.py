"""Delegation of tasks to sub-agents: the events that a thread and the threads of its sub-agents
exchange. Every step can be repeated after a crash, since ids are derived from the id of the call.

A call that delegates a task creates the thread of the sub-agent, and waits as a pending item. The
end of the sub-agent's run is the answer to that item. The answer stays due until the sub-agent's
log records that it was delivered. A detached sub-agent reports with a message instead; see
`detached`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ...cancellation import forget
from ...errors import HeadMoved, HoldfastError, SessionNotFound, ToolError
from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event, Key, NewEvent, ids
from ...log.state import State
from ...values.watch import MessageWatch
from ..agents.agent import DELEGATION
from ..agents.config import check_offered
from ..agents.subagents import SubAgent
from ..tools import ToolResult
from ..tools.values import Park
from .decide import next_due
from .detached import check_detachable, check_room, result_message, started, thread_of
from .driver import Driving
from .steps import Report

TEXT = 100_000  # characters of the answer that the parent receives
TITLE = 200
FORKED = (
    "[You are a copy of the agent above, made for one task. Do the task below and nothing else, "
    "then report the result: only your last message is passed on. You cannot delegate tasks or "
    "change the list of tasks.]"
)


def child_of(item: str) -> str | None:
    """Return the sub-agent thread that a pending item waits for, or None if it waits for a user."""
    call = ids.child_call(item)
    return None if call == item else thread_of(call)


def subagent_model_key(name: str | None) -> str:
    """Return the metadata key that sets the model of a sub-agent; without a name, the key that sets
    the model of all sub-agents."""
    return "subagent_model" if name is None else f"subagent_model.{name}"


def chosen(shared: State, name: str | None) -> str | None:
    """Return the model that this session sets for a sub-agent, else the model that it sets for all
    sub-agents, else None."""
    for setting in (subagent_model_key(name), subagent_model_key(None)):
        if isinstance(ref := shared.settings.get(setting), str):
            return ref
    return None


async def begin(
    driving: Driving,
    call: str,
    sub: SubAgent,
    task: str,
    *,
    model: str | None,
    forked: bool | None,
    detached: bool,
) -> Park | ToolResult:
    """Create the thread of a sub-agent, unless it already exists. Returns the pending item with
    which the call waits for the sub-agent, or the result of the call if the sub-agent is
    `detached`."""
    if detached:
        check_detachable(driving.live.key, sub)
    if not task.strip():
        raise ToolError(problem="the task is empty")
    copy = sub.forked if forked is None else forked
    if not copy and sub.agent is None and sub.instructions is None:
        raise ToolError(problem=f"sub-agent {sub.name!r} has no instructions: use forked=True")
    ref = _model(driving, sub, model, copy)
    making = asyncio.ensure_future(_make(driving, call, sub, task, ref, copy, detached))
    making.add_done_callback(forget)
    try:
        await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait({making})
        if driving.failure is None and not driving.stopping:  # otherwise the next driver continues
            await stop(driving, [call])
        raise
    thread = thread_of(call)
    driving.runtime.nudge(_key(driving, thread))
    if detached:
        return started(sub.name, thread)
    return Park(
        f"{sub.name}: {task}"[:TITLE],
        what="external",
        detail={"thread": thread, "agent": sub.name, "forked": copy},
        id=ids.child_item(call),
    )


def _model(driving: Driving, sub: SubAgent, wanted: str | None, forked: bool) -> str | None:
    """Return the model for a sub-agent. In order of precedence, it is set by the call, the session,
    the sub-agent's definition, or the parent's current model."""
    config, state = driving.config, driving.state
    if wanted is not None:
        try:
            config.models.check(wanted)
            check_offered(wanted, config.offered)
        except HoldfastError as error:
            raise ToolError(problem=str(error)) from error
        return wanted
    if (ref := chosen(driving.shared.state, sub.name) or sub.model) is not None:
        return ref
    child = sub.within(config.agent, forked=forked)
    if not forked and (child.model or child.mode(None).model):
        return None  # the sub-agent's own agent has a model
    return config.model_ref(state, driving.run.model)


async def _make(
    driving: Driving,
    call: str,
    sub: SubAgent,
    task: str,
    model: str | None,
    forked: bool,
    detached: bool,
) -> None:
    if detached:
        async with driving.turn:  # so that calls of one message are counted one by one
            await check_room(driving.live.store, _key(driving, thread_of(call)))
            await _create(driving, call, sub, task, model, forked, detached=True)
    else:
        await _create(driving, call, sub, task, model, forked)


async def _create(
    driving: Driving,
    call: str,
    sub: SubAgent,
    task: str,
    model: str | None,
    forked: bool,
    *,
    detached: bool = False,
) -> None:
    config, live, thread = driving.config, driving.live, thread_of(call)
    where = _key(driving, thread)
    about: dict[str, Any] = {
        "agent": f"{config.agent.key}/{sub.name}",
        "parent": live.key.thread,
        "title": f"{sub.name}: {task}"[:TITLE],
        "item": ids.child_item(call),
        "call": call,
        "approval": config.mode(driving.state).approval,
        "detached": detached,
    }
    message = ev.MessageReceived(
        text=f"{FORKED}\n\n{task}" if forked else task,
        metadata={"by": DELEGATION, "parent": live.key.thread},
        model=model,
        limits={} if sub.steps is None else {"steps": sub.steps},
    )
    received = NewEvent.of(
        "message.received", message, id=ids.input_id(thread), actor=config.agent.key
    )
    if forked:
        at = driving.state.calls[call].seq - 1  # before the message that made this call
        first = NewEvent.of(
            "thread.forked", ev.ThreadForked(at=at, **about), id=ids.began_id(thread)
        )
        await live.store.fork(live.key, thread, at=at, first=first)
        await live.store.append(where, [received])
        return
    first = NewEvent.of("thread.created", ev.ThreadCreated(**about), id=ids.began_id(thread))
    events = [first, *_granted(driving, thread), received]
    with contextlib.suppress(HeadMoved):  # an earlier attempt wrote all of them
        await live.store.append(where, events, create=True, expected=0)


def _granted(driving: Driving, thread: str) -> list[NewEvent]:
    """Return the events that copy the current grants to the sub-agent's thread."""
    grants = driving.state.grants
    given: list[dict[str, Any]] = [{"tool": name} for name in grants.tools]
    given += [{"category": name} for name in grants.categories]
    return [
        NewEvent.of(
            "grant.given",
            ev.GrantGiven(driver=grants.driver or "", **one),
            id=ids.grant_id(thread, n),
        )
        for n, one in enumerate(given)
    ]


def _key(driving: Driving, thread: str) -> Key:
    key = driving.live.key
    return Key(key.tenant, key.session, thread)


async def stop(driving: Driving, calls: list[str]) -> None:
    """Abort the sub-agents that these calls started, if any."""
    for call in calls:
        where = _key(driving, thread_of(call))
        event = NewEvent.of(
            "abort.requested",
            ev.AbortRequested(reason="the parent no longer waits for it"),
            id=ids.abort_id(where.thread),
            actor=driving.config.agent.key,
        )
        with contextlib.suppress(SessionNotFound):  # the sub-agent had not started
            await driving.live.store.append(where, [event])
            driving.runtime.nudge(where)


async def stop_all(driving: Driving) -> None:
    """Abort all sub-agents that work for the run that is about to end."""
    state = driving.state
    begun = [id for id, call in state.calls.items() if call.name == DELEGATION]
    # Any tool may delegate a task: then its call waits for the sub-agent.
    begun += [ids.child_call(id) for id in state.pending if ids.is_child(id)]
    await stop(driving, [*dict.fromkeys(begun)])


async def report(driving: Driving, step: Report) -> None:
    """Answer the call that started this thread with the result of the run; if it is detached, send
    the result to the parent. Then record in the log of this thread that this was done."""
    sub = driving.state.sub
    assert sub is not None
    assert sub.item is not None
    parent = _key(driving, sub.parent)
    answer, actor = await _outcome(driving), driving.config.agent.key
    if sub.detached:
        row = driving.live.row
        event = result_message(sub.item, answer, actor, title=row.title if row else None)
    else:
        payload = ev.PendingSettled(id=sub.item, outcome="answered", answer=answer)
        event = NewEvent.of("pending.settled", payload, id=ids.settle_id(sub.item), actor=actor)
    with contextlib.suppress(SessionNotFound):  # the parent was deleted
        await driving.live.store.append(parent, [event])
    done = ev.ThreadReported(item=sub.item, due=_due(driving))
    await driving.write(NewEvent.of("thread.reported", done, id=ids.reported_id(sub.item)))
    driving.runtime.nudge(parent)


def _due(driving: Driving) -> int | None:
    return driving.now() if driving.state.queue else next_due(driving.state)


async def _outcome(driving: Driving) -> dict[str, Any]:
    live, run = driving.live, driving.state.run
    about = {"thread": live.key.thread, "agent": driving.config.agent.key}
    if run is None:
        return {"status": "aborted", "text": "", "usage": {}, **about}
    watch = MessageWatch(live.key, run=run.id)
    usage: dict[str, int] = {}
    async for event in live.store.read(live.key, after=run.seq - 1, log=live.log):
        watch.see(event)
        for name, count in _used(event).items():
            usage[name] = usage.get(name, 0) + count
    end = watch.end
    code, error = (run.code, None) if end is None else (end.code, end.error)
    more = {"code": code, "error": error, "output": watch.output}
    return {
        "status": run.status if end is None else end.status,
        "text": watch.text[:TEXT],
        "usage": usage,
        **about,
        **{name: value for name, value in more.items() if value is not None},
    }


def _used(event: Event) -> dict[str, int]:
    """Return the token usage that an event records, of a model call in this thread or of a
    sub-agent."""
    payload = typed(event)
    if isinstance(payload, ev.MessageCompleted):
        return payload.usage
    if isinstance(payload, ev.PendingSettled) and ids.is_child(payload.id):
        answer = payload.answer if isinstance(payload.answer, dict) else {}
        used = answer.get("usage")
        return used if isinstance(used, dict) else {}
    return {}
