"""Parts of a session that show its state: identity, run, follow-ups, usage and status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...values import usage
from ...values.display import phase
from ...values.status import Status
from ...values.usage import Spent, Usage
from .base import SessionCore, SessionPart
from .subagents import rows_of
from .views import Queue


class SessionIdentity(SessionPart):
    """Who this is. None of it changes while the session is there."""

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
        """Whose session it is, if that was said when it began."""
        row = self._core.shared.row
        return row.user if row is not None else None

    @property
    def resource(self) -> str:
        """The user, or the session itself where it is nobody's."""
        return self.user or self.session

    @property
    def owner(self) -> str:
        """The agent that it belongs to."""
        row = self._core.shared.row
        return (row.agent if row is not None else None) or self._core.host.config.agent.key


class RunView(SessionPart):
    """The run that is going, or waits."""

    @property
    def id(self) -> str | None:
        run = self._state.active
        return run.id if run is not None else None

    @property
    def is_running(self) -> bool:
        """Whether it is being driven, and does not wait."""
        run = self._state.active
        return run is not None and run.status == "running"

    @property
    def trace_id(self) -> str | None:
        """Its trace, in hexadecimal, if this process drives it and traces."""
        return self._core.host.config.tracing.trace(self.id)


class FollowUps(Queue):
    """The messages that wait for their turn; a run that ends, however it ends, is followed by
    one that takes up the next."""

    @property
    def count(self) -> int:
        return len(self)

    @property
    def is_empty(self) -> bool:
        return not len(self)

    async def add(self, text: str, **options: Any) -> int:
        """Send a message for when all others are answered; at once where nothing is going on.
        The number by which it can be edited, moved and removed."""
        return await self._core.post(text, **options, busy="queue")


class UsageView(SessionPart):
    """What this thread used of its models."""

    def get(self) -> Usage:
        """All of it."""
        return usage.spent(self._state)

    async def by_run(self) -> dict[str, Usage]:
        """What each run used, oldest first."""
        return await self._read(usage.by_run)

    async def by_model(self) -> dict[str, Usage]:
        """What was used of each model."""
        return await self._read(usage.by_model)

    async def last(self) -> dict[str, int]:
        """The counts of the latest model call, also those that only its vendor knows."""
        return await self._read(usage.last)

    async def table(self) -> list[Spent]:
        """What each run of each thread of the session used of each model, sub-agents too; by
        thread, the oldest first."""
        self._core.check_open()
        live, found = self._core.live, list[Spent]()
        for row in await rows_of(live):
            after = row.parent.at if row.parent is not None else 0
            read = live.store.read(row.key, after=after, log=row.log)
            said = [event async for event in read if event.kind == "message.completed"]
            found.extend(usage.table(row.thread, said))
        return found

    async def _read(self, count: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        self._core.check_open()
        live = self._core.live
        after = self._forked_at()
        read = live.store.read(live.key, after=after, log=live.log)
        return count([event async for event in read if event.kind == "message.completed"])

    def _forked_at(self) -> int:
        """Where the thread left its parent: what was used before is the parent's."""
        row = self._core.live.row
        return row.parent.at if row is not None and row.parent is not None else 0


def status_of(core: SessionCore[Any]) -> Status:
    """The status of a session now."""
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
