"""What a client may ask for. Fields that there are not are refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from .files import File

Busy: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]
# An id that stands in a path: no slash, nothing that cannot be seen, no way up.
Id: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=200, pattern=r"^(?!\.{1,2}$)[^/\\\x00-\x20\x7f]+$")
]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=400, pattern=r"^[^\x00]+$")]
Seconds: TypeAlias = Annotated[float, Meta(ge=-86_400.0, le=3.0e9)]
Number: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 53) - 1)]


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a request."""


class StoreWish(Request, frozen=True, kw_only=True):
    """A store by its kind, with options that the server allows."""

    kind: Name
    options: dict[str, str | int | float | bool] = {}


class Source(Request, frozen=True, kw_only=True):
    """An agent to be loaded: by which loader, from where, and what its description is to say
    instead."""

    loader: Name
    source: dict[str, Any]
    options: dict[str, Any] = {}


class GetOrCreate(Request, frozen=True, kw_only=True):
    """A session, begun if it is not there: who serves it, where it is kept, whose it is.

    What is left out is the server's default; `user` is whoever asks, unless the key may act
    for all. In place of an agent of the server's, `source` brings one. `files` are put into a
    new session's work folder. `envs` are what its commands find in their environment, those that
    the server allows, until the server forgets them: they are stored nowhere."""

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
    """A new session; under a new id unless one is given."""

    id: Id | None = None


class ChangeSession(Request, frozen=True, kw_only=True):
    """Give a session another title, set metadata, or drop some."""

    title: Name | None = None
    metadata: dict[Name, Any] = {}
    drop: list[Name] = []


class MediaPart(Request, frozen=True, kw_only=True):
    """A part of a message that is no text: `data` in base64."""

    data: bytes
    media_type: Name
    name: Name | None = None


Content: TypeAlias = str | list[str | MediaPart]


class SendMessage(Request, frozen=True, kw_only=True):
    """A message; `busy` says what it does to a run that is going."""

    content: Content
    busy: Busy = "queue"
    metadata: dict[Name, Any] = {}
    model: Name | None = None
    limits: dict[Literal["steps", "tokens", "cost", "seconds"], int | float] = {}


class Abort(Request, frozen=True, kw_only=True):
    """Stop the run that is going or waits; with `run`, only if it is that one."""

    reason: Name | None = None
    run: Name | None = None


class Approve(Request, frozen=True, kw_only=True):
    """Let a call be made, perhaps with other arguments."""

    arguments: dict[str, Any] | None = None
    reason: Name | None = None


class Deny(Request, frozen=True, kw_only=True):
    """Refuse a call; the model is told the reason."""

    reason: Name | None = None


class Answer(Request, frozen=True, kw_only=True):
    """Answer a question, or say what an outside call came to."""

    answer: Any


class Extend(Request, frozen=True, kw_only=True):
    """Let an item expire so many seconds from now; null: never."""

    seconds: Seconds | None


class EditText(Request, frozen=True, kw_only=True):
    """Other words for a message."""

    text: str


class Reorder(Request, frozen=True, kw_only=True):
    """These first, in this order."""

    order: list[Number]


class CreateThread(Request, frozen=True, kw_only=True):
    """A new, empty thread."""

    id: Id | None = None
    title: Name | None = None


class ForkThread(Request, frozen=True, kw_only=True):
    """A thread that shares all up to event `at`, or up to the last safe place."""

    at: Number | None = None
    id: Id | None = None
    title: Name | None = None


class RenameThread(Request, frozen=True, kw_only=True):
    """Another title."""

    title: Name


class SwitchMode(Request, frozen=True, kw_only=True):
    """Work in another mode; `text` is received as a message then."""

    mode: Name
    text: str | None = None


class ChooseModel(Request, frozen=True, kw_only=True):
    """Use another model; with `mode`, only there. null leaves the choice to the agent."""

    model: Name | None
    mode: Name | None = None


class ChangeState(Request, frozen=True, kw_only=True):
    """Set entries of the user state, and drop others."""

    set: dict[Name, Any] = {}
    drop: list[Name] = []


class ReplaceState(Request, frozen=True, kw_only=True):
    """All of the user state."""

    state: dict[Name, Any]


class SetRule(Request, frozen=True, kw_only=True):
    """Allow, ask about or deny a tool or a category; null takes the rule away."""

    tool: Name | None = None
    category: Name | None = None
    rule: Literal["allow", "ask", "deny"] | None


class Grant(Request, frozen=True, kw_only=True):
    """Ask no more about a tool or a category, as long as this driver drives."""

    tool: Name | None = None
    category: Name | None = None


class AttachSurface(Request, frozen=True, kw_only=True):
    """Bind (surface, address) to a session; `move` takes it from another."""

    surface: Name
    address: Name
    detail: dict[Name, Any] = {}
    move: bool = False


class Resolve(Request, frozen=True, kw_only=True):
    """Which session a message belongs to, by the surface it came by; begun if need be. `id` is
    the message's own, so that the same one twice counts once."""

    surface: Name
    address: Name
    user: Name | None = None
    workspace: Name | None = None
    id: Name | None = None
    agent: Name | None = None
