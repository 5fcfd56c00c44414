"""Attributes of a session that show its state: identity, run, follow-ups, usage and status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...stores.usage import model_answers, usage_table
from ...values import usage
from ...values.display import phase
from ...values.status import Status
from ...values.usage import Spent, Usage
from .base import SessionCore, SessionPart
from .views import Queue


class SessionIdentity(SessionPart):
    """The identity of a session: its tenant, id, thread, user and agent. It never changes."""

    @property
    def session(self) -> str:
        return self._core.key.session

    @property
    def thread(self) -> str:
        return self._core.key.thread

    @property
    def tenant(self) -> str:
        return self._core.key.tenant

    @property
    def user(self) -> str | None:
        """The user that the session belongs to, if one was set when it was created."""
        row = self._core.shared.row
        return row.user if row is not None else None

    @property
    def resource(self) -> str:
        """The id of the user, or the id of the session if it has no user."""
        return self.user or self.session

    @property
    def owner(self) -> str:
        """The agent that the session belongs to."""
        row = self._core.shared.row
        return (row.agent if row is not None else None) or self._core.host.config.agent.key


class RunView(SessionPart):
    """The active run, running or waiting."""

    @property
    def id(self) -> str | None:
        run = self._state.active
        return run.id if run is not None else None

    @property
    def is_running(self) -> bool:
        """Whether the run is being driven, and not waiting."""
        run = self._state.active
        return run is not None and run.status == "running"

    @property
    def trace_id(self) -> str | None:
        """The trace id in hexadecimal, if this process drives the run with tracing enabled."""
        return self._core.host.config.tracing.trace(self.id)


class FollowUps(Queue):
    """The queued messages. When a run ends or fails, the next message starts a new run."""

    @property
    def count(self) -> int:
        return len(self)

    @property
    def is_empty(self) -> bool:
        return not len(self)

    async def add(self, text: str, **options: Any) -> int:
        """Queue a message behind all other messages. If nothing is running, a run starts
        immediately. Returns the number with which the message can be edited, moved and removed."""
        return await self._core.post(text, **options, busy="queue")


class UsageView(SessionPart):
    """The token usage of this thread."""

    def get(self) -> Usage:
        """Return the total usage of this thread."""
        return usage.spent(self._state)

    async def by_run(self) -> dict[str, Usage]:
        """Return the usage of each run, oldest first."""
        return await self._read(usage.by_run)

    async def by_model(self) -> dict[str, Usage]:
        """Return the usage of each model."""
        return await self._read(usage.by_model)

    async def last(self) -> dict[str, int]:
        """Return the counts of the latest model call, including counts that are specific to its
        vendor."""
        return await self._read(usage.last)

    async def table(self) -> list[Spent]:
        """Return the usage by thread, run and model for the whole session, including sub-agents;
        ordered by thread, oldest first."""
        self._core.check_open()
        return await usage_table(self._core.live.store, self._core.key.scope)

    async def _read(self, count: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        self._core.check_open()
        live = self._core.live
        row = live.row
        return count([] if row is None else await model_answers(live.store, row))


def status_of(core: SessionCore[Any]) -> Status:
    """Return the current status of a session."""
    config, state = core.config, core.live.state
    run, started = state.run, [c for c in state.calls.values() if c.status == "started"]
    return Status(
        session=core.key.session,
        thread=core.key.thread,
        agent=config.agent.key,
        phase="closed" if core.closed else phase(state),
        mode=config.mode(state).name,
        model=config.model_ref(state, run.model if run is not None and run.open else None),
        run=run.id if run is not None and run.open else None,
        queued=len(state.queue),
        pending=len(state.pending),
        head=state.head,
        tool=started[0].name if started else None,
        error=run.code if run is not None else None,
    )
