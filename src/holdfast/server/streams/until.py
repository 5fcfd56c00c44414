"""When a stream has shown what its reader came for: never, when the session is quiet, or when
one input is answered as far as it can be."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from ...harness.live.log import Listener
from ...harness.loop.decide import asks_within, decide, delegates
from ...harness.loop.steps import Idle, Plan
from ...harness.session.session import Session, core_of
from ...log.events import Event
from ...stores.port import wall_clock
from ...values.stream_items import CaughtUp, Item
from ...values.watch import Watch
from ...wire import End

Reason: TypeAlias = Literal["finished", "waiting"]


class Goal(Protocol):
    """What a reader waits for. `first` is where it has to be read from, if that matters; `asks`
    says whether it is over once sub-agents wait for a person, `reads` whether it looks into the
    data of events."""

    first: int | None
    asks: bool
    reads: bool

    def see(self, item: Item) -> bool:
        """Whether this is to be shown."""
        ...

    def met(self, item: Item) -> Reason | None:
        """Why nothing more is to come after this item, which was seen; None: more is."""
        ...

    async def asked(self, listener: Listener) -> None:
        """End the listener once a sub-agent waits for a person."""
        ...

    async def end(self, reason: Reason) -> End:
        """What is said at the end."""
        ...


class Forever:
    """Until the reader goes."""

    first: int | None = None
    asks = False
    reads = False

    def see(self, item: Item) -> bool:
        return True

    def met(self, item: Item) -> Reason | None:
        return None

    async def asked(self, listener: Listener) -> None:
        return None

    async def end(self, reason: Reason) -> End:
        return End(reason=reason)


class Quiet(Forever):
    """Until nothing goes on any more, or only a person can bring it on."""

    asks = True

    def __init__(self, session: Session) -> None:
        self.session = session
        self.waits = False  # for a person, in a sub-agent
        self.live = False  # what was missed has been shown

    def see(self, item: Item) -> bool:
        self.live = self.live or isinstance(item, CaughtUp)
        return True

    def met(self, item: Item) -> Reason | None:
        return standing(self.session) if self.newest(item) else None

    def newest(self, item: Item) -> bool:
        """Whether nothing has happened since."""
        head = core_of(self.session).live.state.head
        at = item.seq if isinstance(item, Event) else getattr(item, "head", None)
        return self.live and at == head

    async def asked(self, listener: Listener) -> None:
        live = core_of(self.session).live
        try:
            while not self.waits:
                await live.until(lambda: delegates(live.state))
                self.waits = await self.session.subagents.asked()
        finally:
            listener.end()


class Answer(Quiet):
    """Until the run that took an input up waits for a person or has ended, or until the input
    itself waits for what only a person can bring on. Then `end` has its result."""

    reads = True

    def __init__(self, session: Session, input: int) -> None:
        super().__init__(session)
        self.first = input - 1
        self.watch = Watch(session.key, input)

    def see(self, item: Item) -> bool:
        super().see(item)
        return self.watch.see(item)

    def met(self, item: Item) -> Reason | None:
        watch, state = self.watch, core_of(self.session).live.state
        if not self.live and _may_go_on(watch):
            return None  # it may have waited then, and gone on since
        mine = state.run is not None and watch.run == state.run.id
        if watch.end is None and mine and self.newest(item) and asks_within(state):
            watch.end = ("waiting", None, None, state.head)
        if watch.end is None and not self._behind():
            return None
        if not _may_go_on(watch):
            return "finished"
        return None if standing(self.session) is None and not self.waits else "waiting"

    async def end(self, reason: Reason) -> End:
        session, watch = self.session, self.watch
        if watch.end is None and not self._behind():
            watch.end = ("waiting", None, None, core_of(session).live.state.head)
        status = session.status
        result = watch.result(tuple(await session.pending()), status.agent, status.mode)
        return End(reason=reason, result=result)

    def _behind(self) -> bool:
        """Whether the input waits for its turn, and only a person can bring that about."""
        state, watch = core_of(self.session).live.state, self.watch
        queued = any(item.seq == watch.input for item in state.queue)
        if queued and (self.waits or standing(self.session) is not None):
            watch.end = ("queued", None, None, state.head)
            return True
        return False


def _may_go_on(watch: Watch) -> bool:
    return watch.end is None or watch.end[0] in ("waiting", "queued")


def standing(session: Session) -> Reason | None:
    """Whether nothing is left to do, or only for a person; None while there is something."""
    state = core_of(session).live.state
    if delegates(state):
        return None
    if asks_within(state):
        return "waiting"
    if not isinstance(decide(state, core_of(session).config.bounds, wall_clock()), (Idle, Plan)):
        return None
    return "finished" if state.active is None else "waiting"
