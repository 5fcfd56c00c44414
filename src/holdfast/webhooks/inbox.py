"""Asks an operator about an endpoint, in the inbox of its tenant: whether dead letters are to be
delivered again, and whether an endpoint that answered 410 is to get deliveries again.

The items are in a session of the tenant itself, so that they are listed and decided like all
others. Approving one delivers again; denying it drops the dead letters, or leaves the endpoint
stopped."""

from __future__ import annotations

from contextlib import aclosing

from msgspec import Struct

from ..errors import HeadMoved, SessionNotFound
from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import typed
from ..log.events import Key, ids
from ..stores.port import Store
from .records import event_of

ITEM = "webhook:"  # + endpoint, question and number


class Decided(Struct, frozen=True):
    """A decision of an operator, and when it was made (ms)."""

    again: bool
    at: int


def dead_item(endpoint: str, number: int) -> str:
    """Return the item that asks about the dead letters up to event `number`."""
    return f"{ITEM}{endpoint}:dead:{number}"


def gone_item(endpoint: str, number: int) -> str:
    """Return the item that asks about an endpoint that was stopped by event `number`."""
    return f"{ITEM}{endpoint}:gone:{number}"


async def ask(store: Store, key: Key, row: Row | None, item: str, title: str, site: str) -> None:
    """Open an item. Has no effect if it was opened before."""
    opened = ev.PendingOpened(id=item, what="approval", title=title, detail={"site": site})
    event = event_of(opened, id=f"opened:{item}")
    if row is None:
        created = event_of(ev.SessionCreated(title=f"Webhook endpoint {site}"))
        try:
            await store.append(key, [created, event], expected=0, create=True)
            return
        except HeadMoved:  # another process created it first
            pass
    await store.append(key, [event])


async def decision(store: Store, key: Key, item: str) -> Decided | None:
    """Return the decision on an item; None while it is open or was never opened."""
    try:
        seq = (await store.seqs(key, [ids.settle_id(item)])).get(ids.settle_id(item))
    except SessionNotFound:
        return None
    return None if seq is None else await _read(store, key, seq)


async def latest(store: Store, key: Key, endpoint: str) -> Decided | None:
    """Return the latest decision about dead letters of an endpoint."""
    prefix = ids.settle_id(f"{ITEM}{endpoint}:dead:")
    async with aclosing(store.read(key, reverse=True)) as events:
        async for event in events:
            if event.kind == "pending.settled" and event.id.startswith(prefix):
                return await _read(store, key, event.seq)
    return None


async def _read(store: Store, key: Key, seq: int) -> Decided:
    again, at = False, 0
    async for event in store.read(key, after=seq - 1, before=seq + 1):
        payload = typed(event)
        at = event.at
        if isinstance(payload, ev.PendingSettled):
            again = payload.outcome in ("approved", "answered")
    return Decided(again, at)
