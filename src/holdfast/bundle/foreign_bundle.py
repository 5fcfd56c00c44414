"""Builds a bundle from the logs of another program's session."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from ..log.codec import check_name
from ..log.events import Key, Scope
from ..stores.memory import MemoryStore
from .archive import Bundle, each
from .faults import invalid
from .foreign_log import LogBuilder
from .format import BUNDLE_LIMITS, id_of
from .json_values import JsonObject
from .redaction.manifest import Redaction
from .write import export_bundle


class ForeignSession(Struct, frozen=True, kw_only=True):
    """A session from another program: its logs, its blobs, and metadata for the bundle. `redaction`
    describes what the other program redacted.
    """

    scope: Scope
    logs: tuple[LogBuilder, ...]
    blobs: tuple[bytes, ...] = ()
    redaction: Redaction = Redaction()
    metadata: JsonObject = {}


def check_session(name: Any, code: str, path: str) -> str:
    """Return a session id read from the file at `path`, if it is valid; else raise
    `InvalidBundle`.
    """
    try:
        check_name("session", name)
    except InvalidValue as error:
        problem = f"cannot be used as a session id ({error.problem}); pass session="
        raise invalid(code, path, problem) from error
    return str(name)


async def pack(session: ForeignSession) -> Bundle:
    """Build the bundle of a session. Its purpose is `move`, so that an import can continue it
    unless its content was redacted. Raises `InvalidBundle` for values that exceed the limits of a
    log or of a bundle.
    """
    store = MemoryStore()
    for log in session.logs:
        for event in log.events:
            if len(event.data) > BUNDLE_LIMITS.event_bytes:
                problem = f"has {len(event.data)} bytes, more than an event of a bundle may have"
                raise invalid("too_large", f"{log.thread}[{event.seq}]", problem)
        key = Key(session.scope.tenant, session.scope.session, log.thread)
        try:
            await store.restore(key, each(log.events))
        except InvalidValue as error:
            raise invalid("too_large", log.thread, str(error)) from error
    for blob in session.blobs:
        await store.put_blob(session.scope, blob)
    bundle = await export_bundle((store, session.scope), "local", purpose="move")
    raw = {
        **bundle.raw,
        "mode": session.redaction.mode,
        "redaction": msgspec.to_builtins(session.redaction),
        "metadata": {**bundle.raw.get("metadata", {}), **session.metadata},
    }
    raw["bundle_id"] = id_of(raw)
    return Bundle(raw, bundle.parts)
