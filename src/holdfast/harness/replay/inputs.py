"""The recorded messages and decisions of users, as inputs for a log whose replay no longer follows
the recording."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...log import events as ev
from ...log.events import Event, NewEvent, ids, new_id
from ..live.log import Live
from .store import ReplayStore
from .track import Track

ROUNDS = 1_000  # how often a log is driven, at most
CHANGES = (
    "mode.changed",
    "model.changed",
    "state.changed",
    "permission.changed",
    "metadata.changed",
)


class RecordedInputs:
    """Supplies the recorded inputs to a log: each message after the previous message was answered,
    and each decision for the same call as in the recording."""

    def __init__(self, stage: ReplayStore, track: Track, live: Live) -> None:
        self._stage, self._track, self._live = stage, track, live
        places = range(track.at, len(track.events))
        self._left = [place for place in places if not track.ours[place]]

    async def feed(self, driven: Callable[[], Awaitable[None]]) -> None:
        await driven()
        for _ in range(ROUNDS):
            if self._track.over or not (await self._decide() or await self._next_message()):
                break
            await driven()
        if not self._track.over and self._live.state.pending:
            self._stage.end(self._track, "waiting")

    async def _put(self, kind: str, data: Any, id: str, actor: str | None) -> None:
        event = NewEvent(kind=kind, data=data, id=id, actor=actor)
        done = await self._stage.append(self._track.key, [event])
        await self._live.reach(done.head)

    async def _decide(self) -> bool:
        """Settle the pending items for which there is a recorded decision. Returns whether any item
        was settled."""
        decided = False
        for id, item in list(self._live.state.pending.items()):
            opened = await self._live.payload(item.seq, ev.PendingOpened)
            if (found := self._decision(id, opened)) is not None:
                event, payload = found
                for actor in self._voters(payload.id):
                    vote = msgspec.Raw(msgspec.json.encode(ev.PendingVoted(id=id)))
                    await self._put("pending.voted", vote, new_id(), actor)
                data = msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(payload, id=id)))
                await self._put("pending.settled", data, ids.settle_id(id), event.actor)
                decided = True
        return decided

    def _decision(
        self, id: str, opened: ev.PendingOpened | None
    ) -> tuple[Event, ev.PendingSettled] | None:
        track = self._track
        items = track.every(ev.PendingOpened)
        same = {id, *(item.id for item in items if _about(item) == _about(opened))}
        for place in self._left:
            payload = track.payloads[place]
            if isinstance(payload, ev.PendingSettled) and payload.id in same:
                self._left.remove(place)
                return track.events[place], payload
        return None

    def _voters(self, id: str) -> list[str | None]:
        """Return the recorded voters on a pending item."""
        votes = self._track.recorded()
        return [e.actor for e, p in votes if isinstance(p, ev.PendingVoted) and p.id == id]

    async def _next_message(self) -> bool:
        """Append the next recorded message, and the recorded changes before it. Returns whether
        there was a message."""
        if self._live.state.active is not None:
            return False
        for place in list(self._left):
            event = self._track.events[place]
            self._left.remove(place)
            if event.run is None and event.kind in (*CHANGES, "message.received"):
                await self._put(event.kind, event.data, new_id(), event.actor)
                if event.kind == "message.received":
                    return True
        return False


def _about(opened: ev.PendingOpened | None) -> Any:
    if opened is None:
        return None
    detail = opened.detail if isinstance(opened.detail, dict) else {}
    return opened.what, detail.get("tool"), detail.get("arguments")
