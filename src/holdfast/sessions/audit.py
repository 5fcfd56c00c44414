"""The audit of a session: its tool calls and who approved them. It has one record per tool call, is
built from the log alone, and contains no model output."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from msgspec.structs import replace

from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import typed
from ..log.events import Event, Key
from ..values.audit import Audited, Decided, Probed
from .changes import Changes
from .queries import threads


async def audit(changes: Changes, id: str) -> AsyncGenerator[Audited, None]:
    await changes.row(id)
    async for row in threads(changes, id):
        for call in await audited_in(changes, row):
            yield call


async def audited_in(changes: Changes, row: Row) -> list[Audited]:
    """Return the calls of one thread, in the order in which they were proposed."""
    after = await _shared(changes, row)
    return await audited(changes.store.read(row.key, after=after, log=row.log), row.thread)


async def _shared(changes: Changes, row: Row) -> int:
    """Return how many events of a forked thread are also in its parent thread, and are audited
    there."""
    if row.parent is None:
        return 0
    parent = Key(row.tenant, row.session, row.parent.thread)
    return 0 if await changes.store.row(parent) is None else row.parent.at


async def audited(events: AsyncIterable[Event], thread: str) -> list[Audited]:
    """Return the calls of one log, in the order in which they were proposed."""
    tally = _Tally(thread)
    async for event in events:
        tally.add(event)
    return list(tally.calls.values())


class _Tally:
    def __init__(self, thread: str) -> None:
        self._thread = thread
        self.calls: dict[str, Audited] = {}
        self._senders: dict[int, str | None] = {}
        self._asked: dict[str | None, list[str | None]] = {}
        self._items: dict[str, tuple[str, str]] = {}

    def add(self, event: Event) -> None:
        payload = typed(event)
        if isinstance(payload, ev.MessageReceived):
            self._senders[event.seq] = event.actor
        elif isinstance(payload, ev.RunStarted | ev.ModelCalled):
            senders = [self._senders[seq] for seq in payload.inputs if seq in self._senders]
            self._asked.setdefault(event.run, []).extend(senders)
        elif isinstance(payload, ev.MessageCompleted):
            for call in payload.calls:
                self._propose(event, call, model=payload.model)
        elif isinstance(payload, ev.ToolNested):
            self._propose(event, payload.call, parent=payload.parent)
        elif isinstance(payload, ev.PendingOpened) and payload.call is not None:
            self._items[payload.id] = (payload.call, payload.what)
        elif isinstance(payload, ev.PendingVoted):
            self._decide(event, payload, "voted")
        elif isinstance(payload, ev.PendingSettled):
            self._decide(event, payload, payload.outcome)
            self._items.pop(payload.id, None)
        elif isinstance(payload, ev.ToolStarted):
            self._change(
                payload.call,
                started=event.at,
                allowed_by=payload.by,
                changed=payload.arguments,
            )
        elif isinstance(payload, ev.ToolFinished):
            self._end(event, payload)
        elif isinstance(payload, ev.ToolProbed) and payload.call in self.calls:
            made = Probed(outcome=payload.outcome, at=event.at, reason=payload.reason)
            self._change(payload.call, probes=[*self.calls[payload.call].probes, made])

    def _propose(
        self, event: Event, call: ev.Call, *, model: str | None = None, parent: str | None = None
    ) -> None:
        self.calls[call.id] = Audited(
            thread=self._thread,
            seq=event.seq,
            call=call.id,
            tool=call.name,
            proposed=event.at,
            run=event.run,
            asked=list(self._asked.get(event.run, ())),
            model=model,
            parent=parent,
            arguments=call.arguments,
        )

    def _decide(
        self, event: Event, payload: ev.PendingVoted | ev.PendingSettled, outcome: str
    ) -> None:
        call, what = self._items.get(payload.id, ("", ""))
        if call in self.calls:
            made = Decided(
                item=payload.id,
                what=what,
                outcome=outcome,
                at=event.at,
                by=event.actor,
                channel=payload.channel,
                reason=payload.reason,
            )
            self._change(call, decisions=[*self.calls[call].decisions, made])

    def _end(self, event: Event, payload: ev.ToolFinished) -> None:
        known = self.calls.get(payload.call)
        if known is not None and known.ended is None:  # the first outcome of a call counts
            self._change(
                payload.call,
                ended=event.at,
                outcome=payload.outcome,
                code=payload.code,
                result=payload.result,
                error=payload.error,
            )

    def _change(self, call: str, **fields: Any) -> None:
        if call in self.calls:
            self.calls[call] = replace(self.calls[call], **fields)
