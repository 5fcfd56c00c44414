"""Response types that exist only in the HTTP API."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..log.catalog import Page, Pending, Row
from ..log.events import Event
from ..log.transcript import Message
from ..values.pending import Ask
from ..values.records import PersonErased, Remains
from ..values.search import SearchPage
from ..values.status import Queued
from ..values.usage import Usage


class SessionView(Struct, frozen=True, kw_only=True):
    """A session, with its engine and store. `cursor` is the position after its last event,
    `events` the URL of its stream."""

    id: str
    thread: str
    engine: str
    store: str
    cursor: str
    events: str
    row: Row
    created: bool = False


class RowPage(Page[Row], frozen=True, kw_only=True):
    """Sessions or threads; `cursor` is for the next page and null at the end. `missing` lists the
    stores that could not be reached for this page or an earlier one; their sessions are neither
    listed nor counted."""

    missing: list[str] = []


class PendingPage(Struct, frozen=True, kw_only=True):
    """Pending items, oldest first within each store. `tag` changes when an item of this page
    changes. `missing` lists the stores that could not be reached for this page or an earlier
    one."""

    items: list[Pending]
    cursor: str | None = None
    tag: str = ""
    missing: list[str] = []


class FoundPage(SearchPage, frozen=True, kw_only=True):
    """Matches of a search, newest first within each store. `missing` lists the stores that could
    not be reached for this page or an earlier one."""

    missing: list[str] = []


class ErasedIn(Struct, frozen=True, kw_only=True):
    """The data of a user that was erased in one store. If `failed` contains an error code, the
    other fields are unknown."""

    store: str
    options: dict[str, Any] = {}
    failed: str | None = None
    sessions: list[str] = []
    events: dict[str, int] = {}
    refused: dict[str, str] = {}
    removed: dict[str, int] = {}
    remains: list[Remains] = []


class ErasedPerson(PersonErased, frozen=True, kw_only=True):
    """The data of a user that was erased, in all stores together and in each store. Stores that
    could not be reached are listed in `remains`."""

    stores: list[ErasedIn] = []


class Asks(Struct, frozen=True, kw_only=True):
    """The pending items of one session, oldest first."""

    items: list[Ask]


class EventPage(Struct, frozen=True, kw_only=True):
    """Events of a log in order; `cursor` is the position after them, `head` the last event of the
    log."""

    items: list[Event]
    log: str
    head: int
    cursor: str


class Transcript(Struct, frozen=True, kw_only=True):
    """The messages of a conversation, oldest first."""

    items: list[Message]


class Accepted(Struct, frozen=True, kw_only=True):
    """The response to an accepted message: it is in the log as event `seq`. The stream after
    `cursor` begins with the message."""

    session: str
    thread: str
    seq: int
    cursor: str
    events: str


class Rewound(Struct, frozen=True, kw_only=True):
    """The response to a rewind: event `seq` returned the conversation of the thread to event
    `to`."""

    session: str
    thread: str
    seq: int
    to: int


class Followed(Struct, frozen=True, kw_only=True):
    """The queued messages, in the order in which runs will handle them."""

    items: list[Queued]


class ModeShown(Struct, frozen=True, kw_only=True):
    """The current mode of the agent, and all modes."""

    mode: str
    modes: list[str]
    changed: bool = False


class ModelShown(Struct, frozen=True, kw_only=True):
    """The model of the next call, and the model chosen for the thread."""

    model: str | None
    chosen: str | None
    changed: bool = False


class DisplayShown(Struct, frozen=True):
    """The placeholder for a `Display` in responses; decode it with `display.from_json`."""


class StateShown(Struct, frozen=True, kw_only=True):
    """The user state."""

    state: dict[str, Any]


class UsageShown(Struct, frozen=True, kw_only=True):
    """The usage of this thread, and of all threads."""

    thread: Usage
    session: dict[str, int]


class PermissionsShown(Struct, frozen=True, kw_only=True):
    """Rules by tool and category, and the current grants."""

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
    """The surfaces of a session after a change."""

    items: list[SurfaceShown]


class Health(Struct, frozen=True, kw_only=True):
    """The server is running. Lists its engines, loaders and stores."""

    status: str
    version: str
    engines: dict[str, list[str]]
    loaders: list[str]
    stores: list[str]


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the server is ready: for each part, `ok` or a description of the problem."""

    ready: bool
    parts: dict[str, str]
