"""Request bodies. Unknown fields are rejected; the error names them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from .files import File

Busy: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]
# An id that is part of a path: no slashes, no invisible characters, not `.` or `..`.
Id: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"^(?!\.{1,2}$)[^/\\\x00-\x20\x7f]+$")
]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=400, pattern=r"^[^\x00]+$")]
Seconds: TypeAlias = Annotated[float, Meta(ge=-86_400.0, le=3.0e9)]
Number: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 53) - 1)]


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of request bodies."""


class StoreWish(Request, frozen=True, kw_only=True):
    """The requested kind of store, with options that the server allows."""

    kind: Name
    options: dict[str, str | int | float | bool] = {}


class Source(Request, frozen=True, kw_only=True):
    """An agent to load: the loader, the source, and options that override the agent's
    description."""

    loader: Name
    source: dict[str, Any]
    options: dict[str, Any] = {}


class GetOrCreate(Request, frozen=True, kw_only=True):
    """A session to open, or to create if it does not exist, with its agent, engine, store, user and
    other settings.

    The server has a default for each field. `user` is the caller, unless the key may act for all
    users. `source` uploads an agent. `files` are written to the work folder of a new session.
    `envs` are environment variables for the commands of the session, as far as the server allows
    them; they are kept in memory only.
    """

    agent: Name | None = None
    engine: Name | None = None
    store: StoreWish | None = None
    user: Name | None = None
    title: Name | None = None
    workspace: Name | None = None
    labels: list[Name] = []
    metadata: dict[Name, Any] = {}
    source: Source | None = None
    files: list[File] = []
    envs: dict[Name, str] = {}


class CreateSession(GetOrCreate, frozen=True, kw_only=True):
    """A new session. If `id` is missing, the server assigns an id."""

    id: Id | None = None


class ChangeSession(Request, frozen=True, kw_only=True):
    """Change the title of a session, and set or remove metadata."""

    title: Name | None = None
    metadata: dict[Name, Any] = {}
    drop: list[Name] = []


class MediaPart(Request, frozen=True, kw_only=True):
    """A part of a message that is not text: `data` in base64."""

    data: bytes
    media_type: Name
    name: Name | None = None


Content: TypeAlias = str | list[str | MediaPart]


class SendMessage(Request, frozen=True, kw_only=True):
    """A message. `busy` says what happens if a run is active."""

    content: Content
    busy: Busy = "queue"
    metadata: dict[Name, Any] = {}
    model: Name | None = None
    limits: dict[Literal["steps", "tokens", "cost", "seconds"], int | float] = {}


class Abort(Request, frozen=True, kw_only=True):
    """Stop the current run; with `run`, only if it has this id."""

    reason: Name | None = None
    run: Name | None = None


class Rewind(Request, frozen=True, kw_only=True):
    """Return the conversation to its state right after event `to`; 0 clears it."""

    to: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Approve(Request, frozen=True, kw_only=True):
    """Approve a call, optionally with other arguments."""

    arguments: dict[str, Any] | None = None
    reason: Name | None = None


class Deny(Request, frozen=True, kw_only=True):
    """Deny a call; the model reads the reason."""

    reason: Name | None = None


class Answer(Request, frozen=True, kw_only=True):
    """Answer a question, or provide the result of an external call."""

    answer: Any


class Extend(Request, frozen=True, kw_only=True):
    """Set when a pending item expires: after this many seconds, or never if null."""

    seconds: Seconds | None


class EditText(Request, frozen=True, kw_only=True):
    """New text for a message."""

    text: str


class Reorder(Request, frozen=True, kw_only=True):
    """Move these messages to the front of the queue, in this order."""

    order: list[Number]


class CreateThread(Request, frozen=True, kw_only=True):
    """A new, empty thread."""

    id: Id | None = None
    title: Name | None = None


class ForkThread(Request, frozen=True, kw_only=True):
    """A new thread that shares all events up to `at`, by default up to the last safe point."""

    at: Number | None = None
    id: Id | None = None
    title: Name | None = None


class RenameThread(Request, frozen=True, kw_only=True):
    """A new title for a thread."""

    title: Name


class SwitchMode(Request, frozen=True, kw_only=True):
    """Switch to another mode, optionally with `text` as a message."""

    mode: Name
    text: str | None = None


class ChooseModel(Request, frozen=True, kw_only=True):
    """Choose another model; with `mode`, only in that mode. If `model` is null, the agent's model
    is used."""

    model: Name | None
    mode: Name | None = None


class ChangeState(Request, frozen=True, kw_only=True):
    """Set entries of the user state, and remove others."""

    set: dict[Name, Any] = {}
    drop: list[Name] = []


class ReplaceState(Request, frozen=True, kw_only=True):
    """Replace the whole user state."""

    state: dict[Name, Any]


class SetRule(Request, frozen=True, kw_only=True):
    """The rule for a tool or a category; null removes the rule."""

    tool: Name | None = None
    category: Name | None = None
    rule: Literal["allow", "ask", "deny"] | None


class Grant(Request, frozen=True, kw_only=True):
    """Allow a tool or a category without asking, until the driver changes."""

    tool: Name | None = None
    category: Name | None = None


class AttachSurface(Request, frozen=True, kw_only=True):
    """Bind (surface, address) to a session; `move` takes the surface over from another session."""

    surface: Name
    address: Name
    detail: dict[Name, Any] = {}
    move: bool = False


class Resolve(Request, frozen=True, kw_only=True):
    """Find the session of a message by the surface that the message came from, or create a session.
    `id` is the id of the message, so that a repeated message is handled once."""

    surface: Name
    address: Name
    user: Name | None = None
    workspace: Name | None = None
    id: Name | None = None
    agent: Name | None = None
