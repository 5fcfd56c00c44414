"""Makes the first checkpoint of a thread whose conversation another program wrote.

A session that the harness or the adapter of another SDK wrote has messages but no checkpoint. A
graph starts from a checkpoint with these messages in the channel `messages`. Their events are not
copied: the later checkpoints of the graph refer to them.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from ...stores.port import Store
from ..foreign import ForeignEvents
from ..reading import read_newest_first
from .fields import message_of
from .messages import from_event
from .thread import THREAD, ThreadLog
from .values import Codec

CHANNEL = "messages"
ID = "00000000-0000-6000-8000-{:012x}"  # of the checkpoint after an event: below all ids of graphs


async def first_checkpoint(
    store: Store, log: ThreadLog, codec: Codec, version: Any
) -> dict[str, Any] | None:
    """Return a checkpoint with the conversation of a log; None if the log has no conversation, or a
    graph has already written to it. `version` is the version of the channel."""
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
