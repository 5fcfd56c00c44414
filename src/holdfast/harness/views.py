"""The parts of a session: small views of the folded state, with verbs that append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from .. import events as ev
from ..errors import HeadMoved, InvalidValue
from ..events import NewEvent, Payload, new_id
from ..models.port import split_ref
from ..state import Grants, Rules, State
from ..store import wall_clock
from .acting import check_state
from .agent import called
from .ground import Ground
from .live import Live

Rule: TypeAlias = Literal["allow", "ask", "deny"] | None
KIND_OF = {payload: kind for kind, payload in ev.KINDS.items()}


class View:
    """A part of a session; it keeps nothing of its own."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    @property
    def _state(self) -> State:
        return self._ground.live.state

    async def _append(self, payload: Payload, live: Live | None = None) -> int:
        event = NewEvent.of(KIND_OF[type(payload)], payload)
        return await self._ground.append(event, live=live)


class ModeView(View):
    """Which mode the agent works in."""

    @property
    def name(self) -> str:
        return self._ground.config.mode(self._state).name

    async def switch(self, mode: str, text: str | None = None) -> bool:
        """Work in another mode from the next step on; `text` is received as a message then.
        False where it was the mode already."""
        agent = self._ground.config.agent
        if mode not in [item.name for item in agent.modes]:
            names = ", ".join(item.name for item in agent.modes)
            raise InvalidValue(
                field="mode", problem=f"there is no mode {mode!r}", remedy=f"use one of {names}"
            )
        before = agent.mode(self._state.mode)
        if changed := mode != before.name:
            await called(before.on_exit, self._ground, mode)
            await self._append(ev.ModeChanged(mode=mode))
            await called(agent.mode(mode).on_enter, self._ground, text)
        if text is not None:
            await self._ground.post(text)
        return changed


class ModelView(View):
    """Which model speaks."""

    @property
    def ref(self) -> str | None:
        """The model of the next call, unless its run asks for another."""
        return self._ground.config.model_ref(self._state)

    @property
    def chosen(self) -> str | None:
        """The session's own choice, if it has made one."""
        return self._state.model

    async def set(self, ref: str) -> None:
        """Use this model in this thread from now on."""
        split_ref(ref)
        self._ground.config.models.resolve(ref)
        await self._append(ev.ModelChanged(model=ref))

    async def clear(self) -> None:
        """Leave the choice to the mode, the agent and the harness again."""
        await self._append(ev.ModelChanged(model=None))


class StateView(View):
    """The user state: a small JSON object that belongs to the whole session."""

    def get(self) -> dict[str, Any]:
        """A copy of it."""
        copied: dict[str, Any] = msgspec.json.decode(
            msgspec.json.encode(self._ground.shared.state.data)
        )
        return copied

    async def update(
        self, changes: Mapping[str, Any] | None = None, /, **more: Any
    ) -> dict[str, Any]:
        """Set entries; those of others, set at the same time, are kept."""
        return await self._change(ev.StateChanged(set={**(changes or {}), **more}))

    async def replace(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Set all of it."""
        return await self._change(ev.StateChanged(set=dict(entries), replace=True))

    async def drop(self, *names: str) -> dict[str, Any]:
        return await self._change(ev.StateChanged(drop=list(names)))

    async def _change(self, payload: ev.StateChanged) -> dict[str, Any]:
        shared = self._ground.shared
        check_state(shared.state.data, payload)
        await self._append(payload, shared)
        return self.get()


class Permissions(View):
    """What the agent may do without asking, and what it may not do at all. Rules belong to the
    whole session and last; grants hold for the process that drives now, and end with it."""

    @property
    def rules(self) -> Rules:
        return self._ground.shared.state.rules

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
        payload = ev.PermissionChanged(
            tools={tool: rule} if tool is not None else {},
            categories={category: rule} if category is not None else {},
        )
        await self._append(payload, self._ground.shared)

    async def grant(self, *, tool: str | None = None, category: str | None = None) -> None:
        """Ask no more about a tool, or a category of tools, as long as this driver drives."""
        _one_name(tool, category)
        run = self._state.active
        driver = run.driver if run is not None and run.driver else self._ground.config.owner
        await self._append(ev.GrantGiven(driver=driver, tool=tool, category=category))

    async def revoke(self, *, tool: str | None = None, category: str | None = None) -> None:
        """Ask again about one of them, or about all."""
        await self._append(ev.GrantRevoked(tool=tool, category=category))


def _one_name(tool: str | None, category: str | None) -> None:
    if (tool is None) == (category is None):
        raise InvalidValue(field="tool", problem="is not one name", remedy="give tool or category")


class Queued(Struct, frozen=True):
    """A message that waits for its turn."""

    seq: int
    how: str
    text: str


class Queue(View):
    """The messages that wait, in the order in which they will be taken up."""

    def __len__(self) -> int:
        return len(self._state.queue)

    async def list(self) -> list[Queued]:
        live, found = self._ground.live, []
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
        await self._change(ev.QueueChanged(order=[*seqs]), seqs)

    async def edit(self, seq: int, text: str) -> None:
        """Let the model read other words."""
        await self._change(ev.QueueChanged(texts={str(seq): text}), (seq,))

    async def _change(self, payload: ev.QueueChanged, seqs: Sequence[int]) -> None:
        """Only what still waits can be changed: where the log grew meanwhile, look again."""
        ground, id = self._ground, new_id()
        while True:
            state = self._state
            for seq in seqs:
                if seq not in [item.seq for item in state.queue]:
                    raise InvalidValue(
                        field="seq", problem=f"{seq} does not wait", remedy="list the queue again"
                    )
            event = NewEvent.of("queue.changed", payload, id=id)
            try:
                await ground.append(event, expected=state.head)
            except HeadMoved as moved:
                await ground.live.reach(moved.head)
            else:
                return


class Timers(View):
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
        when = at if at is not None else wall_clock() + int((seconds or 0) * 1000)
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


class Checkpoints(View):
    """Named places in the log. Every event is one to go back to; these are easier to find."""

    async def create(
        self, label: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        id, ground = new_id(), self._ground
        shared = None if ground.shared is ground.live else ground.shared.state.head
        seq = await self._append(
            ev.CheckpointMade(id=id, label=label, metadata=dict(metadata or {}), shared=shared)
        )
        return Checkpoint(id, seq, label, dict(metadata or {}))

    async def list(self) -> list[Checkpoint]:
        found = []
        for id, seq in self._state.checkpoints.items():
            made = await self._ground.live.payload(seq, ev.CheckpointMade)
            if made is not None:
                found.append(Checkpoint(id, seq, made.label, made.metadata))
        return found

    async def get(self, id: str) -> Checkpoint | None:
        return next((item for item in await self.list() if item.id == id), None)

    async def delete(self, id: str) -> bool:
        """Forget the name; the events stay."""
        if id not in self._state.checkpoints:
            return False
        await self._append(ev.CheckpointDropped(id=id))
        return True
