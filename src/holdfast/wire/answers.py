"""Response types that exist only in the HTTP API."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..log.catalog import Page, Pending, Row
from ..log.events import Event
from ..log.transcript import Message
from ..values.audit import Audited
from ..values.budgets import BudgetUsage
from ..values.pending import Ask
from ..values.records import PersonErased, Remains
from ..values.search import SearchPage
from ..values.status import Queued
from ..values.usage import Spent, Usage


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as the API returns it, with its engine and store. `cursor` is the position after
    its last event, `events` the URL of its event stream."""

    id: str
    thread: str
    engine: str
    store: str
    cursor: str
    events: str
    row: Row
    created: bool = False


class RowPage(Page[Row], frozen=True, kw_only=True):
    """A page of sessions or threads. `cursor` requests the next page; it is null on the last page.
    `missing` lists the stores that were unavailable for this page or an earlier one; their sessions
    are neither listed nor counted."""

    missing: list[str] = []


class PendingPage(Struct, frozen=True, kw_only=True):
    """A page of pending items, oldest first within each store. `tag` is a hash of the items, with
    which a client can wait for a change. `missing` lists the stores that were unavailable for this
    page or an earlier one."""

    items: list[Pending]
    cursor: str | None = None
    tag: str = ""
    missing: list[str] = []


class BudgetPage(Page[BudgetUsage], frozen=True, kw_only=True):
    """A page of what was used of budgets, most recently used first within each store. `missing`
    lists the stores that were unavailable for this page or an earlier one."""

    missing: list[str] = []


class FoundPage(SearchPage, frozen=True, kw_only=True):
    """A page of search results, newest first within each store. `missing` lists the stores that
    were unavailable for this page or an earlier one."""

    missing: list[str] = []


class ErasedIn(Struct, frozen=True, kw_only=True):
    """The result of erasing a user's data in one store. If `failed` contains an error code, the
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
    """The result of erasing a user's data: the totals of all stores, and in `stores` the result of
    each store. Stores that could not be reached are listed in `remains`."""

    stores: list[ErasedIn] = []


class Asks(Struct, frozen=True, kw_only=True):
    """The pending items of one session and its sub-agents, oldest first."""

    items: list[Ask]


class EventPage(Struct, frozen=True, kw_only=True):
    """A page of events of a log, in order. `cursor` is the position after the last event of the
    page, `head` the number of the last event of the log. `before` requests the next page of a
    reversed list; it is null on the last page, and if the list is not reversed."""

    items: list[Event]
    log: str
    head: int
    cursor: str
    before: int | None = None


class AuditPage(Struct, frozen=True, kw_only=True):
    """A page of the tool calls of a thread, in the order in which they were proposed. `after`
    requests the next page; it is null on the last page."""

    items: list[Audited]
    after: int | None = None


class DamageShown(Struct, frozen=True, kw_only=True):
    """One problem of a session that a check found: its kind, and the thread and event that it
    concerns."""

    problem: str
    thread: str | None = None
    seq: int | None = None


class Verified(Struct, frozen=True, kw_only=True):
    """The result of a check of a session: whether every event matches its hash and its link, up to
    event `head` of thread `main`, whose link is `link`. `damage` lists the first of the `problems`;
    `unlinked` events are from releases without links, so that only their hashes were checked. `by`
    requested the check, at `at` (UTC ms)."""

    session: str
    ok: bool
    head: int
    at: int
    link: str | None = None
    damage: list[DamageShown] = []
    problems: int = 0
    unlinked: int = 0
    by: str | None = None


class LeaseShown(Struct, frozen=True, kw_only=True):
    """The process that drives a thread, and the times (UTC ms) since when it does and until when,
    if it does not renew its lease. All fields are null if no process drives it."""

    owner: str | None = None
    since: int | None = None
    until: int | None = None


class UsageTable(Struct, frozen=True, kw_only=True):
    """The model usage of a session by thread, run and model."""

    items: list[Spent]


class Me(Struct, frozen=True, kw_only=True):
    """The caller as the server knows it, and what the server offers: its version, agents and
    stores. `key` is the id of the caller's API key. With `two_person`, another person than the
    sender of the messages must decide about their calls."""

    principal: str
    tenant: str
    scopes: list[str]
    key: str | None = None
    two_person: bool = False
    version: str = ""
    agents: list[str] = []
    stores: list[str] = []


class Transcript(Struct, frozen=True, kw_only=True):
    """The messages of a conversation, oldest first."""

    items: list[Message]


class Accepted(Struct, frozen=True, kw_only=True):
    """The response to an accepted message, which is stored in the log as event `seq`. A stream that
    is read from `cursor` starts with this message."""

    session: str
    thread: str
    seq: int
    cursor: str
    events: str


class Rewound(Struct, frozen=True, kw_only=True):
    """The response to a rewind: event `seq` records that the conversation was returned to its state
    right after event `to`."""

    session: str
    thread: str
    seq: int
    to: int


class Followed(Struct, frozen=True, kw_only=True):
    """The queued messages, in the order in which they will be processed."""

    items: list[Queued]


class ModeShown(Struct, frozen=True, kw_only=True):
    """The current mode of the agent, and all its modes."""

    mode: str
    modes: list[str]
    changed: bool = False


class ModelShown(Struct, frozen=True, kw_only=True):
    """The model of the next call, and the model that was chosen for the thread, if any."""

    model: str | None
    chosen: str | None
    changed: bool = False


class DisplayShown(Struct, frozen=True):
    """Represents a `Display` in the API schema. Decode its JSON with `display.from_json`."""


class StateShown(Struct, frozen=True, kw_only=True):
    """The user state: a JSON object that belongs to the whole session."""

    state: dict[str, Any]


class UsageShown(Struct, frozen=True, kw_only=True):
    """The model usage of one thread, and of all threads of the session."""

    thread: Usage
    session: dict[str, int]


class PermissionsShown(Struct, frozen=True, kw_only=True):
    """The permission rules of a session by tool and by category, and the current grants."""

    tools: dict[str, str]
    categories: dict[str, str]
    granted_tools: list[str]
    granted_categories: list[str]


class SurfaceShown(Struct, frozen=True, kw_only=True):
    """A surface, such as a chat channel, and its address, attached to a session."""

    surface: str
    address: str
    detail: Any = None


class MovedSurface(Struct, frozen=True, kw_only=True):
    """The surfaces that are attached to a session."""

    items: list[SurfaceShown]


class Health(Struct, frozen=True, kw_only=True):
    """The response of a running server: its version, engines, loaders and stores."""

    status: str
    version: str
    engines: dict[str, list[str]]
    loaders: list[str]
    stores: list[str]


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether the server is ready to accept requests: for each component, `ok` or a description of
    the problem."""

    ready: bool
    parts: dict[str, str]
