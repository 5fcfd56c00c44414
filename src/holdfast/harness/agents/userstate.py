"""Validates and changes the user state, for sessions, tools and hooks.

A change is based on the latest state and written only if that state is still the latest. This keeps
all concurrent changes, and each resulting state is validated as a whole.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...log.codec import LIMITS
from ...log.events import NewEvent, StateChanged, to_json
from ...log.state import State
from ..tools import BadArguments, Tool, tool
from ..tools.values import as_result

VALUE = "value"
Edit = Callable[[dict[str, Any]], Any]
Write = Callable[[list[NewEvent], int], Awaitable[bool]]


class WithEvents(Struct, frozen=True):
    """Return value for a function that changes the user state: its result, and custom events, each
    (kind, payload), that are written together with the change."""

    result: Any = None
    events: tuple[tuple[str, Any], ...] = ()


class _Draft:
    """A copy of the state while a function changes it. `events` are written together with the
    change."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data, self.events, self.open = data, list[tuple[str, Any]](), True


_drafts: ContextVar[Mapping[str, _Draft]] = ContextVar("drafts", default=MappingProxyType({}))


def begun(start: Mapping[str, Any], kind: Any = None) -> dict[str, Any]:
    """Return the initial state of a session: the defaults of the type `kind`, overridden by
    `start`."""
    given = plain(start)
    return {**checked(given, kind), **given}


def plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy as plain JSON values. Raises `InvalidValue` for a value that cannot be
    encoded as JSON."""
    try:
        copied: dict[str, Any] = msgspec.json.decode(to_json(dict(data)))
    except InvalidValue as error:
        raise InvalidValue(field="state", problem=error.problem, remedy=error.remedy) from error
    return copied


def checked(data: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Validate the state against its type `kind`, and return it with the type's defaults. Raises
    `InvalidValue` if the state is too large or invalid."""
    size = len(msgspec.json.encode(data))
    if size > LIMITS.map_bytes:
        raise InvalidValue(
            field="state",
            problem=f"has {size} bytes, more than {LIMITS.map_bytes}",
            remedy="put large values into blobs or your own database",
            limit=LIMITS.map_bytes,
        )
    if kind is None:
        return data
    try:
        if isinstance(kind, Mapping):
            return dict(_schema(msgspec.json.encode(kind, order="deterministic")).parse(data))
        found = as_result(_form(kind).parse({VALUE: data})[VALUE]).data
        return found if isinstance(found, dict) else data
    except BadArguments as error:
        wrong = [(issue.path.removeprefix(f"{VALUE}."), issue.problem) for issue in error.issues]
        raise InvalidValue(
            field="state",
            problem="; ".join(f"{path} {problem}" for path, problem in wrong),
            remedy="pass values that match the agent's state_type",
        ) from error


@functools.lru_cache(maxsize=64)
def _form(kind: Any) -> Tool:
    def state(value: Any) -> None: ...

    state.__annotations__ = {VALUE: kind}
    return tool(state, description="The user state.")


@functools.lru_cache(maxsize=64)
def _schema(text: bytes) -> Tool:
    return Tool.from_schema("state", "The user state.", msgspec.json.decode(text), lambda _: None)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> StateChanged | None:
    """Return the change that turns the state `before` into `after`, or None if they are equal."""
    entries = {
        name: value
        for name, value in after.items()
        if name not in before or _text(before[name]) != _text(value)
    }
    gone = [name for name in before if name not in after]
    return StateChanged(set=entries, drop=gone) if entries or gone else None


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")  # distinguishes 1, True and 1.0


async def change(
    log: str,
    latest: Callable[[], State],
    write: Write,
    edit: Edit,
    *,
    kind: Any,
    custom: Callable[[str, Any], Any],
) -> Any:
    """Call `edit` to change a copy of the state, and write the changes, if there are any. `edit` is
    called again if another writer changed the state first. A nested change becomes part of the
    outer change.

    `write` appends if the log still ends at the given event number; otherwise it returns False.
    """
    outer = _drafts.get().get(log)
    if outer is not None and outer.open:
        made = _Draft(plain(outer.data))
        result = await _edited(log, made, edit)
        after = plain(made.data)
        checked(after, kind)
        outer.data.clear()
        outer.data.update(after)
        outer.events.extend(made.events)
        return result
    while True:
        state = latest()
        made = _Draft(plain(state.data))
        result = await _edited(log, made, edit)
        after = plain(made.data)
        changed = difference(state.data, after)
        events = [] if changed is None else [NewEvent.of("state.changed", changed)]
        if changed is not None:
            checked(after, kind)
        events += [NewEvent.of(kind, custom(kind, payload)) for kind, payload in made.events]
        if not events or await write(events, state.head):
            return result


async def _edited(log: str, draft: _Draft, edit: Edit) -> Any:
    token = _drafts.set({**_drafts.get(), log: draft})
    try:
        said = edit(draft.data)
        said = await said if inspect.isawaitable(said) else said
    finally:
        draft.open = False
        _drafts.reset(token)
    if isinstance(said, WithEvents):
        draft.events.extend(said.events)
        return said.result
    return said


def setting(entries: Any, drop: tuple[str, ...] = (), *, all: bool = False) -> Edit:
    """Return a function that changes a state: it sets `entries` and removes `drop`; with `all`, it
    removes every entry that is not in `entries`."""
    given: Any = entries
    if not isinstance(given, Mapping):
        raise InvalidValue(
            field="state",
            problem=f"must be a dict, got {type(given).__name__}",
            remedy="pass a mapping with string keys",
        )

    def edit(data: dict[str, Any]) -> None:
        for name in list(data) if all else drop:
            data.pop(name, None)
        data.update(entries)

    return edit
