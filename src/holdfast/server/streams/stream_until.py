"""Goals that end a stream: its session is idle, or one message is answered. A stream without such a
goal ends when its reader disconnects."""

from __future__ import annotations

from ...harness import Session, core_of
from ...log.events import Event
from ...values.stream_items import CaughtUp, Item
from ...values.watch import Conclusion, MessageWatch, Rest
from ...wire import End


class StreamGoal:
    """Base class of all goals; as a goal itself, it is never reached. A goal needs all events after
    number `first`, and if `reads` is set, also their data. If `session` is set, the stream also
    ends when a sub-agent needs user input; `asked` is then set."""

    session: Session | None = None
    first: int | None = None
    reads = False
    asked = False

    def see(self, item: Item) -> bool:
        """Process the next item. Returns whether to send it to the reader."""
        return True

    def met(self, item: Item) -> Rest | None:
        """Return why the stream ends after this item, which was passed to `see` before, or None if
        it continues."""
        return None

    async def end(self, reason: Rest) -> End:
        """Return the last item of the stream."""
        return End(reason=reason)


class SessionIdle(StreamGoal):
    """Reached when nothing is running, or the session can continue only with user input."""

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self._core = core_of(session)
        self._live = False  # all past events have been seen

    def see(self, item: Item) -> bool:
        self._live = self._live or isinstance(item, CaughtUp)
        return True

    def met(self, item: Item) -> Rest | None:
        return self._core.rest() if self._is_newest(item) else None

    def _is_newest(self, item: Item) -> bool:
        """Return whether an item is live and is the last one in the log."""
        at = item.seq if isinstance(item, Event) else getattr(item, "head", None)
        return self._live and at == self._core.live.state.head


class MessageAnswered(SessionIdle):
    """Reached when the run that handles a message has ended or waits for user input, or when the
    message is queued behind such a run. The last item contains the result."""

    reads = True

    def __init__(self, session: Session, input: int) -> None:
        super().__init__(session)
        self.first = input - 1
        self._watch = MessageWatch(session.key, input)

    def see(self, item: Item) -> bool:
        super().see(item)
        return self._watch.see(item)

    def met(self, item: Item) -> Rest | None:
        if not self._live and not self._is_final():
            return None  # a run that waited at this event may have continued since
        if not self._is_done(newest=self._is_newest(item)):
            return None
        return "finished" if self._is_final() else "waiting"

    async def end(self, reason: Rest) -> End:
        session, watch = self.session, self._watch
        if not self._is_done():
            watch.end = Conclusion("waiting", self._core.live.state.head)
        status = session.status
        result = watch.result(tuple(await session.pending()), status.agent, status.mode)
        return End(reason=reason, result=result)

    def _is_final(self) -> bool:
        return self._watch.end is not None and self._watch.end.final

    def _is_done(self, *, newest: bool = False) -> bool:
        core = self._core
        return self._watch.is_done(core.live.state, core.rest, asked=self.asked, newest=newest)
