"""Attributes of a session: mode, model, user state, permissions, queue, timers and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

import msgspec
from msgspec import Struct

from ...environment import wall_clock
from ...errors import InvalidValue
from ...log import events as ev
from ...log.codec import LIMITS, check_count, check_name
from ...log.events import NewEvent, new_id
from ...log.state import ENTRIES, Grants, Rules
from ...models.port import split_ref
from ...values.status import Queued
from ..agents.agent import Mode, called
from ..agents.userstate import Edit, change, setting
from ..live.inputs import check_entries, check_seconds, check_text
from ..loop.custom_events import custom
from .base import SessionPart

NAME = 128  # bytes: the longest timer id, and the longest name in a rule
LATEST = 1 << 47  # ms: the latest time that a timer may be set to
Rule: TypeAlias = Literal["allow", "ask", "deny"] | None


class ModeView(SessionPart):
    """The current mode of the thread."""

    @property
    def name(self) -> str:
        return self._core.config.mode(self._state).name

    def resolve(self, name: str | None = None) -> Mode:
        """Return the mode with this name, or the current mode. Raises `InvalidValue` if it does not
        exist."""
        config = self._core.config
        return config.mode(self._state) if name is None else config.agent.known_mode(name)

    async def switch(
        self,
        mode: str,
        text: str | None = None,
        *,
        key: str | None = None,
        actor: str | None = None,
    ) -> bool:
        """Switch to another mode from the next step on, with the model that is set for that mode.
        `text` is then sent as a message, with `key` and `actor` as in `post`. Returns False if the
        mode was already active. Raises `InvalidValue` if the current mode does not allow this
        transition."""
        core, agent = self._core, self._core.config.agent
        left: Mode | None = None
        await core.catch_up()
        while changed := agent.follows(before := agent.mode(self._state.mode), mode):
            if left is not before:
                await called(before.on_exit, core.session, mode)
                left = before
                continue  # the hook may have changed the mode
            event = NewEvent.of("mode.changed", ev.ModeChanged(mode=mode, left=before.name))
            if await self._core.append_if(event, live=core.live, head=self._state.head):
                await called(agent.mode(mode).on_enter, core.session, text)
                break
        if text is not None:
            await core.post(text, key=key, actor=actor)
        return changed


class ModelView(SessionPart):
    """The model that this thread uses."""

    @property
    def ref(self) -> str | None:
        """The model of the next call, unless the run sets another model."""
        return self._core.config.model_ref(self._state)

    @property
    def chosen(self) -> str | None:
        """The model that was chosen for this mode in this thread, if any."""
        config, state = self._core.config, self._state
        carried = None if config.mode(state).model else state.model
        return config.chosen(state) or carried

    @property
    def display_name(self) -> str:
        """The model's name without its provider: the part after the last slash."""
        return (self.ref or "unknown").rpartition("/")[2]

    async def set(self, ref: str, *, mode: str | None = None) -> bool:
        """Set the model that this thread uses in its current mode, or in the mode `mode`. Returns
        False if it was already set."""
        split_ref(ref)
        self._core.config.models.resolve(ref)
        return await self._choose(ref, mode)

    async def clear(self, *, mode: str | None = None) -> bool:
        """Remove the model that this thread sets, so that the default of the mode, the agent or the
        harness applies again."""
        return await self._choose(None, mode)

    async def _choose(self, ref: str | None, mode: str | None) -> bool:
        core, config = self._core, self._core.config
        if mode is not None:
            config.agent.known_mode(mode)
        await core.catch_up()
        while True:
            state = self._state
            here = mode in (None, config.mode(state).name)
            known = config.chosen(state, mode)
            if known == ref and (not here or ref is not None or state.model is None):
                return False
            payload = ev.ModelChanged(model=ref, mode=None if here else mode)
            event = NewEvent.of("model.changed", payload)
            if await self._core.append_if(event, live=core.live, head=state.head):
                return True


class StateView(SessionPart):
    """The user state: a small JSON object that belongs to the whole session."""

    def get(self) -> dict[str, Any]:
        """Return a copy of the user state."""
        copied: dict[str, Any] = msgspec.json.decode(
            msgspec.json.encode(self._core.shared.state.data)
        )
        return copied

    @overload
    async def update(self, changes: Edit, /) -> Any: ...

    @overload
    async def update(
        self, changes: Mapping[str, Any] | None = None, /, **more: Any
    ) -> dict[str, Any]: ...

    async def update(self, changes: Edit | Mapping[str, Any] | None = None, /, **more: Any) -> Any:
        """Set entries, and return the whole state. Entries that other writers set at the same time
        are kept. A function, plain or async, gets a copy of the latest state to change, and its
        return value is returned. The function is called again if another writer changed the state
        first. Nested updates inside it become part of its change. It may return `WithEvents` to
        write events together with the change.

        A change that does not fit the agent's `state_type`, or that is too large, is rejected as a
        whole. A change without effect is not written.
        """
        if callable(changes):
            return await self._change(changes)
        await self._change(setting({**(changes or {}), **more}))
        return self.get()

    async def replace(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the whole user state."""
        await self._change(setting(entries, all=True))
        return self.get()

    async def drop(self, *names: str) -> dict[str, Any]:
        await self._change(setting({}, names))
        return self.get()

    async def _change(self, edit: Edit) -> Any:
        core, agent = self._core, self._core.config.agent
        shared = core.shared
        await core.catch_up(shared)
        return await change(
            shared.log,
            lambda: shared.state,
            lambda events, head: self._core.append_if(*events, live=shared, head=head),
            edit,
            kind=agent.state_type,
            custom=lambda kind, payload: custom(agent.events, kind, payload),
        )


class Permissions(SessionPart):
    """The permissions of the agent: the tools that need no approval, and the tools that are denied.
    Rules belong to the whole session and are permanent; grants end with the driver that received
    them."""

    @property
    def rules(self) -> Rules:
        return self._core.shared.state.rules

    @property
    def grants(self) -> Grants:
        """The tools and categories that currently need no approval."""
        return self._state.grants

    async def set(
        self, *, tool: str | None = None, category: str | None = None, rule: Rule
    ) -> None:
        """Set the rule for a tool or a category of tools: allow it, ask for approval, or deny it.
        None removes the rule."""
        _one_name(tool, category)
        if rule not in ("allow", "ask", "deny", None):
            raise InvalidValue(
                field="rule", problem=f"is {rule!r}", remedy="use allow, ask, deny or None"
            )
        known = self.rules.tools if tool is not None else self.rules.categories
        if rule is not None and len(known) >= LIMITS.map_entries:
            raise InvalidValue(
                field="rule",
                problem=f"cannot be added, because the session already has {len(known)} rules, "
                f"the maximum",
                remedy="remove some rules, or use rules for categories",
                limit=LIMITS.map_entries,
            )
        payload = ev.PermissionChanged(
            tools={tool: rule} if tool is not None else {},
            categories={category: rule} if category is not None else {},
        )
        await self._append(payload, self._core.shared)

    async def grant(self, *, tool: str | None = None, category: str | None = None) -> None:
        """Allow a tool, or a category of tools, without approval until the current driver ends."""
        _one_name(tool, category)
        run = self._state.active
        driver = run.driver if run is not None and run.driver else self._core.config.owner
        await self._append(ev.GrantGiven(driver=driver, tool=tool, category=category))

    async def revoke(self, *, tool: str | None = None, category: str | None = None) -> None:
        """Revoke the grant of a tool or a category; without arguments, all grants."""
        await self._append(ev.GrantRevoked(tool=tool, category=category))


def _exactly_one(field: str, value: Any, other: str, another: Any) -> None:
    if (value is None) == (another is None):
        raise InvalidValue(
            field=field,
            problem=f"cannot be combined with {other}, and one of them is required",
            remedy="pass exactly one of the two",
        )


def _one_name(tool: str | None, category: str | None) -> None:
    _exactly_one("tool", tool, "category", category)
    check_name("tool" if tool is not None else "category", tool or category, limit=NAME)


class Queue(SessionPart):
    """The queued messages, in the order in which they will be handled."""

    def __len__(self) -> int:
        return len(self._state.queue)

    async def list(self) -> list[Queued]:
        self._core.check_open()
        live, found = self._core.live, []
        for item in self._state.queue:
            message = await live.payload(item.seq, ev.MessageReceived)
            text = message.text if message is not None else ""
            if item.text is not None:
                change = await live.payload(item.text, ev.QueueChanged)
                text = change.texts.get(str(item.seq), text) if change is not None else text
            found.append(Queued(item.seq, item.how, text))
        return found

    async def remove(self, *seqs: int) -> None:
        """Remove messages from the queue; they stay in the log."""
        await self._change(ev.QueueChanged(remove=[*seqs]), seqs)

    async def reorder(self, seqs: Sequence[int]) -> None:
        """Move these messages to the front of the queue, in this order."""
        if len({*seqs}) != len(seqs):
            raise InvalidValue(
                field="seqs", problem="contains a message twice", remedy="pass each message once"
            )
        await self._change(ev.QueueChanged(order=[*seqs]), seqs)

    async def edit(self, seq: int, text: str, *, actor: str | None = None) -> None:
        """Replace the text of a queued message. `actor` is the author of the new text."""
        check_text("text", text)
        await self._change(ev.QueueChanged(texts={str(seq): text}), (seq,), actor)

    async def _change(
        self, payload: ev.QueueChanged, seqs: Sequence[int], actor: str | None = None
    ) -> None:
        """Append the change if all messages are still queued; retry if the log has grown."""
        core, id = self._core, new_id()
        core.check_open()
        while True:
            state = self._state
            for seq in seqs:
                if seq not in [item.seq for item in state.queue]:
                    raise InvalidValue(
                        field="seq",
                        problem=f"message {seq} is not in the queue",
                        remedy="list the queue again",
                    )
            event = NewEvent.of("queue.changed", payload, id=id, actor=actor)
            if await core.append_if(event, live=core.live, head=state.head):
                return


class Timers(SessionPart):
    """Messages that are sent at a given time. Timers are durable: any process that serves the agent
    fires them."""

    @property
    def all(self) -> dict[str, int]:
        """The due time of each timer (UTC, ms)."""
        return {id: timer.at for id, timer in self._state.timers.items()}

    async def set(
        self,
        text: str,
        *,
        at: int | None = None,
        seconds: float | None = None,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Send `text` as a message at the time `at` (UTC, ms), or in this many seconds. Replaces a
        timer with the same id. Returns the id of the timer."""
        _exactly_one("at", at, "seconds", seconds)
        if id is not None:
            check_name("id", id, limit=NAME)
        if len(self._state.timers) >= ENTRIES and id not in self._state.timers:
            raise InvalidValue(
                field="id",
                problem=f"the session already has {ENTRIES} timers, the maximum",
                remedy="clear some timers first",
                limit=ENTRIES,
            )
        if seconds is not None:
            check_seconds("seconds", seconds)
        check_text("text", text)
        check_entries("metadata", metadata)
        when = at if at is not None else wall_clock() + int((seconds or 0) * 1000)
        check_count("at", when, least=0, most=LATEST)
        id = id or new_id()
        await self._append(ev.TimerSet(id=id, at=when, text=text, metadata=dict(metadata or {})))
        return id

    async def clear(self, id: str) -> None:
        await self._append(ev.TimerCleared(id=id))


class Checkpoint(Struct, frozen=True):
    """A named position in the log, to which the conversation can be restored."""

    id: str
    seq: int
    label: str | None = None
    metadata: dict[str, Any] = {}


class Checkpoints(SessionPart):
    """Named positions in the log. You can fork at any safe event; a checkpoint gives such an event
    a label and an id."""

    async def create(
        self, label: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        id, core = new_id(), self._core
        shared = None if core.shared is core.live else core.shared.state.head
        seq = await self._append(
            ev.CheckpointMade(id=id, label=label, metadata=dict(metadata or {}), shared=shared)
        )
        return Checkpoint(id, seq, label, dict(metadata or {}))

    async def list(self) -> list[Checkpoint]:
        self._core.check_open()
        found = []
        for id, seq in self._state.checkpoints.items():
            made = await self._core.live.payload(seq, ev.CheckpointMade)
            if made is not None:
                found.append(Checkpoint(id, seq, made.label, made.metadata))
        return found

    async def get(self, id: str) -> Checkpoint | None:
        return next((item for item in await self.list() if item.id == id), None)

    async def delete(self, id: str) -> bool:
        """Remove the checkpoint; the events stay."""
        self._core.check_open()
        if id not in self._state.checkpoints:
            return False
        await self._append(ev.CheckpointDropped(id=id))
        return True
