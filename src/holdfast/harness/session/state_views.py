"""Where a session stands, part by part: who it is, what runs, what waits, what was used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

from ...errors import AlreadyDecided, InvalidValue, NotPending
from ...log import events as ev
from ...log.events import Event, NewEvent, new_id
from ...log.state import CHILD, Grants, OpenItem
from ...log.transcript import Message, transcript
from ...values import usage
from ...values.display import phase
from ...values.pending import Ask, Decision
from ...values.result import Result
from ...values.status import Status
from ...values.usage import Spent, Usage
from ...values.watch import Watch
from ..live.log import Live
from ..loop.typed_output import convert
from .base import Opener
from .display import DisplayView
from .pending_answers import Answering, asks
from .subagents import rows_of, used
from .views import Permissions, Queue, View

Response: TypeAlias = Literal["approve", "decline", "always_allow_category"]
RESPONSES = ("approve", "decline", "always_allow_category")


class Identity(View):
    """Who this is. None of it changes while the session is there."""

    @property
    def session(self) -> str:
        return self._ground.key.session

    @property
    def thread(self) -> str:
        return self._ground.key.thread

    @property
    def tenant(self) -> str:
        return self._ground.key.tenant

    @property
    def user(self) -> str | None:
        """Whose session it is, if that was said when it began."""
        row = self._ground.shared.row
        return row.user if row is not None else None

    @property
    def resource(self) -> str:
        """The user, or the session itself where it is nobody's."""
        return self.user or self.session

    @property
    def owner(self) -> str:
        """The agent that it belongs to."""
        row = self._ground.shared.row
        return (row.agent if row is not None else None) or self._ground.host.config.agent.key


class RunView(View):
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
        return self._ground.host.config.tracing.trace(self.id)


class Asking(View):
    """What waits for a person, of one sort."""

    _ground: Answering

    def _sort(self, what: str) -> bool:
        raise NotImplementedError

    def _items(self) -> list[OpenItem]:
        pending = self._state.pending.items()
        return [item for id, item in pending if self._sort(item.what) and not id.endswith(CHILD)]

    async def list(self) -> list[Ask]:
        """All of it, oldest first, also what the sub-agents of this thread ask."""
        return [one for one in await self._ground.pending() if self._sort(one.what)]


class Suspensions(Asking):
    """Calls that asked something themselves, and go on with the answer."""

    def _sort(self, what: str) -> bool:
        return what != "approval"

    @property
    def has_pending(self) -> bool:
        """Whether a call of this thread waits."""
        return bool(self._items())

    def has(self, call: str) -> bool:
        """Whether this call waits for an answer."""
        return any(item.call == call for item in self._items())


class Approvals(Asking):
    """Calls that must not be made before a person says so."""

    def _sort(self, what: str) -> bool:
        return what == "approval"

    @property
    def is_armed(self) -> bool:
        """Whether a call of this thread waits."""
        return bool(self._items())

    async def respond(
        self,
        decision: Response,
        item: str | None = None,
        *,
        reason: str | None = None,
        actor: str | None = None,
    ) -> Decision | None:
        """Decide on a call, given by its item or its own id; without one, on the one that waits
        longest. None, and nothing happens, where it does not wait any more."""
        if decision not in RESPONSES:
            raise InvalidValue(
                field="decision",
                problem=f"is {decision!r}",
                remedy=f"use one of {', '.join(RESPONSES)}",
            )
        waiting = [one for one in await self.list() if item in (None, one.id, one.call)]
        if not waiting:
            return None
        if decision == "always_allow_category":
            await self._allow(waiting[0])
        outcome: Any = "denied" if decision == "decline" else "approved"
        try:
            return await self._ground.settle(waiting[0].id, outcome, actor=actor, reason=reason)
        except (AlreadyDecided, NotPending):
            return None

    async def _allow(self, one: Ask) -> None:
        """Ask no more about its category; nothing where its tool has none."""
        detail = one.detail if isinstance(one.detail, dict) else {}
        if (category := detail.get("category")) is not None:
            await Permissions(self._ground).grant(category=category)


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
        return await self._ground.post(text, **options, busy="queue")


class UsageView(View):
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
        self._ground.check_open()
        live, found = self._ground.live, list[Spent]()
        for row in await rows_of(live):
            after = row.parent.at if row.parent is not None else 0
            read = live.store.read(row.key, after=after, log=row.log)
            said = [event async for event in read if event.kind == "message.completed"]
            found.extend(usage.table(row.thread, said))
        return found

    async def _read(self, count: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        self._ground.check_open()
        live = self._ground.live
        after = self._forked_at()
        read = live.store.read(live.key, after=after, log=live.log)
        return count([event async for event in read if event.kind == "message.completed"])

    def _forked_at(self) -> int:
        """Where the thread left its parent: what was used before is the parent's."""
        row = self._ground.live.row
        return row.parent.at if row is not None and row.parent is not None else 0


class Standing(Answering):
    """A session with the parts that say where it stands, and short ways to some of them."""

    def __init__(self, host: Opener[Any], live: Live, shared: Live) -> None:
        super().__init__(host, live, shared)
        self.identity = Identity(self)
        self.run = RunView(self)
        self.suspensions = Suspensions(self)
        self.approval = Approvals(self)
        self.queue = Queue(self)
        self.follow_ups = FollowUps(self)
        self.usage = UsageView(self)
        self.display = DisplayView(self)

    @property
    def status(self) -> Status:
        """Where the session stands now."""
        config, state = self.config, self.live.state
        run, started = state.run, [c for c in state.calls.values() if c.status == "started"]
        return Status(
            session=self.key.session,
            thread=self.key.thread,
            agent=config.agent.key,
            phase="closed" if self.closed else phase(state),
            mode=config.mode(state).name,
            model=config.model_ref(state, run.model if run is not None and run.open else None),
            run=run.id if run is not None and run.open else None,
            queued=len(state.queue),
            pending=len(state.pending),
            head=state.head,
            tool=started[0].name if started else None,
            error=run.code if run is not None else None,
        )

    async def transcript(
        self, *, limit: int | None = None, roles: tuple[str, ...] = ()
    ) -> list[Message]:
        """The conversation as messages, oldest first; the last `limit` of them."""
        self.check_open()
        found = [m for m in transcript(await self.events()) if not roles or m.role in roles]
        return found if limit is None else found[max(0, len(found) - limit) :]

    async def events(
        self,
        *,
        after: int = 0,
        kinds: tuple[str, ...] = (),
        run: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """The events of this thread that answer all of these, in order; the last `limit`."""
        self.check_open()
        found = [
            event
            async for event in self.live.store.read(self.key, after=after, log=self.live.log)
            if (not kinds or event.kind in kinds)
            and (run is None or event.run == run)
            and (since is None or event.at >= since)
            and (until is None or event.at <= until)
        ]
        return found if limit is None else found[max(0, len(found) - limit) :]

    async def usage_all(self) -> dict[str, int]:
        """What all threads of the session have used, sub-agents too."""
        self.check_open()
        return await used(self.live)

    async def abort(
        self,
        reason: str | None = None,
        *,
        actor: str | None = None,
        run: str | None = None,
        key: str | None = None,
    ) -> None:
        """Stop the run that is going or waits, whichever process drives it; with `run`, only if
        it is that one; with `key`, once, however often it is asked for. What was said is kept,
        and so is the queue."""
        self.check()
        active = self.live.state.active
        if active is None or run not in (None, active.id):
            return
        event = NewEvent.of(
            "abort.requested",
            ev.AbortRequested(run=active.id, reason=reason),
            id=new_id() if key is None else f"abort:{key}",
            actor=actor,
        )
        await self.append(event)

    @property
    def current_run_id(self) -> str | None:
        """The run that is going, or waits."""
        return self.run.id

    @property
    def grants(self) -> Grants:
        """What is not asked about at the moment."""
        return self.live.state.grants

    async def grant_tool(self, tool: str) -> None:
        """Ask no more about a tool, as long as this driver drives."""
        await Permissions(self).grant(tool=tool)

    async def grant_category(self, category: str) -> None:
        """Ask no more about a category of tools, as long as this driver drives."""
        await Permissions(self).grant(category=category)

    async def respond_to_approval(
        self,
        decision: Response,
        item: str | None = None,
        *,
        reason: str | None = None,
        actor: str | None = None,
    ) -> Decision | None:
        """`approval.respond`: approve, decline, or approve and ask no more about its category."""
        return await self.approval.respond(decision, item, reason=reason, actor=actor)


async def result_of(session: Standing, watch: Watch, type: Any = None) -> Result:
    """What came of an input, as far as it was watched."""
    config = session.config
    kind = type if type is not None else config.agent.output_type
    mode = config.mode(session.live.state).name
    read = None if kind is None else partial(convert, type=kind)
    return watch.result(await asks(session), config.agent.key, mode, read, session.live.failures)
