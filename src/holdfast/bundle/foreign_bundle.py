"""Logs that were made from another program's files, as a bundle of ours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import Fault, InvalidBundle, InvalidValue
from ..log.events import Event, Key, Scope
from ..stores.memory import MemoryStore
from .archive import Bundle
from .foreign_log import Telling
from .format import BUNDLE_LIMITS, id_of
from .redaction.manifest import Redaction
from .write import export_bundle


class Packed(Struct, frozen=True, kw_only=True):
    """A session made of tellings, its blobs, and what the bundle says beside them. `redaction` is
    what was done to it before, if anything."""

    scope: Scope
    logs: tuple[Telling, ...]
    blobs: tuple[bytes, ...] = ()
    redaction: Redaction = Redaction()
    metadata: dict[str, Any] = {}


async def packed(what: Packed) -> Bundle:
    """The bundle. Nobody else goes on with it, so that it can be continued where it is imported,
    unless its content was redacted. `InvalidBundle` for what no log or bundle can hold."""
    store = MemoryStore()
    for log in what.logs:
        _check(log)
        key = Key(what.scope.tenant, what.scope.session, log.thread)
        try:
            await store.restore(key, _each(log.events))
        except InvalidValue as error:
            fault = Fault(code="too_large", path=log.thread, problem=str(error))
            raise InvalidBundle(faults=[fault]) from error
    for blob in what.blobs:
        await store.put_blob(what.scope, blob)
    bundle = await export_bundle((store, what.scope), "local", purpose="move")
    raw = {
        **bundle.raw,
        "mode": what.redaction.mode,
        "redaction": msgspec.to_builtins(what.redaction),
        "metadata": {**bundle.raw.get("metadata", {}), **what.metadata},
    }
    raw["bundle_id"] = id_of(raw)
    return Bundle(raw, bundle.parts)


def _check(log: Telling) -> None:
    for event in log.events:
        if len(event.data) > BUNDLE_LIMITS.event_bytes:
            problem = f"would have {len(event.data)} bytes in one event"
            path = f"{log.thread}[{event.seq}]"
            raise InvalidBundle(faults=[Fault(code="too_large", path=path, problem=problem)])


async def _each(events: Sequence[Event]) -> AsyncGenerator[Event, None]:
    for event in events:
        yield event
