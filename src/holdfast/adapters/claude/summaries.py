"""Computes what listings show of a session: the SDK's summary and the time of the last write. Pure.

Each append to a main transcript ends with a note: a `metadata.changed` event that is copied to the
row, so that a listing needs only rows. A note contains the number that its event gets if all
entries of the batch are new. A note that is not the last event of its log is outdated, and the
summary is computed from the log. The time of the last write comes from the store's clock, but is
always later than the time of the previous note.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from ...bundle.claude.entries import KINDS, EntryText, decode, event_text, is_entry
from ...errors import InvalidValue, MissingExtra
from ...log.catalog import Row
from ...log.events import Event, NewEvent, to_json

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey, SessionSummaryEntry

Data: TypeAlias = dict[str, Any]

NAME = "claude"  # the key of the note in a row's metadata
SUMMARY = "claude.summary"  # event with the data of a summary that is too large for a row
ROOM = 12 << 10  # bytes of a note; a row's metadata may have other fields as well


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The event at the end of an append that contains the summary. `at` is the number of this
    event, `base` the head before the append, `floor` the earliest time of this write. If `data` is
    None, the data is in the previous event."""

    at: int
    base: int
    floor: int
    data: Data | None = None


class TranscriptSummary(Struct, frozen=True, kw_only=True):
    """The summary of a main transcript up to `head`; `data` is None before its first entry."""

    log: str | None = None
    head: int = 0
    mtime: int = 0
    data: Data | None = None


def fold(data: Data | None, entries: list[Any]) -> Data:
    """Add entries to the SDK's summary and return it. Entries that are not objects are ignored."""
    try:
        from claude_agent_sdk import fold_session_summary  # noqa: PLC0415  an extra, and slow
    except ModuleNotFoundError as error:
        raise MissingExtra(extra="claude", needed_for="ClaudeSessionStore") from error
    key: SessionKey = {"project_key": "", "session_id": ""}
    prev: SessionSummaryEntry | None = None
    if data is not None:
        prev = {"session_id": "", "mtime": 0, "data": data}
    objects: list[Any] = [entry for entry in entries if isinstance(entry, dict)]
    return fold_session_summary(prev, key, objects)["data"]


def note_events(
    before: TranscriptSummary, events: int, entries: list[Any], *, inline: bool
) -> list[NewEvent]:
    """Return the events to append after `events` events with these entries: the note, preceded by
    an event with the data if it is too large for a row or `inline` is false."""
    data = fold(before.data, entries)
    base, floor = before.head, before.mtime + 1
    at = base + events + 1
    if inline:
        try:
            note = to_json({"set": {NAME: Note(at=at, base=base, floor=floor, data=data)}})
            if len(note) <= ROOM:
                return [NewEvent(kind="metadata.changed", data=note)]
        except InvalidValue:  # a lone surrogate
            pass
    apart = NewEvent.of(SUMMARY, EntryText(json.dumps(data, separators=(",", ":"))))
    note = to_json({"set": {NAME: Note(at=at + 1, base=base, floor=floor)}})
    return [apart, NewEvent(kind="metadata.changed", data=note)]


def is_ours(row: Row) -> bool:
    """Return whether a row has a note. Only the row of a main transcript with entries has one."""
    return NAME in row.metadata


def note_in(row: Row) -> Note | None:
    """Return the `Note` in a row's metadata, even if it is outdated; None if there is none."""
    try:
        return msgspec.convert(row.metadata.get(NAME), Note)
    except msgspec.ValidationError:
        return None


def from_row(row: Row) -> TranscriptSummary | None:
    """Return the summary in a row, or None if it is outdated. If its `data` is None, the data is in
    the second to last event of the log."""
    note = note_in(row)
    if note is None or note.at != row.head:
        return None
    mtime = max(note.floor, row.last)
    return TranscriptSummary(log=row.log, head=row.head, mtime=mtime, data=note.data)


def apart_data(event: Event) -> Data:
    """Return the data of a summary from an event `claude.summary`."""
    data: Data = json.loads(event_text(event))
    return data


class SummaryFold:
    """Computes a summary from events of the log. `complete` is true if it started at the first
    event, or has read a valid note."""

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        self.mtime = 0
        self.data: Data | None = None
        self._apart: Data | None = None
        self._added: int | None = None

    def take(self, event: Event) -> None:
        if event.kind in KINDS:
            self._added = event.at
            if self.complete:
                self.data = fold(self.data, [decode(event)] if is_entry(event) else [])
        elif event.kind == SUMMARY:
            self._apart = apart_data(event)
        elif event.kind == "metadata.changed" and (note := _note(event)) is not None:
            self.mtime = max(note.floor, event.at)
            self._added = None
            if note.at == event.seq:
                self.data = self._apart if note.data is None else note.data
                self.complete = True

    def summary(self, log: str, head: int) -> TranscriptSummary:
        mtime = self.mtime
        if self._added is not None:
            mtime = max(mtime + 1, self._added)
        return TranscriptSummary(log=log, head=head, mtime=mtime, data=self.data)


class _Set(Struct):
    claude: Note


class _Changed(Struct):
    set: _Set


def _note(event: Event) -> Note | None:
    try:
        return event.payload(_Changed).set.claude
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
