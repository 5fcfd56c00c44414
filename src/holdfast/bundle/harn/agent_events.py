"""Selects the events of one agent session of Harn, determines whether the session is closed, and
builds a bundle from the events. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..faults import invalid
from ..json_values import JsonObject, as_dict, as_list, as_str, as_text
from ..timestamps import rfc3339
from .format import CLOSED, COMPLETED, LIVENESS, SUSPENDED, HarnDocument
from .names import sanitised, topic
from .record_tree import fixture, tree_head

CLOSING = "session_closed"
# Events that can follow a close without reopening the session: they report earlier work.
TRAILING = {CLOSING, "tool_call_audit", "cache_hit", "cache_miss", "fs_watch"}


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One event of a session in Harn's event log; `event` has a `type`.

    See [other formats](../interchange.md).
    """

    event_id: int
    kind: str = ""
    occurred_at_ms: int = 0
    execution_id: str | None = None
    event: JsonObject = {}

    @property
    def type(self) -> str:
        return as_str(self.event.get("type", self.kind)) or ""


class AgentLiveness(Struct, frozen=True, kw_only=True):
    """Whether a session is closed. `status` says how it ended, or is `suspended`.

    See [other formats](../interchange.md).
    """

    status: str = SUSPENDED
    finished_at_ms: int | None = None

    @property
    def tag(self) -> str:
        return SUSPENDED if self.is_suspended else CLOSED

    @property
    def is_suspended(self) -> bool:
        return self.finished_at_ms is None


def session_events(session_id: str, records: Iterable[JsonObject]) -> list[AgentEvent]:
    """Return the events of a session from the records of its topic, which several sessions may
    share.

    Records of other sessions and records without an event are skipped. Raises `InvalidBundle` for a
    record that cannot be read.

    See [other formats](../interchange.md).
    """
    found: list[AgentEvent] = []
    for number, record in enumerate(records):
        headers = record.get("headers") or {}
        event = as_dict(record.get("payload")).get("event")
        if headers.get("session_id", session_id) != session_id or event is None:
            continue
        execution = headers.get("execution_id")
        fields = {"event_id": None, **record, "event": event, "execution_id": execution}
        try:
            read = msgspec.convert(fields, AgentEvent)
        except msgspec.ValidationError as error:
            raise invalid("decode", f"$[{number}]", str(error)) from error
        if read.event.get("session_id", session_id) == session_id:
            found.append(read)
    return found


def until(session_id: str, events: Sequence[AgentEvent], event_id: int) -> list[AgentEvent]:
    """Return the events up to and including `event_id`. Raises `InvalidBundle` if there are no such
    events.

    See [other formats](../interchange.md).
    """
    kept = [event for event in events if event.event_id <= event_id]
    if not kept:
        problem = f"session {session_id!r} has no event up to {event_id}"
        raise invalid("missing_session_events", "$", problem)
    return kept


def liveness(events: Sequence[AgentEvent]) -> AgentLiveness:
    """Return whether the session is closed: it has a close event, and did not continue after the
    last one.

    See [other formats](../interchange.md).
    """
    for event in reversed(events):
        if event.type == CLOSING:
            status = as_text(event.event.get("status")) or COMPLETED
            return AgentLiveness(status=status, finished_at_ms=event.occurred_at_ms)
        if event.type not in TRAILING:
            break
    return AgentLiveness()


def bundle_of_events(
    session_id: str, events: Sequence[AgentEvent], *, version: str
) -> HarnDocument:
    """Build the bundle of a session, without redaction. The same events yield the same bytes.
    Raises `InvalidBundle` if there are none.

    See [other formats](../interchange.md).
    """
    if not events:
        raise invalid("missing_session_events", "$", f"session {session_id!r} has no events")
    life, name = liveness(events), sanitised(session_id)
    started = _time(events[0].occurred_at_ms)
    finished = None if life.finished_at_ms is None else _time(life.finished_at_ms)
    created = finished or started
    workflow = {"workflow_id": "agent_session", "workflow_name": f"Agent session {session_id}"}
    tree: JsonObject = {
        **tree_head(version, f"bundle_from_session_{name}", created),
        "source": {
            "kind": "event_log_session",
            "run_record_id": session_id,
            **workflow,
            "task": _task(events) or workflow["workflow_name"],
            "status": life.status,
            "started_at": started,
            "finished_at": finished,
        },
        "runtime": {"harn_version": version, "provider_models": [], "usage": None},
        "transcript": {"sections": [_section(session_id, events)]},
        "permissions": [_question(event) for event in events if event.type == "hitl_requested"],
        "replay": _replay(session_id, events),
        "redaction": {"mode": "local", "policy": "none"},
        "metadata": {LIVENESS: life.tag},
    }
    tree["replay"]["replay_fixture"] = fixture(
        f"fixture_from_session_{name}",
        session_id,
        workflow,
        at=created,
        kind="replay",
        status=life.status,
    )
    return HarnDocument.of(tree)


def _time(ms: int) -> str:
    return rfc3339(ms, invalid=rfc3339(0))


def _replay(session_id: str, events: Sequence[AgentEvent]) -> JsonObject:
    pointer = {
        "kind": "agent_events",
        "topic": topic(session_id),
        "location": "events.sqlite",
        "available": True,
    }
    return {
        "event_log_pointers": [pointer],
        "deterministic_events": [
            {"source": "events.sqlite.agent_events", "index": n, "value": _fields(event)}
            for n, event in enumerate(events)
        ],
    }


def _fields(event: AgentEvent) -> JsonObject:
    fields: JsonObject = msgspec.to_builtins(event)
    if not event.execution_id:
        del fields["execution_id"]
    return fields


def _section(session_id: str, events: Sequence[AgentEvent]) -> JsonObject:
    return {
        "id": "agent_events",
        "label": "Agent event log",
        "scope": "session",
        "location": topic(session_id),
        "messages": [message for event in events if (message := _message(event))],
        "events": [_fields(event) for event in events],
        "metadata": {
            "session_id": session_id,
            "source": "events.sqlite observability.agent_events topic",
        },
    }


def _message(event: AgentEvent) -> JsonObject | None:
    content = event.event.get("content")
    if event.type == "user_message":
        return {"role": "user", "content": as_list(content)}
    if event.type == "agent_message_chunk" and content:
        return {"role": "assistant", "content": content}
    return None


def _question(event: AgentEvent) -> JsonObject:
    return {
        "kind": "hitl_question",
        "source": "agent_events",
        "request_id": as_str(event.event.get("request_id")),
        "payload": {
            "kind": event.event.get("kind"),
            "payload": event.event.get("payload"),
            "event_id": event.event_id,
            "occurred_at_ms": event.occurred_at_ms,
        },
    }


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or the text of its blocks, one per line."""
    if isinstance(content, str):
        return content
    texts = [b.get("text") if isinstance(b, dict) else b for b in as_list(content)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _task(events: Sequence[AgentEvent]) -> str | None:
    for event in events:
        if event.type == "user_message" and (text := text_of(event.event.get("content"))).strip():
            return text
    return None
