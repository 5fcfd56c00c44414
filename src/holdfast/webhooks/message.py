"""What a receiver gets: which events an endpoint wants, and the id and the body of a delivery.
Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..errors import InvalidValue
from ..log.catalog import Row
from ..log.codec import check_name
from ..log.events import Event
from ..log.events.defaults import complete
from ..redact import Redactor
from ..values.webhooks import WebhookEndpoint

TEST = "webhook.test"  # the type of a test delivery


def check_kinds(kinds: Iterable[str]) -> None:
    """Reject a filter that is neither a kind, nor `NAMESPACE.*`, nor `*`."""
    for kind in kinds:
        check_name("kinds", kind, limit=100)
        name, _, last = kind.rpartition(".")
        if "*" in name or (kind != "*" and "*" in last and (last != "*" or not name)):
            raise InvalidValue(
                field="kinds",
                problem=f"{kind!r} has a * in its name",
                remedy="write a kind such as run.finished, or all kinds of a namespace as run.*",
            )


def wants(endpoint: WebhookEndpoint, event: Event, row: Row, main: Row) -> bool:
    """Return whether an endpoint wants an event of the log `row`, in the session `main`."""
    if endpoint.kinds and not any(_matches(kind, event.kind) for kind in endpoint.kinds):
        return False
    if endpoint.agents and not {row.agent, main.agent} & {*endpoint.agents}:
        return False
    return not endpoint.labels or bool(main.labels.keys() & {*endpoint.labels})


def _matches(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))


def message_id(log: str, seq: int) -> str:
    """Return the id of a delivery. It is the same in every attempt and at every endpoint, and has
    no full stop, as signatures require."""
    return "msg_" + hashlib.sha256(f"{log}/{seq}".encode()).hexdigest()[:32]


def body_of(event: Event, row: Row, main: Row, redactor: Redactor) -> bytes:
    """Return the body of a delivery, with the secrets in it masked."""
    data: dict[str, Any] = {
        "tenant": row.tenant,
        "session": row.session,
        "thread": row.thread,
        "log": row.log,
        "seq": event.seq,
        "id": event.id,
        "agent": row.agent or main.agent,
        "run": event.run,
        "actor": event.actor,
        "event": complete(event).json(),
    }
    return msgspec.json.encode(
        {"type": event.kind, "timestamp": timestamp(event.at), "data": redactor(data)}
    )


def test_body(endpoint: str, at: int) -> bytes:
    """Return the body of a test delivery."""
    return msgspec.json.encode(
        {"type": TEST, "timestamp": timestamp(at), "data": {"endpoint": endpoint}}
    )


def timestamp(at: int) -> str:
    """Return a time in ms as ISO 8601."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")
