"""Reads the values of a checkpoint's channels, and its pending writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key

from ...log.events import Event
from ...stores.port import Store
from ..recent import keep
from .fields import message_of
from .lists import RECENT, ItemCode, Listed
from .messages import NATIVE, from_event
from .thread import CHECKPOINT, KEPT, NEAR, Record, ThreadLog
from .values import Code, Codec

Writes = list[tuple[str, str, Any]]

REWRITE = 1 << 60  # weight of the tails of a list that has lost items


async def load_values(store: Store, log: ThreadLog, codec: Codec, record: Record) -> dict[str, Any]:
    """Return the values of the channels of a checkpoint, without erased values."""
    places = {**record.data["refs"], **dict.fromkeys(record.data["values"], record.seq)}
    known = {record.seq: record.data}
    lists = {}
    for channel, place in places.items():
        listed = log.lists.get((record.ns, channel))
        if listed is not None and listed.seq == place:
            lists[channel] = _again(listed, codec)
    events = await log.fetch(
        store, {place for name, place in places.items() if name not in lists} - {record.seq}
    )
    known |= {seq: event.json() for seq, event in events.items()}
    values: dict[str, Any] = {}
    for channel in checkpoint_of(record, codec)["channel_versions"]:
        if channel in lists:
            values[channel] = lists[channel]
            continue
        code = known.get(places.get(channel, 0), {}).get("values", {}).get(channel)
        if code is None:
            continue
        if "items" in code or "tail" in code:
            made = await _load_list(store, log, codec, places[channel], channel, code)
            keep(log.lists, (record.ns, channel), made, KEPT)
            values[channel] = [*made.items]
        else:
            values[channel] = codec.decode(code)
    return values


def checkpoint_of(record: Record, codec: Codec) -> dict[str, Any]:
    return codec.decode(record.data["checkpoint"])  # type: ignore[no-any-return]


def _again(listed: Listed, codec: Codec) -> list[Any]:
    """Return the items of a list in memory. The newest ones are decoded again, because a graph may
    have changed those that it received."""
    if listed.recent:
        listed.items[-len(listed.recent) :] = [codec.decode(code) for code in listed.recent]
    return [*listed.items]


async def load_list(
    store: Store, log: ThreadLog, codec: Codec, seq: int, channel: str
) -> Listed | None:
    """Return the list of a channel as an event has it; None if the value is not a list, or was
    erased."""
    event = (await log.fetch(store, [seq])).get(seq)
    code = None if event is None else event.json().get("values", {}).get(channel)
    if code is None or not ("items" in code or "tail" in code):
        return None
    return await _load_list(store, log, codec, seq, channel, code)


async def _load_list(
    store: Store, log: ThreadLog, codec: Codec, seq: int, channel: str, code: Code
) -> Listed:
    since, weight = seq, None
    codes: list[ItemCode]
    events: dict[int, Event] = {}
    end = seq  # the events from `since` to before `end` are read together
    if "tail" in code:
        since, weight = code["tail"]["since"], code["tail"]["weight"]
        base = code["tail"]["base"]
        end = seq if seq - base <= NEAR else base + 1
        async for event in log.read(store, after=since - 1, before=end):
            if event.kind == CHECKPOINT or event.kind in NATIVE:
                events[event.seq] = event
        codes, length = _joined(code, channel, events)
    else:
        codes = code["items"]
        length = len(codes)
    others = [item for item in codes if isinstance(item, int) and not since <= item < end]
    events |= await log.fetch(store, others)
    items, kept, recent = _items(codes, events, codec)
    whole, tails = weight or (len(msgspec.json.encode(codes)), 0)
    complete = len(kept) == len(codes) == length
    return Listed(seq, items, kept, recent, since, whole, tails if complete else REWRITE)


def _items(
    codes: Sequence[ItemCode], events: Mapping[int, Event], codec: Codec
) -> tuple[list[Any], list[ItemCode], list[Code]]:
    """Return the items with these codes, except those that were erased; their codes; and the codes
    of the newest ones with messages in full. No item shares a list or dict with a code."""
    items: list[Any] = []
    kept: list[ItemCode] = []
    recent: deque[Code] = deque(maxlen=RECENT)
    for item in codes:
        code = _inline(item, events)
        if code is not None:
            native = isinstance(item, int)
            items.append(message_of(code["message"]) if native else codec.decode(code))
            kept.append(item)
            recent.append(code)
    if recent:
        items[-len(recent) :] = map(codec.decode, recent)
    return items, kept, [*recent]


def _joined(code: Code, channel: str, earlier: Mapping[int, Event]) -> tuple[list[ItemCode], int]:
    """Return the codes of all items of a list that is stored as a tail, and how many items it had
    before some were erased."""
    length = code["tail"]["keep"] + len(code["tail"]["items"])
    tails = []
    while "tail" in code:
        tails.append(code["tail"])
        event = earlier.get(code["tail"]["base"])
        found = None if event is None else event.json().get("values", {}).get(channel)
        if found is None:  # erased
            code = {"items": []}
            break
        code = found
    codes: list[ItemCode] = [*code["items"]]
    for tail in reversed(tails):
        codes[tail["keep"] :] = tail["items"]
    return codes, length


def _inline(code: ItemCode, messages: Mapping[int, Event]) -> Code | None:
    if not isinstance(code, int):
        return code
    fields = from_event(messages[code]) if code in messages else None
    return None if fields is None else {"message": fields}


def load_writes(found: Iterable[dict[str, Any]], codec: Codec) -> Writes:
    """Return pending writes in LangGraph's order. A repeated write is ignored, but a batch in which
    all channels are special (such as errors and interrupts) replaces earlier writes."""
    writes: dict[tuple[str, str, int], tuple[str, Code]] = {}
    places: dict[tuple[str, int], tuple[str, str, int]] = {}
    for data in found:
        special = all(channel in WRITES_IDX_MAP for _, channel, _ in data["writes"])
        for index, channel, code in data["writes"]:
            place = data["task"], index
            if place in places:
                if not special:
                    continue
                del writes[places[place]]
            places[place] = writes_sort_key(data["path"], *place)
            writes[places[place]] = channel, code
    return [
        (name[1], channel, codec.decode(code)) for name, (channel, code) in sorted(writes.items())
    ]
