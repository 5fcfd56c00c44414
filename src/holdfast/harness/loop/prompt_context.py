"""The parts of a prompt other than the conversation: instructions, contexts of the agent, and
contexts that tools and hooks have added.

The context is built before each model call, and logged when it has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...log import events as ev
from ...log.events import Event, Key
from ...log.state import State
from ...log.transcript import Message, transcript
from ...stores.conversation import newest_first
from ..agents.agent import ROLES, Agent, Context, Instructions, Mode, settled
from ..agents.config import CONTEXT
from ..faults import RunFault, classify, context_outcome
from ..tools.values import clean
from .driver import Driving

_rendering: ContextVar[tuple[str, ...]] = ContextVar("rendering", default=())


class ContextPart(Struct, frozen=True, omit_defaults=True):
    """A rendered context: its name, its role in the prompt, and its text."""

    name: str
    role: str
    content: str


class Built(Struct, frozen=True):
    """The context of one model call. `system` is the system prompt; `notes` are inserted before the
    newest input; `skipped` are the faults of optional contexts that could not be rendered."""

    system: str
    notes: tuple[str, ...]
    parts: tuple[ContextPart, ...]
    skipped: tuple[RunFault, ...] = ()

    @property
    def hash(self) -> str:
        text = msgspec.json.encode((self.system, self.notes))
        return hashlib.sha256(text).hexdigest()[:16]


class ContextFailed(Exception):
    """The instructions or a required context could not be rendered."""

    def __init__(self, fault: RunFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Reading:
    """Read-only access to the session, for instructions and contexts.

    See [models, history, context](../harness.md#models-history-context).
    """

    def __init__(self, driving: Driving) -> None:
        self._driving = driving
        self.session: Key = driving.live.key
        self.agent: Agent = driving.config.agent
        self.run: str | None = driving.run.id if driving.state.active else None
        self.mode: str = driving.config.mode(driving.state).name
        self.resources: Any = driving.config.resources

    @property
    def state(self) -> dict[str, Any]:
        """A copy of the user state."""
        data = self._driving.shared.state.data
        copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(data))
        return copied

    @property
    def usage(self) -> dict[str, int]:
        return dict(self._driving.state.usage)

    async def transcript(self, limit: int = 50) -> list[Message]:
        """Return the last messages of the conversation, oldest first."""
        live, events = self._driving.live, list[Event]()
        read = newest_first(live.store, live.key, log=live.log, last=live.state.head)
        async with contextlib.aclosing(read):
            async for event in read:
                events.append(event)
                if len(events) == 20 * limit:
                    break
        return transcript(reversed(events))[-limit:]

    async def events(self, limit: int = 100) -> list[Event]:
        """Return the last events, oldest first."""
        live = self._driving.live
        last = live.store.read(live.key, reverse=True, limit=limit, log=live.log)
        return [event async for event in last][::-1]

    async def render(self, item: Context, **options: Any) -> str:
        """Return the text of another context. Raises `RecursionError` if that context is already
        being rendered."""
        return as_text(await rendered(self, item, options))


async def rendered(reading: Reading, item: Context, options: Mapping[str, Any] = {}) -> Any:
    """Render a context and return its value. Raises `RecursionError` if the context is already
    being rendered, directly or through another context."""
    if item.name in _rendering.get():
        raise RecursionError(f"context {item.name!r} is rendered inside itself")
    token = _rendering.set((*_rendering.get(), item.name))
    try:
        return await settled(item.render(reading, **{**item.options, **options}))
    finally:
        _rendering.reset(token)


def _parts(name: str, role: str, said: Any) -> list[ContextPart]:
    """Convert the return value of a context to parts of the prompt. A list whose items have roles
    becomes several parts."""
    if isinstance(said, dict) and "content" in said:
        role = said.get("role", role)
        if role not in ROLES:
            raise ValueError(f"role {role!r} is invalid: use one of {', '.join(ROLES)}")
        return _parts(name, role, said["content"])
    if isinstance(said, (list, tuple)) and any(isinstance(p, dict) and "role" in p for p in said):
        return [part for item in said for part in _parts(name, role, item)]
    text = as_text(said)
    return [ContextPart(name, role, text)] if text.strip() else []


async def build(driving: Driving) -> Built:
    """Render the instructions and all contexts. Raises `ContextFailed` if the instructions or a
    required context cannot be rendered."""
    mode, reading = driving.config.mode(driving.state), Reading(driving)
    policy = driving.config.policy
    parts: list[ContextPart] = []
    skipped: list[RunFault] = []
    for item in driving.config.agent.contexts_in(mode):
        try:
            said = _parts(item.label or item.name, item.role, await rendered(reading, item))
            check_length(item.name, sum(len(part.content) for part in (*parts, *said)))
        except Exception as error:  # an application's context may raise anything
            fault = classify(error, source="context", policy=policy)
            if context_outcome(policy, mode.context_failure, item.required, None) == "fail":
                raise ContextFailed(fault) from error
            driving.log.warning("context_skipped", category="context", error=error, name=item.name)
            skipped.append(fault)
            continue
        parts.extend(said)
    parts.extend(await _added(driving, driving.state))
    try:
        system = await _instructions(reading, driving.config.agent, mode)
        size = len(system) + sum(len(part.content) for part in parts)
        check_length("instructions and contexts", size)
    except Exception as error:
        raise ContextFailed(classify(error, source="context", policy=policy)) from error
    shown = [part for part in parts if part.role == "system"]
    text = "\n\n".join(filter(None, [system, *(f"## {p.name}\n{p.content}" for p in shown)]))
    notes = tuple(part.content for part in parts if part.role == "message")
    return Built(text, notes, tuple(parts), tuple(skipped))


def check_length(what: str, size: int) -> None:
    """Reject more than `CONTEXT` characters of context in addition to the conversation."""
    if size > CONTEXT:
        raise InvalidValue(
            field=what,
            problem=f"has {size} characters, which is too much context",
            remedy=f"use at most {CONTEXT} characters",
            limit=CONTEXT,
        )


async def _added(driving: Driving, state: State) -> list[ContextPart]:
    """Return the active contexts that tools and hooks have added."""
    found = []
    for id, shown in state.contexts.items():
        if shown.active:
            added = await driving.live.payload(shown.seq, ev.ContextAdded)
            if added is not None:
                found.append(ContextPart(id, added.role, added.content))
    return found


async def _instructions(reading: Reading, agent: Agent, mode: Mode) -> str:
    texts = [await _said(reading, told) for told in (agent.instructions, mode.instructions)]
    return "\n\n".join(text for text in texts if text.strip())


async def _said(reading: Reading, told: Instructions | None) -> str:
    if told is None or isinstance(told, str):
        return clean(told or "")
    return as_text(await settled(told(reading)))


def as_text(said: Any) -> str:
    """Convert the return value of a context to text. Text is unchanged, None becomes empty, items
    of a list become paragraphs, `{"content": …}` becomes its content, and other values become
    JSON."""
    if said is None:
        return ""
    if isinstance(said, str):
        return clean(said)
    if isinstance(said, dict) and "content" in said:
        return as_text(said["content"])
    if isinstance(said, Iterable) and not isinstance(said, (dict, bytes)):
        return "\n\n".join(filter(None, map(as_text, said)))
    return msgspec.json.format(msgspec.json.encode(said), indent=2).decode()
