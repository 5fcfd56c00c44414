"""The first checkpoint of a thread that another program began: its conversation.

A session with messages that the harness or the adapter of another SDK wrote has no checkpoint. A
graph starts from one that is made of these messages, in the channel `messages`. Their events stay
where they are: the checkpoints of the graph refer to them.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from ...stores.port import Store
from ..foreign import ForeignEvents
from ..reading import read_newest_first
from .messages import from_event, message_of
from .thread import THREAD, ThreadLog
from .values import Codec

CHANNEL = "messages"
ID = "00000000-0000-6000-8000-{:012x}"  # of the checkpoint after an event: below all ids of graphs


async def first_checkpoint(
    store: Store, log: ThreadLog, codec: Codec, version: Any
) -> dict[str, Any] | None:
    """Return the checkpoint with the conversation of a log in which no graph has written, or None
    if there is no conversation. `version` is that of the channel."""
    row = await store.row(log.key)
    if row is None or row.log != log.log:
        return None
    if THREAD in await store.seqs(log.key, [THREAD], log=log.log):
        return None
    async with aclosing(read_newest_first(store, row)) as back:
        events = [event async for event in back][::-1]
    read = ForeignEvents(events)
    found = [event for event in events if event.seq in read.messages or event.seq in read.outcomes]
    messages = []
    for event in found:
        fields = from_event(event)
        if fields is not None:
            message = message_of(fields)
            messages.append(message)
            log.messages[fields["id"]] = event.seq, codec.encode(message)
    if not messages:
        return None
    return {
        **empty_checkpoint(),
        "id": ID.format(found[-1].seq),
        "ts": datetime.fromtimestamp(found[-1].at / 1000, UTC).isoformat(),
        "channel_values": {CHANNEL: messages},
        "channel_versions": {CHANNEL: version},
    }
