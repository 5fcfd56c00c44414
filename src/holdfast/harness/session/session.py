"""A live session: the verbs of one conversation, and small views of what it is.

It keeps no state of its own: what it shows is folded from the log, and what it does is to
append. Any number of processes may hold the same session.
"""

from __future__ import annotations

from typing import Any, Unpack

from ...errors import InvalidValue
from ...log import events as ev
from ...log.events import NewEvent
from ...log.state import Run
from ...stores.port import wall_clock
from ...values.options import Content, SendOptions
from ...values.result import Result
from ...values.watch import Watch
from ..live.log import Listener, Live
from ..loop.custom_events import custom
from ..loop.decide import asks_within, at_rest, delegates
from .base import Opener
from .message_stream import Streaming
from .notifications import Notifications
from .state_views import Standing, result_of
from .subagents import Subagents
from .threads import Threads
from .views import Checkpoints, ModelView, ModeView, Permissions, StateView, Timers


class Session(Standing):
    """One conversation, live in this process. Made by `harness.get_or_create`."""

    subagents: Subagents[Session]

    def __init__(self, host: Opener[Session], live: Live, shared: Live) -> None:
        super().__init__(host, live, shared)
        self.stream = Streaming(self)
        self.mode = ModeView(self)
        self.model = ModelView(self)
        self.state = StateView(self)
        self.checkpoints = Checkpoints(self)
        self.timers = Timers(self)
        self.permissions = Permissions(self)
        self.notifications = Notifications(self)
        self.threads = self.thread = Threads[Session](self, host)

    @property
    def id(self) -> str:
        return self.live.key.session

    # Talking

    async def send(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> Result:
        """Send a message and wait until its run waits for a person, or has ended. The message
        is in the log before anything else happens; leaving early stops nothing.

        Options: `busy` (queue, steer, interrupt, reject), `key` (idempotency), `actor`,
        `metadata`, `model`, `limits`.
        """
        stream = self.stream(content, output_type=output_type, **options)
        async for _ in stream:
            pass
        return stream.result

    async def wait(self, output_type: Any = None) -> Result:
        """Wait until the run that is going, or was last, waits for a person or has ended, and
        nothing is left in the queue. Its typed answer is of the type that its message asked
        for here; where another process sent that, give the type, or get plain JSON."""
        self.check()
        while True:
            asked = await self._until_it_waits()
            run, head = self.live.state.run, self.live.state.head
            watch = await self._watched(run, head)
            ended = watch.end is not None and watch.end[0] != "waiting"
            if ended or asked or self.live.state.head == head:
                break  # else what it waited for may have been settled while the log was read
        if watch.end is None and (asked or asks_within(self.live.state)):
            watch.end = ("waiting", None, None, self.live.state.head)
        if output_type is None and run is not None and run.output is not None:
            output_type = self.config.outputs.get((self.live.log, run.output), Any)
        return await result_of(self, watch, output_type)

    async def _watched(self, run: Run | None, head: int) -> Watch:
        """What became of a run up to event `head`."""
        watch, live = Watch(self.key, -1), self.live
        start = run.seq if run is not None else 1
        async for event in live.store.read(
            self.key, after=start - 1, before=head + 1, log=live.log
        ):
            watch.run = run.id if run is not None else None
            watch.see(event)
        return watch

    async def _until_it_waits(self) -> bool:
        """Wait until there is nothing to do here, nor in the sub-agents that it waits for;
        whether one of those waits for a person."""
        live = self.live
        while True:
            await live.until(
                lambda: live.stuck is not None or self._waits() or delegates(live.state)
            )
            if live.stuck is not None:
                raise live.stuck
            if not delegates(live.state):
                return False
            if await self.subagents.asked():
                return True

    def _waits(self) -> bool:
        state = self.live.state
        return at_rest(state, self.config.bounds, wall_clock()) or asks_within(state)

    def subscribe(self, after: int | None = None) -> Listener:
        """Everything that follows event `after`, or that follows now: events, and deltas of
        messages in flight. Slow or gone, a reader costs the run nothing. It ends when the session
        is closed, and when the process is told to end."""
        self.check()
        listener = self.live.listen(after)
        self.host.subscribed(listener)
        return listener

    # Writing beside a run

    async def emit(self, kind: str, payload: Any = None, *, actor: str | None = None) -> int:
        """Write an event of the program's own."""
        self.check_open()
        checked = custom(self.config.agent.events, kind, payload)
        return await self.append(NewEvent.of(kind, checked, actor=actor))

    async def seed(self, messages: list[tuple[str, str]]) -> None:
        """Begin a conversation with messages from elsewhere: (role, text), user or assistant."""
        self.check_open()
        state = self.live.state
        if state.run is not None or state.queue:
            raise InvalidValue(
                field="messages",
                problem="the conversation has begun",
                remedy="seed a new session or thread",
            )
        events = []
        for role, text in _pairs(messages):
            if role == "user":
                events.append(NewEvent.of("message.received", ev.MessageReceived(text=text)))
            elif role == "assistant":
                events.append(NewEvent.of("message.completed", ev.MessageCompleted(text=text)))
            else:
                problem, remedy = f"has role {role!r}", "use user or assistant"
                raise InvalidValue(field="messages", problem=problem, remedy=remedy)
        if events:
            await self.append(*events)

    async def close(self) -> None:
        """Forget this live object; the conversation stays, and a run that is going goes on."""
        await self.host.close(self.id)


def _pairs(messages: Any) -> list[tuple[str, str]]:
    """Messages from elsewhere, each a role and a text."""
    if not isinstance(messages, (list, tuple)):
        problem, remedy = f"is {type(messages).__name__}", "give a list of (role, text)"
        raise InvalidValue(field="messages", problem=problem, remedy=remedy)
    for one in messages:
        whole = isinstance(one, (list, tuple)) and len(one) == 2
        if not whole or not all(isinstance(part, str) for part in one):
            problem, remedy = f"hold {one!r}", "give each as (role, text)"
            raise InvalidValue(field="messages", problem=problem, remedy=remedy)
    return [(role, text) for role, text in messages]
