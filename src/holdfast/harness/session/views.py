"""Parts of a session: mode, model, user state, permissions, queue, timers and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from ...log import events as ev
from ...log.codec import LIMITS, check_count, check_name
from ...log.events import NewEvent, new_id
from ...log.state import ENTRIES, Grants, Rules
from ...models.port import split_ref
from ...stores.port import wall_clock
from ...values.status import Queued
from ..agents.agent import Mode, called
from ..agents.userstate import Edit, change, setting
from ..live.inputs import check_entries, check_seconds, check_text
from ..loop.custom_events import custom
from .base import SessionPart

NAME = 128  # bytes of the id of a timer, or of the name in a rule
LATEST = 1 << 47  # ms: far beyond anything that a timer is for
Rule: TypeAlias = Literal["allow", "ask", "deny"] | None


class ModeView(SessionPart):
    """Which mode the agent works in."""

    @property
    def name(self) -> str:
        return self._core.config.mode(self._state).name

    def resolve(self, name: str | None = None) -> Mode:
        """The mode of that name, or the current one; `InvalidValue` where there is none."""
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
        """Work in another mode from the next step on, with the model that was chosen there;
        `text` is received as a message then, with `key` and `actor` as in `post`. False where it
        was the mode already; `InvalidValue` where that mode does not follow this one."""
        core, agent = self._core, self._core.config.agent
        left: Mode | None = None
        await core.catch_up()
        while changed := agent.follows(before := agent.mode(self._state.mode), mode):
            if left is not before:
                await called(before.on_exit, core.session, mode)
                left = before
                continue  # which may have changed it
            event = NewEvent.of("mode.changed", ev.ModeChanged(mode=mode, left=before.name))
            if await self._core.append_if(event, live=core.live, head=self._state.head):
                await called(agent.mode(mode).on_enter, core.session, text)
                break
        if text is not None:
            await core.post(text, key=key, actor=actor)
        return changed


class ModelView(SessionPart):
    """Which model speaks."""

    @property
    def ref(self) -> str | None:
        """The model of the next call, unless its run asks for another."""
        return self._core.config.model_ref(self._state)

    @property
    def chosen(self) -> str | None:
        """The thread's own choice, if it has made one that counts in this mode."""
        config, state = self._core.config, self._state
        carried = None if config.mode(state).model else state.model
        return config.chosen(state) or carried

    @property
    def display_name(self) -> str:
        """The model's name without where it is from: what follows the last slash."""
        return (self.ref or "unknown").rpartition("/")[2]

    async def set(self, ref: str, *, mode: str | None = None) -> bool:
        """Use this model in this thread from now on, and whenever it comes back to this mode;
        with a `mode`, only there. False where it was so already."""
        split_ref(ref)
        self._core.config.models.resolve(ref)
        return await self._choose(ref, mode)

    async def clear(self, *, mode: str | None = None) -> bool:
        """Leave the choice to the mode, the agent and the harness again."""
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
        """A copy of it."""
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
        """Set entries, and return all; those of others, set at the same time, are kept.

        A function, plain or async, is given a copy of the latest state to change, and what it
        returns is returned; it is called again where another writer was first. What is changed
        within it becomes part of its change. With `WithEvents` it has events written with it.

        What does not fit the agent's `state_type`, or is too large, is refused and changes
        nothing. What changes nothing is not written.
        """
        if callable(changes):
            return await self._change(changes)
        await self._change(setting({**(changes or {}), **more}))
        return self.get()

    async def replace(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Set all of it."""
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
    """What the agent may do without asking, and what it may not do at all. Rules belong to the
    whole session and last; grants hold for the process that drives now, and end with it."""

    @property
    def rules(self) -> Rules:
        return self._core.shared.state.rules

    @property
    def grants(self) -> Grants:
        """What is not asked about at the moment."""
        return self._state.grants

    async def set(
        self, *, tool: str | None = None, category: str | None = None, rule: Rule
    ) -> None:
        """Allow, ask about or deny a tool, or a category of tools; None takes the rule away."""
        _one_name(tool, category)
        if rule not in ("allow", "ask", "deny", None):
            remedy = "use allow, ask, deny or None"
            raise InvalidValue(field="rule", problem=f"is {rule!r}", remedy=remedy)
        known = self.rules.tools if tool is not None else self.rules.categories
        if rule is not None and len(known) >= LIMITS.map_entries:
            raise InvalidValue(
                field="rule",
                problem=f"there are {len(known)} already",
                remedy="take some away first, or use categories",
                limit=LIMITS.map_entries,
            )
        payload = ev.PermissionChanged(
            tools={tool: rule} if tool is not None else {},
            categories={category: rule} if category is not None else {},
        )
        await self._append(payload, self._core.shared)

    async def grant(self, *, tool: str | None = None, category: str | None = None) -> None:
        """Ask no more about a tool, or a category of tools, as long as this driver drives."""
        _one_name(tool, category)
        run = self._state.active
        driver = run.driver if run is not None and run.driver else self._core.config.owner
        await self._append(ev.GrantGiven(driver=driver, tool=tool, category=category))

    async def revoke(self, *, tool: str | None = None, category: str | None = None) -> None:
        """Ask again about one of them, or about all."""
        await self._append(ev.GrantRevoked(tool=tool, category=category))


def _one_name(tool: str | None, category: str | None) -> None:
    if (tool is None) == (category is None):
        raise InvalidValue(field="tool", problem="is not one name", remedy="give tool or category")
    check_name("tool" if tool is not None else "category", tool or category, limit=NAME)


class Queue(SessionPart):
    """The messages that wait, in the order in which they will be taken up."""

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
        """Take messages out; they stay in the log."""
        await self._change(ev.QueueChanged(remove=[*seqs]), seqs)

    async def reorder(self, seqs: Sequence[int]) -> None:
        """These first, in this order."""
        if len({*seqs}) != len(seqs):
            problem, remedy = "name a message twice", "name each once"
            raise InvalidValue(field="seqs", problem=problem, remedy=remedy)
        await self._change(ev.QueueChanged(order=[*seqs]), seqs)

    async def edit(self, seq: int, text: str, *, actor: str | None = None) -> None:
        """Let the model read other words, which are `actor`'s."""
        check_text("text", text)
        await self._change(ev.QueueChanged(texts={str(seq): text}), (seq,), actor)

    async def _change(
        self, payload: ev.QueueChanged, seqs: Sequence[int], actor: str | None = None
    ) -> None:
        """Only what still waits can be changed: where the log grew meanwhile, look again."""
        core, id = self._core, new_id()
        core.check_open()
        while True:
            state = self._state
            for seq in seqs:
                if seq not in [item.seq for item in state.queue]:
                    raise InvalidValue(
                        field="seq", problem=f"{seq} does not wait", remedy="list the queue again"
                    )
            event = NewEvent.of("queue.changed", payload, id=id, actor=actor)
            if await core.append_if(event, live=core.live, head=state.head):
                return


class Timers(SessionPart):
    """Messages to come: durable, whichever process runs when they are due."""

    @property
    def all(self) -> dict[str, int]:
        """When each is due (UTC, ms)."""
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
        """Receive `text` as a message at `at` (UTC, ms), or in so many seconds. The same id
        again replaces it."""
        if (at is None) == (seconds is None):
            raise InvalidValue(field="at", problem="is not one time", remedy="give at, or seconds")
        if id is not None:
            check_name("id", id, limit=NAME)
        if len(self._state.timers) >= ENTRIES and id not in self._state.timers:
            raise InvalidValue(
                field="id",
                problem=f"{ENTRIES} timers are set already",
                remedy="clear some first",
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
    """A place in the log that was given a name."""

    id: str
    seq: int
    label: str | None = None
    metadata: dict[str, Any] = {}


class Checkpoints(SessionPart):
    """Named places in the log. Every event is one to go back to; these are easier to find."""

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
        """Forget the name; the events stay."""
        self._core.check_open()
        if id not in self._state.checkpoints:
            return False
        await self._append(ev.CheckpointDropped(id=id))
        return True
