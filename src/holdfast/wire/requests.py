"""The types of the request bodies. Unknown fields are rejected with an error that names them."""

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
    """The kind of store for a new session, with options that the server allows."""

    kind: Name
    options: dict[str, str | int | float | bool] = {}


class Source(Request, frozen=True, kw_only=True):
    """An agent to load: the name of the loader, the source that the loader reads, and options that
    override fields of the agent's manifest."""

    loader: Name
    source: dict[str, Any]
    options: dict[str, Any] = {}


class GetOrCreate(Request, frozen=True, kw_only=True):
    """A session to open, or to create if it does not exist, with its agent, engine, store, user and
    other settings.

    The server has a default for each field. `user` defaults to the caller; another user requires
    the scope `sessions:all`. `source` uploads an agent. `files` are written to the work folder of a
    new session. `envs` are environment variables for the commands of the session, as far as the
    server allows them; they are kept in memory only.
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
    """The settings of a new session. If `id` is missing, the server assigns an id."""

    id: Id | None = None


class ChangeSession(Request, frozen=True, kw_only=True):
    """Change the title of a session, and set or remove metadata."""

    title: Name | None = None
    metadata: dict[Name, Any] = {}
    drop: list[Name] = []


class MediaPart(Request, frozen=True, kw_only=True):
    """An attachment of a message, such as an image; `data` is base64."""

    data: bytes
    media_type: Name
    name: Name | None = None


Content: TypeAlias = str | list[str | MediaPart]


class SendMessage(Request, frozen=True, kw_only=True):
    """A message to send. `busy` says how it is handled while a run is active."""

    content: Content
    busy: Busy = "queue"
    metadata: dict[Name, Any] = {}
    model: Name | None = None
    limits: dict[Literal["steps", "tokens", "cost", "seconds"], int | float] = {}


class Abort(Request, frozen=True, kw_only=True):
    """Stop the current run. If `run` is set, stop the run only if it has this id."""

    reason: Name | None = None
    run: Name | None = None


class Rewind(Request, frozen=True, kw_only=True):
    """Return the conversation to its state right after event `to`; 0 clears it."""

    to: Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Approve(Request, frozen=True, kw_only=True):
    """Approve a tool call, optionally with other arguments."""

    arguments: dict[str, Any] | None = None
    reason: Name | None = None


class Deny(Request, frozen=True, kw_only=True):
    """Deny a tool call; the model receives the reason."""

    reason: Name | None = None


class Answer(Request, frozen=True, kw_only=True):
    """Answer a question, or provide the result of an external call."""

    answer: Any


class Extend(Request, frozen=True, kw_only=True):
    """Set when a pending item expires: after this many seconds, or never if null."""

    seconds: Seconds | None


class EditText(Request, frozen=True, kw_only=True):
    """The new text of a message."""

    text: str


class Reorder(Request, frozen=True, kw_only=True):
    """Move these messages to the front of the queue, in this order."""

    order: list[Number]


class CreateThread(Request, frozen=True, kw_only=True):
    """A new, empty thread."""

    id: Id | None = None
    title: Name | None = None


class ForkThread(Request, frozen=True, kw_only=True):
    """A new thread that shares all events up to `at`; by default, up to the last event at which no
    turn is open."""

    at: Number | None = None
    id: Id | None = None
    title: Name | None = None


class RenameThread(Request, frozen=True, kw_only=True):
    """The new title of a thread."""

    title: Name


class SwitchMode(Request, frozen=True, kw_only=True):
    """Switch to another mode, and optionally send `text` as a message."""

    mode: Name
    text: str | None = None


class ChooseModel(Request, frozen=True, kw_only=True):
    """Choose another model; if `mode` is set, only for that mode. If `model` is null, the agent's
    model is used."""

    model: Name | None
    mode: Name | None = None


class ChangeState(Request, frozen=True, kw_only=True):
    """Set and remove entries of the user state."""

    set: dict[Name, Any] = {}
    drop: list[Name] = []


class ReplaceState(Request, frozen=True, kw_only=True):
    """Replace the whole user state."""

    state: dict[Name, Any]


class SetRule(Request, frozen=True, kw_only=True):
    """The permission rule for a tool or a category of tools; null removes the rule."""

    tool: Name | None = None
    category: Name | None = None
    rule: Literal["allow", "ask", "deny"] | None


class Grant(Request, frozen=True, kw_only=True):
    """Allow a tool or a category of tools without approval, until another driver takes over the
    session."""

    tool: Name | None = None
    category: Name | None = None


class AttachSurface(Request, frozen=True, kw_only=True):
    """Bind a surface, such as a chat channel, and its address to a session. With `move`, the
    surface is taken from the session that has it."""

    surface: Name
    address: Name
    detail: dict[Name, Any] = {}
    move: bool = False


class Resolve(Request, frozen=True, kw_only=True):
    """Find the session for a message from a surface, or create a session. `id` is the id of the
    message; repeating the request with the same id returns the same session."""

    surface: Name
    address: Name
    user: Name | None = None
    workspace: Name | None = None
    id: Name | None = None
    agent: Name | None = None
