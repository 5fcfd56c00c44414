"""What a server answers, where it is no value of the library itself."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..log.catalog import Page, Pending, Row
from ..log.events import Event
from ..log.transcript import Message
from ..values.pending import Ask
from ..values.records import PersonErased, Remains
from ..values.status import Queued
from ..values.usage import Usage


class SessionView(Struct, frozen=True, kw_only=True):
    """A session, and where it is served and kept. `cursor` is behind its last event, `events`
    where they can be followed."""

    id: str
    thread: str
    engine: str
    store: str
    cursor: str
    events: str
    row: Row
    created: bool = False


class RowPage(Page[Row], frozen=True, kw_only=True):
    """Sessions or threads; `cursor` continues behind them and is null at the end. `missing` are
    the stores that could not be asked, for this page or one before it: what they have is neither
    listed nor counted."""

    missing: list[str] = []


class PendingPage(Struct, frozen=True, kw_only=True):
    """What waits for a person, in each store oldest first. `tag` stands for what there is on this
    page, `missing` are the stores that could not be asked for it or for one before it."""

    items: list[Pending]
    cursor: str | None = None
    tag: str = ""
    missing: list[str] = []


class ErasedIn(Struct, frozen=True, kw_only=True):
    """What was erased of a person in one store. With `failed`, the code of what went wrong,
    nothing is claimed of it."""

    store: str
    options: dict[str, Any] = {}
    failed: str | None = None
    sessions: list[str] = []
    events: dict[str, int] = {}
    refused: dict[str, str] = {}
    removed: dict[str, int] = {}
    remains: list[Remains] = []


class ErasedPerson(PersonErased, frozen=True, kw_only=True):
    """What was erased of a person in all stores together, and in each. What could not be reached
    stands in `remains`."""

    stores: list[ErasedIn] = []


class Asks(Struct, frozen=True, kw_only=True):
    """What waits for a person in one session, oldest first."""

    items: list[Ask]


class EventPage(Struct, frozen=True, kw_only=True):
    """Events of a log in order; `cursor` is behind the last of them, `head` the log's last."""

    items: list[Event]
    log: str
    head: int
    cursor: str


class Transcript(Struct, frozen=True, kw_only=True):
    """A conversation as messages, oldest first."""

    items: list[Message]


class Accepted(Struct, frozen=True, kw_only=True):
    """A message that is in the log, as event `seq`. What follows `cursor` is the message, and
    what becomes of it."""

    session: str
    thread: str
    seq: int
    cursor: str
    events: str


class Followed(Struct, frozen=True, kw_only=True):
    """The messages that wait, in the order in which they will be taken up."""

    items: list[Queued]


class ModeShown(Struct, frozen=True, kw_only=True):
    """The mode that the agent works in, and those that there are."""

    mode: str
    modes: list[str]
    changed: bool = False


class ModelShown(Struct, frozen=True, kw_only=True):
    """The model of the next call, and the thread's own choice."""

    model: str | None
    chosen: str | None
    changed: bool = False


class DisplayShown(Struct, frozen=True):
    """In the place of a `Display`, which has text of its own sort: `display.from_json` reads it."""


class StateShown(Struct, frozen=True, kw_only=True):
    """The user state."""

    state: dict[str, Any]


class UsageShown(Struct, frozen=True, kw_only=True):
    """What this thread has used, and what all threads have."""

    thread: Usage
    session: dict[str, int]


class PermissionsShown(Struct, frozen=True, kw_only=True):
    """Rules by tool and category, and what is not asked about at the moment."""

    tools: dict[str, str]
    categories: dict[str, str]
    granted_tools: list[str]
    granted_categories: list[str]


class SurfaceShown(Struct, frozen=True, kw_only=True):
    """A surface that is bound to the session."""

    surface: str
    address: str
    detail: Any = None


class MovedSurface(Struct, frozen=True, kw_only=True):
    """The surfaces of a session, after a change."""

    items: list[SurfaceShown]


class Health(Struct, frozen=True, kw_only=True):
    """The server is there."""

    status: str
    version: str
    engines: dict[str, list[str]]
    loaders: list[str]
    stores: list[str]


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the server can do its work: `ok`, or what is wrong, of each part."""

    ready: bool
    parts: dict[str, str]
