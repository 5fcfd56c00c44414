"""When a stream has shown what its reader came for: never, when the session is quiet, or when
one input is answered as far as it can be."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from ...harness import Listener, Session, core_of, rest_of
from ...log.events import Event
from ...stores.port import wall_clock
from ...values.stream_items import CaughtUp, Item
from ...values.watch import Conclusion, MessageWatch, Rest, delegates
from ...wire import End


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

    def met(self, item: Item) -> Rest | None:
        """Why nothing more is to come after this item, which was seen; None: more is."""
        ...

    async def asked(self, listener: Listener) -> None:
        """End the listener once a sub-agent waits for a person."""
        ...

    async def end(self, reason: Rest) -> End:
        """What is said at the end."""
        ...


class Forever:
    """Until the reader goes."""

    first: int | None = None
    asks = False
    reads = False

    def see(self, item: Item) -> bool:
        return True

    def met(self, item: Item) -> Rest | None:
        return None

    async def asked(self, listener: Listener) -> None:
        return None

    async def end(self, reason: Rest) -> End:
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

    def met(self, item: Item) -> Rest | None:
        return _rest(self.session) if self.newest(item) else None

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
        self.watch = MessageWatch(core_of(session).key, input)

    def see(self, item: Item) -> bool:
        super().see(item)
        return self.watch.see(item)

    def met(self, item: Item) -> Rest | None:
        end = self.watch.end
        if not self.live and not (end is not None and end.final):
            return None  # it may have waited then, and gone on since
        if not self._is_done(newest=self.newest(item)):
            return None
        return "finished" if self.watch.end is not None and self.watch.end.final else "waiting"

    async def end(self, reason: Rest) -> End:
        session, watch = self.session, self.watch
        if not self._is_done():
            watch.end = Conclusion("waiting", core_of(session).live.state.head)
        status = session.status
        result = watch.result(tuple(await session.pending()), status.agent, status.mode)
        return End(reason=reason, result=result)

    def _is_done(self, *, newest: bool = False) -> bool:
        state, rest = core_of(self.session).live.state, partial(_rest, self.session)
        return self.watch.is_done(state, rest, asked=self.waits, newest=newest)


def _rest(session: Session) -> Rest | None:
    core = core_of(session)
    return rest_of(core.live.state, core.config.bounds, wall_clock())
