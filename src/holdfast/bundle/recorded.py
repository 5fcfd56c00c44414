"""`replay`: runs a bundle, a stored session or an open session again with its recorded answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from ..errors import BlobNotFound, InvalidValue
from ..harness import (
    Agent,
    Divergence,
    Recording,
    Replayed,
    Session,
    core_of,
    play,
    stored_recording,
)
from ..log.events import Key, Scope
from ..models.port import Model
from ..stores.port import Store
from .archive import Bundle
from .check import Source, open_bundle

__all__ = ["Divergence", "Replayed", "replay"]

Recorded: TypeAlias = Source | Session | tuple[Store, Scope]


async def replay(
    source: Recorded,
    agent: Agent | None = None,
    *,
    thread: str | None = None,
    from_step: int | None = None,
    model: Model | None = None,
    tools: Mapping[str, Any] | None = None,
    resources: Any = None,
    ignore: Collection[str] = (),
) -> Replayed:
    """Run a recorded conversation again and report the first difference from the recording.

    The real agent loop runs. Models and tools return their recorded answers; messages, decisions
    and other inputs are supplied where they were recorded. No tool function, no hook and no network
    is used. Without `agent`, an agent is built from the log, and values that depend on your agent's
    definition are not compared. With `agent`, these values are compared too: rendered instructions
    and contexts (which use `resources`), fingerprints of tools, and decisions about tool calls.

    Starting with model call `from_step` (by default the first), `model` answers instead, and the
    functions in `tools` are called. From then on, the replay continues after a difference. Other
    models and tools return the recorded answers as long as they get the same input.

    `thread` is the thread to replay; the default is all threads. `ignore` lists kinds of events
    that are not compared, such as `context.built` if the instructions contain the time.

    See [replay](../replay.md).
    """
    if from_step is not None and (isinstance(from_step, bool) or from_step < 1):
        remedy = "pass the number of a model call, from 1"
        raise InvalidValue(field="from_step", problem=f"is {from_step!r}", remedy=remedy)
    return await play(
        await _recording(source, thread),
        agent,
        from_step=from_step,
        model=model,
        tools=tools or {},
        resources=resources,
        ignore=ignore,
    )


class _BundleRecording(Recording):
    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.document.mode)
        self._bundle = bundle

    async def blob(self, sha256: str) -> bytes | None:
        try:
            return await asyncio.to_thread(self._bundle.blob, sha256)
        except BlobNotFound:
            return None


async def _recording(source: Recorded, thread: str | None) -> Recording:
    if isinstance(source, Session):
        live = core_of(source).live
        source = (live.store, live.key.scope)
    if isinstance(source, tuple):
        return await stored_recording(*source, thread)
    bundle = await open_bundle(source)
    found = _BundleRecording(bundle)
    facts = bundle.document.session
    for about in bundle.document.threads:
        if thread in (None, about.thread):
            key = Key(facts.tenant, facts.session, about.thread)
            events = [event async for event in bundle.read(about.thread)]
            found.threads[key] = (events, about.shared)
    return found.check(Scope(facts.tenant, facts.session), thread)
