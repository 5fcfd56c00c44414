"""What a listing shows of a session: the SDK's own fold and the time of the last write. Pure.

Each append to a main transcript ends with a note, a `metadata.changed` that lands in the row, so
that a listing reads rows alone. A note names the number that its event has if no entry of the
batch was known before. One that does not stand at the end of its log is not believed: then the
summary is made from the log. The time is the store's clock, raised above the one before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import InvalidValue, MissingExtra
from ...log.catalog import Row
from ...log.events import Event, NewEvent, to_json
from .entries import KINDS, Text, decode, is_entry, objects

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey, SessionSummaryEntry

Data: TypeAlias = dict[str, Any]

NAME = "claude"  # of the note in a row's metadata
SUMMARY = "claude.summary"  # the data of a summary that a row has no room for
ROOM = 12 << 10  # bytes of a note; a row's metadata may have more beside it


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`at` is the number of its own event, `base` the head that it was made for, `floor` the
    least time of this write. Without `data`, that is in the event before."""

    at: int
    base: int
    floor: int
    data: Data | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """What is known of a main transcript up to `head`; `data` is None before its first entry."""

    log: str | None = None
    head: int = 0
    mtime: int = 0
    data: Data | None = None
    apart: bool = False


def fold(data: Data | None, entries: list[Any]) -> Data:
    """The SDK's fold over more entries; what is no object adds nothing."""
    try:
        from claude_agent_sdk import fold_session_summary  # noqa: PLC0415  an extra, and slow
    except ModuleNotFoundError as error:
        raise MissingExtra(extra="claude", needed_for="ClaudeSessionStore") from error
    key: SessionKey = {"project_key": "", "session_id": ""}
    prev: SessionSummaryEntry | None = None
    if data is not None:
        prev = {"session_id": "", "mtime": 0, "data": data}
    return fold_session_summary(prev, key, objects(entries))["data"]


def noted(before: Summary, events: int, entries: list[Any], *, inline: bool) -> list[NewEvent]:
    """What to append behind `events` events that bring these entries: the note, and before it
    the data if they have no room in a row or must not be `inline`."""
    data = fold(before.data, entries)
    base, floor = before.head, before.mtime + 1
    at = base + events + 1
    if inline:
        try:
            note = to_json({"set": {NAME: Note(at=at, base=base, floor=floor, data=data)}})
            if len(note) <= ROOM:
                return [NewEvent(kind="metadata.changed", data=note)]
        except InvalidValue:  # half of a surrogate pair
            pass
    text = Text(json.dumps(data, separators=(",", ":")))
    apart = NewEvent.of(SUMMARY, text)
    note = to_json({"set": {NAME: Note(at=at + 1, base=base, floor=floor)}})
    return [apart, NewEvent(kind="metadata.changed", data=note)]


def is_ours(row: Row) -> bool:
    """Whether a row is of a main transcript with entries."""
    return NAME in row.metadata


def note_in(row: Row) -> Note | None:
    """The last note of a log, believed or not."""
    try:
        return msgspec.convert(row.metadata.get(NAME), Note)
    except msgspec.ValidationError:
        return None


def from_row(row: Row) -> Summary | None:
    """The summary that a row holds, None if it cannot be believed. If its data are `apart`,
    they are in the event before the last."""
    note = note_in(row)
    if note is None or note.at != row.head:
        return None
    mtime = max(note.floor, row.last)
    apart = note.data is None
    return Summary(log=row.log, head=row.head, mtime=mtime, data=note.data, apart=apart)


def apart_data(event: Event) -> Data:
    """The data of a summary that was kept apart."""
    data: Data = json.loads(event.payload(Text).text)
    return data


class Walk:
    """A summary made from the log itself, one event after the other. It is `sure` of what came
    before the first event that it was given as soon as it meets a note that is right."""

    def __init__(self, *, sure: bool) -> None:
        self.sure = sure
        self.mtime = 0
        self.data: Data | None = None
        self._apart: Data | None = None
        self._added: int | None = None

    def take(self, event: Event) -> None:
        if event.kind in KINDS:
            self._added = event.at
            if self.sure:
                self.data = fold(self.data, [decode(event)] if is_entry(event) else [])
        elif event.kind == SUMMARY:
            self._apart = apart_data(event)
        elif event.kind == "metadata.changed" and (note := _note(event)) is not None:
            self.mtime = max(note.floor, event.at)
            self._added = None
            if note.at == event.seq:
                self.data = self._apart if note.data is None else note.data
                self.sure = True

    def summary(self, log: str, head: int) -> Summary:
        mtime = self.mtime
        if self._added is not None:
            mtime = max(mtime + 1, self._added)
        return Summary(log=log, head=head, mtime=mtime, data=self.data)


class _Set(Struct):
    claude: Note


class _Changed(Struct):
    set: _Set


def _note(event: Event) -> Note | None:
    try:
        return event.payload(_Changed).set.claude
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
