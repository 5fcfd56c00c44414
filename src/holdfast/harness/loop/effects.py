"""The methods with which an application's functions change the session in which they are called.
Every change is written to the log."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from ...errors import InvalidValue, QueueFull, ToolError
from ...log import events as ev
from ...log.codec import check_name
from ...log.events import NewEvent, new_id
from ...log.state import ENTRIES
from ..agents.agent import Agent, Mode, called
from ..agents.userstate import Edit, change, setting
from ..live.inputs import MOST
from .custom_events import custom
from .driver import Driving
from .prompt_context import Reading, check_length

How: TypeAlias = Literal["queue", "steer"]

CHAIN = 20  # runs that may start each other in a row


class Effects(Reading):
    """Reads and changes the session, on behalf of the function `name` that was called by `call`."""

    def __init__(self, driving: Driving, call: str, name: str) -> None:
        super().__init__(driving)
        self.call, self.name = call, name

    def _acts(self) -> Driving:
        """Return the driver to write with. Raises an error if the function is no longer allowed to
        change the session."""
        return self._driving

    async def update_state(self, function: Edit | None = None, /, **changes: Any) -> Any:
        """Set entries of the user state, or call a function that changes a copy of the latest
        state, and return its result. The function is called again if another writer changed the
        state first."""
        return await _change_state(self._acts(), self.agent, function or setting(changes))

    async def set_state(self, **entries: Any) -> None:
        """Replace all entries of the user state."""
        await _change_state(self._acts(), self.agent, setting(entries, all=True))

    async def emit(self, kind: str, payload: Any = None) -> None:
        """Write a custom event, of a kind that the application defines."""
        checked = custom(self.agent.events, kind, payload)
        await self._acts().write(self._driving.event(kind, checked, cause=self.call))

    async def send(self, text: str, how: How = "queue") -> None:
        """Queue a message as if a user had sent it. The number of runs that start each other this
        way is limited. A message that steers a run is dropped when the run ends."""
        await self._acts().write(_message(self._driving, self.name, text, how))

    async def switch_mode(self, mode: str, text: str | None = None) -> None:
        """Switch to another mode from the next step on. `text` is sent to the run as a message,
        together with the switch."""
        driving, agent = self._acts(), self.agent
        left: Mode | None = None
        while True:
            before = driving.config.mode(driving.state)
            if changed := agent.follows(before, mode):
                if left is not before:
                    await called(before.on_exit, self, mode)
                    left = before
                    continue  # the hook may have changed the mode
                change = ev.ModeChanged(mode=mode, left=before.name)
                events = [driving.event("mode.changed", change)]
            else:
                events = []
            if text is not None:
                events.append(_message(driving, self.name, text, "steer"))
            expected = driving.state.head if changed else None
            if not events or await driving.write(*events, expected=expected):
                break
        if changed:
            await called(agent.mode(mode).on_enter, self, text)

    async def add_context(
        self,
        content: str,
        *,
        id: str | None = None,
        role: Literal["system", "message"] = "system",
        scope: Literal["step", "run", "session"] = "run",
        consume: Literal["once", "while_active"] = "once",
        on: str | None = None,
        replace: bool = False,
    ) -> str:
        """Show `content` to the model from its next call on, or from the next event of kind `on`.
        Returns the id of the added context."""
        id = id or new_id()
        check_name("id", id, limit=128)
        check_length("content", len(str(content)))
        if len(self._driving.state.contexts) >= ENTRIES and id not in self._driving.state.contexts:
            problem = f"the run already has {ENTRIES} added contexts, the maximum"
            raise InvalidValue(field="id", problem=problem, remedy="remove some contexts first")
        if id in self._driving.state.contexts and not replace:
            raise InvalidValue(
                field="id", problem=f"context {id!r} already exists", remedy="pass replace=True"
            )
        payload = ev.ContextAdded(
            id=id, content=content, role=role, scope=scope, consume=consume, on=on
        )
        await self._acts().write(self._driving.event("context.added", payload))
        return id

    async def remove_context(self, *ids: str) -> int:
        """Remove added contexts; without arguments, all of them. Returns the number of removed
        contexts."""
        known = self._driving.state.contexts
        gone = [id for id in (ids or known) if id in known]
        if gone:
            payload = ev.ContextRemoved(ids=gone)
            await self._acts().write(self._driving.event("context.removed", payload))
        return len(gone)


async def _change_state(driving: Driving, agent: Agent, edit: Edit) -> Any:
    shared = driving.shared
    return await change(
        shared.log,
        lambda: shared.state,
        lambda events, head: driving.write_shared(*events, expected=head),
        edit,
        kind=agent.state_type,
        custom=lambda kind, payload: custom(agent.events, kind, payload),
    )


def _message(driving: Driving, by: str, text: str, how: How) -> NewEvent:
    """Create a message as if a user had sent it. `by` is the name of the function that sent it."""
    run, waiting = driving.state.run, len(driving.state.queue)
    if waiting >= MOST:
        raise QueueFull(session=driving.live.key.session, limit=MOST)
    if run is not None and run.chain >= CHAIN:
        raise ToolError(
            problem=f"this run belongs to a chain of {CHAIN} runs that started each other, "
            "which is the maximum"
        )
    payload = ev.MessageReceived(text=text, how=how, metadata={"by": by})
    under = run.id if run is not None else None
    return NewEvent.of("message.received", payload, actor=by, run=under)
