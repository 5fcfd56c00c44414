"""The events of one of Harn's agent sessions: which belong to it, up to where, whether it is over,
and the bundle that they make. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .faults import fault, refused
from .names import rfc3339, sanitised, topic
from .shapes import CLOSED, COMPLETED, LIVENESS, SCHEMA_ID, SUSPENDED, TYPE, VERSION, HarnDocument

CLOSING = "session_closed"
# What can come after a close without a session going on again: it tells of what was before.
AFTERTHOUGHTS = {CLOSING, "tool_call_audit", "cache_hit", "cache_miss", "fs_watch"}


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One event of a session as Harn's event log has it; `event` is tagged by its `type`."""

    event_id: int
    kind: str = ""
    occurred_at_ms: int = 0
    execution_id: str | None = None
    event: dict[str, Any] = {}

    @property
    def type(self) -> str:
        type = self.event.get("type", self.kind)
        return type if isinstance(type, str) else ""


class AgentLiveness(Struct, frozen=True, kw_only=True):
    """Whether a session is over: `status` is how it ended, or `suspended`."""

    status: str = SUSPENDED
    finished_at_ms: int | None = None

    @property
    def tag(self) -> str:
        return SUSPENDED if self.is_suspended else CLOSED

    @property
    def is_suspended(self) -> bool:
        return self.finished_at_ms is None


def session_events(session_id: str, records: Iterable[dict[str, Any]]) -> list[AgentEvent]:
    """The events of a session among the records of its topic, which other sessions may share.

    Passed over: records with another session in their header, records without an event, and
    events of another session. A record that cannot be read is `InvalidBundle`.
    """
    found: list[AgentEvent] = []
    for number, record in enumerate(records):
        headers = record.get("headers") or {}
        payload = record.get("payload") or {}
        event = payload.get("event") if isinstance(payload, dict) else None
        if headers.get("session_id", session_id) != session_id or event is None:
            continue
        try:
            read = msgspec.convert(
                {
                    "event_id": record.get("event_id"),
                    "kind": record.get("kind", ""),
                    "occurred_at_ms": record.get("occurred_at_ms", 0),
                    "execution_id": headers.get("execution_id"),
                    "event": event,
                },
                AgentEvent,
            )
        except msgspec.ValidationError as error:
            raise refused([fault("decode", f"$[{number}]", str(error))]) from error
        if read.event.get("session_id", session_id) == session_id:
            found.append(read)
    return found


def until(session_id: str, events: Sequence[AgentEvent], event_id: int) -> list[AgentEvent]:
    """The events up to `event_id` and with it; `InvalidBundle` if that is before the first."""
    kept = [event for event in events if event.event_id <= event_id]
    if not kept:
        problem = f"session {session_id!r} has no event up to {event_id}"
        raise refused([fault("missing_session_events", "$", problem)])
    return kept


def liveness(events: Sequence[AgentEvent]) -> AgentLiveness:
    """Closed by the last close, unless the session went on after it."""
    for event in reversed(events):
        if event.type == CLOSING:
            status = event.event.get("status")
            status = status if isinstance(status, str) and status else COMPLETED
            return AgentLiveness(status=status, finished_at_ms=event.occurred_at_ms)
        if event.type not in AFTERTHOUGHTS:
            break
    return AgentLiveness()


def bundle_of_events(
    session_id: str, events: Sequence[AgentEvent], *, version: str
) -> HarnDocument:
    """The bundle of a session, with nothing redacted: the same events give the same bytes.
    `InvalidBundle` when there are none."""
    if not events:
        problem = f"session {session_id!r} has no events"
        raise refused([fault("missing_session_events", "$", problem)])
    life, name = liveness(events), sanitised(session_id)
    started = rfc3339(events[0].occurred_at_ms)
    finished = None if life.is_suspended else rfc3339(life.finished_at_ms)
    task = _task(events) or f"Agent session {session_id}"
    workflow = {"workflow_id": "agent_session", "workflow_name": f"Agent session {session_id}"}
    tree: dict[str, Any] = {
        "_type": TYPE,
        "schema_version": VERSION,
        "bundle_id": f"bundle_from_session_{name}",
        "created_at": finished or started,
        "producer": {"name": "holdfast", "version": version, "schema_id": SCHEMA_ID},
        "source": {
            "kind": "event_log_session",
            "run_record_id": session_id,
            **workflow,
            "task": task,
            "status": life.status,
            "started_at": started,
            "finished_at": finished,
        },
        "runtime": {"harn_version": version, "provider_models": [], "usage": None},
        "transcript": {"sections": [_section(session_id, events)]},
        "permissions": [_asked(event) for event in events if event.type == "hitl_requested"],
        "replay": {
            "replay_fixture": {
                "id": f"fixture_from_session_{name}",
                "source_run_id": session_id,
                **workflow,
                "created_at": finished or started,
                "eval_kind": "replay",
                "expected_status": life.status,
            },
            "event_log_pointers": [
                {
                    "kind": "agent_events",
                    "topic": topic(session_id),
                    "location": "events.sqlite",
                    "available": True,
                }
            ],
            "deterministic_events": [
                {"source": "events.sqlite.agent_events", "index": n, "value": _told(event)}
                for n, event in enumerate(events)
            ],
        },
        "redaction": {"mode": "local", "policy": "none"},
        "metadata": {LIVENESS: life.tag},
    }
    return HarnDocument.of(tree)


def _told(event: AgentEvent) -> dict[str, Any]:
    told = {"event_id": event.event_id, "kind": event.kind, "occurred_at_ms": event.occurred_at_ms}
    more = {"execution_id": event.execution_id} if event.execution_id else {}
    return {**told, **more, "event": event.event}


def _section(session_id: str, events: Sequence[AgentEvent]) -> dict[str, Any]:
    return {
        "id": "agent_events",
        "label": "Agent event log",
        "scope": "session",
        "location": topic(session_id),
        "messages": [message for event in events if (message := _message(event))],
        "events": [_told(event) for event in events],
        "metadata": {
            "session_id": session_id,
            "source": "events.sqlite observability.agent_events topic",
        },
    }


def _message(event: AgentEvent) -> dict[str, Any] | None:
    content = event.event.get("content")
    if event.type == "user_message":
        return {"role": "user", "content": content if isinstance(content, list) else []}
    if event.type == "agent_message_chunk" and content:
        return {"role": "assistant", "content": content}
    return None


def _asked(event: AgentEvent) -> dict[str, Any]:
    about = event.event
    request = about.get("request_id")
    return {
        "kind": "hitl_question",
        "source": "agent_events",
        "request_id": request if isinstance(request, str) else None,
        "payload": {
            "kind": about.get("kind"),
            "payload": about.get("payload"),
            "event_id": event.event_id,
            "occurred_at_ms": event.occurred_at_ms,
        },
    }


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or the texts of its blocks, a line each."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [b.get("text") if isinstance(b, dict) else b for b in blocks]
    return "\n".join(text for text in texts if isinstance(text, str))


def _task(events: Sequence[AgentEvent]) -> str | None:
    for event in events:
        if event.type == "user_message" and (text := text_of(event.event.get("content"))).strip():
            return text
    return None
