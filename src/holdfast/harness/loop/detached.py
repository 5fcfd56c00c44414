"""Detached sub-agents: no call waits for them, so their results are messages to the parent.

The message has an id that is derived from the call, so the parent gets it once, whoever writes it
and however often.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import ToolError
from ...log import events as ev
from ...log.catalog import Row
from ...log.events import Key, NewEvent, ids
from ...stores.measure import threads_of
from ...stores.port import Store
from ..agents.agent import DELEGATION
from ..agents.subagents import SubAgent, delegation_result
from ..tools import CallAnswer, ToolResult

MOST = 20  # detached sub-agents that work for one session at the same time
MARK = "notification"  # the metadata key of an event that carries a notice
SUMMARY = 300  # characters of the result in the summary of the notice


def thread_of(call: str) -> str:
    """Return the name of the sub-agent thread that a call starts."""
    return f"sub/{call}"


def is_delegated(key: Key) -> bool:
    """Return whether a log is the thread of a sub-agent."""
    return key.thread.startswith(thread_of(""))


def check_detachable(key: Key, sub: SubAgent) -> None:
    """Raise `ToolError` unless this thread may start this sub-agent detached."""
    if not sub.detached:
        raise ToolError(problem=f"sub-agent {sub.name!r} cannot be detached: omit detached")
    if is_delegated(key):
        raise ToolError(problem="a sub-agent cannot start detached sub-agents: omit detached")


async def check_room(store: Store, where: Key) -> None:
    """Raise `ToolError` if the session has too many detached sub-agents for another one, `where`,
    unless that one exists already."""
    if await store.row(where) is not None:
        return
    if len(working(await threads_of(store, where.scope))) >= MOST:
        problem = f"{MOST} detached sub-agents are working, the maximum: wait for a result"
        raise ToolError(problem=problem)


def working(rows: list[Row]) -> list[Row]:
    """Return the rows of the detached sub-agents that have not finished, from the rows of a whole
    session."""
    awaited = {thread_of(ids.child_call(id)) for row in rows for id in row.pending}
    return [row for row in rows if row.thread not in awaited and _works(row)]


def _works(row: Row) -> bool:
    begun = row.run in ("running", "waiting")
    return is_delegated(row.key) and (begun or (row.run is None and row.due is not None))


def started(name: str, thread: str) -> ToolResult:
    """Return the result of a call that has started a detached sub-agent."""
    return ToolResult(
        content=f"{name} is working in thread {thread}. Its result will arrive as a message.",
        metadata={"agent": name, "thread": thread, "status": "detached"},
    )


def result_message(
    item: str, answer: dict[str, Any], actor: str, *, title: str | None = None
) -> NewEvent:
    """Create the message that brings the result of a detached sub-agent to its parent. It joins the
    parent's run, or starts one."""
    result = delegation_result(CallAnswer(outcome="answered", value=answer))
    text = result.content
    if not text and result.data is not None:
        text = msgspec.json.encode(result.data).decode()
    thread, status = str(answer["thread"]), str(answer["status"])
    said = f"Sub-agent {title or actor} ({thread}, {status}):\n{text}"
    notice = {
        "source": DELEGATION,
        "kind": status,
        "summary": said[:SUMMARY],
        "priority": "urgent",
        "about": thread,
    }
    metadata = {"by": DELEGATION, MARK: notice, "usage": answer.get("usage", {})}
    payload = ev.MessageReceived(text=said, metadata=metadata, how="steer", thread=thread)
    return NewEvent.of("message.received", payload, id=ids.detached_id(item), actor=actor)
