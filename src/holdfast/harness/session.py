"""A live session: the verbs of one conversation, and small views of what it is.

It keeps no state of its own: what it shows is folded from the log, and what it does is to
append. Any number of processes may hold the same session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Unpack

from msgspec import Struct

from .. import events as ev
from ..errors import HarnessClosed, InvalidValue, NotPending
from ..events import Event, NewEvent
from ..state import CHILD
from ..store import wall_clock
from ..transcript import Message, transcript
from .acting import custom
from .children import Subagents, used
from .decide import asks_within, decide, delegates
from .display import phase
from .inbox import Decision
from .inputs import Content, SendOptions, check_options, check_seconds
from .live import Item, Listener, Live, Trouble
from .results import Ask, Result, Watch, ask
from .standing import Standing
from .steps import Idle, Plan
from .threads import Opener, Threads
from .views import Checkpoints, ModelView, ModeView, Permissions, Queue, StateView, Timers, View


class Status(Struct, frozen=True):
    """Where a session stands, at a glance."""

    session: str
    thread: str
    agent: str
    phase: str
    mode: str
    model: str | None
    run: str | None
    queued: int
    pending: int
    head: int
    tool: str | None = None
    error: str | None = None


class Session(Standing):
    """One conversation, live in this process. Made by `harness.get_or_create`."""

    def __init__(self, host: Opener[Session], live: Live, shared: Live) -> None:
        super().__init__(host, live, shared)
        self.stream = Streaming(self)
        self.mode = ModeView(self)
        self.model = ModelView(self)
        self.state = StateView(self)
        self.checkpoints = Checkpoints(self)
        self.timers = Timers(self)
        self.queue = Queue(self)
        self.permissions = Permissions(self)
        self.threads = self.thread = Threads[Session](self, host)
        self.subagents: Subagents[Session] = Subagents(
            self, lambda thread: host.open(live.key.session, thread)
        )

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
        asked = await self._until_it_waits()
        run = self.live.state.run
        start = run.seq if run is not None else 1
        watch = Watch(self.key, -1)
        async for event in self.live.store.read(self.key, after=start - 1, log=self.live.log):
            watch.run = run.id if run is not None else None
            watch.see(event)
        if watch.end is None and (asked or asks_within(self.live.state)):
            watch.end = ("waiting", None, None, self.live.state.head)
        if output_type is None and run is not None and run.output is not None:
            output_type = self.config.outputs.get((self.live.log, run.output), Any)
        return await self._result(watch, output_type)

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
        return self._settled() or asks_within(self.live.state)

    def _settled(self) -> bool:
        """Whether there is nothing that a driver could do."""
        step = decide(self.live.state, self.config.bounds, wall_clock())
        return isinstance(step, (Idle, Plan)) and not delegates(self.live.state)

    async def abort(self, reason: str | None = None, *, actor: str | None = None) -> None:
        """Stop the run that is going or waits, whichever process drives it. What was said is
        kept, and so is the queue."""
        self.check()
        run = self.live.state.active
        if run is None:
            return
        event = NewEvent.of(
            "abort.requested", ev.AbortRequested(run=run.id, reason=reason), actor=actor
        )
        await self.append(event)

    def subscribe(self, after: int | None = None) -> Listener:
        """Everything that follows event `after`, or that follows now: events, and deltas of
        messages in flight. Slow or gone, a reader costs the run nothing."""
        self.check()
        return self.live.listen(after)

    # Answering

    async def pending(self) -> list[Ask]:
        """What waits for a person, oldest first; then what sub-agents that work for this thread
        ask. All of it is answered here."""
        self.check_open()
        return list(await self._asks())

    async def usage_all(self) -> dict[str, int]:
        """What all threads of the session have used, sub-agents too."""
        self.check_open()
        return await used(self.live)

    async def approve(
        self,
        item: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Decision:
        """Let a call be made, perhaps with other arguments. Without an item: the only one."""
        answer = None if arguments is None else {"arguments": dict(arguments)}
        return await self.settle(item, "approved", actor=actor, reason=reason, answer=answer)

    async def deny(
        self, item: str | None = None, reason: str | None = None, *, actor: str | None = None
    ) -> Decision:
        """Refuse a call; the model is told the reason."""
        return await self.settle(item, "denied", actor=actor, reason=reason)

    async def answer(
        self, answer: Any, item: str | None = None, *, actor: str | None = None
    ) -> Decision:
        """Answer a question, or say what an outside call came to."""
        return await self.settle(item, "answered", actor=actor, answer=answer)

    async def extend(self, item: str, seconds: float | None, *, actor: str | None = None) -> None:
        """Let an item expire so many seconds from now; None: never."""
        self.check_open()
        if item not in self.live.state.pending:
            raise NotPending(session=self.id, item=item, pending=list(self.live.state.pending))
        if seconds is not None:
            check_seconds("seconds", seconds)
        expires = None if seconds is None else wall_clock() + int(seconds * 1000)
        payload = ev.PendingExtended(id=item, expires=expires)
        await self.append(NewEvent.of("pending.extended", payload, actor=actor))

    # Reading

    @property
    def status(self) -> Status:
        """Where the session stands now."""
        config, state = self.config, self.live.state
        run, started = state.run, [c for c in state.calls.values() if c.status == "started"]
        return Status(
            session=self.id,
            thread=self.key.thread,
            agent=config.agent.key,
            phase=phase_of(self),
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

    # Within

    async def child(self, thread: str) -> Live:
        return (await self.subagents.open(thread)).live

    async def _asks(self) -> tuple[Ask, ...]:
        found, thread = [], self.key.thread
        for id, item in self.live.state.pending.items():
            if not id.endswith(CHILD) or await self.subagents.gone(id):
                opened = await self.live.payload(item.seq, ev.PendingOpened)
                found.append(ask(id, item, opened, thread))
        return (*found, *await self.subagents.asks())

    async def _result(self, watch: Watch, type: Any = None) -> Result:
        config = self.config
        kind = type if type is not None else config.agent.output_type
        mode = config.mode(self.live.state).name
        return watch.result(await self._asks(), config.agent.key, mode, kind)


class Streaming(View):
    """What runs do, as it happens: call it with a message to see what becomes of that."""

    _ground: Session

    def __call__(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> Stream:
        """Send a message and see everything that its run does, as it happens."""
        check_options(options)
        return Stream(self._ground, content, output_type, options)

    @property
    def active_run_id(self) -> str | None:
        """The run that is going, or waits."""
        return self._ground.run.id

    @property
    def is_active(self) -> bool:
        return self._ground.run.id is not None

    async def abort(self, reason: str | None = None) -> None:
        """Stop it."""
        await self._ground.abort(reason)


class Stream:
    """What becomes of one message: events and deltas, in order, until its run waits or has
    ended; then `result`. Leaving the loop stops nothing; `cancel` does."""

    def __init__(self, session: Session, content: Content, kind: Any, options: SendOptions) -> None:
        self._session, self._content, self._kind, self._options = session, content, kind, options
        self._result: Result | None = None
        self.seq: int | None = None
        self._watch: Watch | None = None
        self._cancelled = self._asked = False

    @property
    def result(self) -> Result:
        if self._result is None:
            raise InvalidValue(
                field="result",
                problem="is not there before the stream was read to its end",
                remedy="read it with `async for` until it ends, or use send",
            )
        return self._result

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._items()

    async def cancel(self, reason: str | None = None) -> None:
        """Stop this run, and no other; if it has not begun, take the message out of the queue.
        What is not sent yet is not sent at all."""
        session = self._session
        if self.seq is None:
            self._cancelled = True
        elif any(q.seq == self.seq for q in session.live.state.queue):
            await session.queue.remove(self.seq)
        elif (active := session.live.state.active) is not None and active.id == await self._run():
            await session.abort(reason)

    async def _run(self) -> str | None:
        """The run that took the message up, also where nobody has read so far."""
        watch = Watch(self._session.key, self.seq or 0)
        for event in await self._session.events(after=watch.input - 1):
            watch.see(event)
        return watch.run

    def _asks_within(self, item: Item) -> bool:
        """Whether the run waits for a person within a call, and all before that was shown."""
        state, watch = self._session.live.state, self._watch
        shown = isinstance(item, Event) and item.seq == state.head
        mine = watch is not None and state.run is not None and watch.run == state.run.id
        return shown and mine and asks_within(state)

    def _behind(self) -> bool:
        """Whether the message waits for its turn, and only a person can bring that about."""
        session, watch = self._session, self._watch
        queued = any(item.seq == self.seq for item in session.live.state.queue)
        if watch is not None and queued and (self._asked or session._settled()):
            watch.end = ("queued", None, None, session.live.state.head)
            return True
        return False

    async def _items(self) -> AsyncGenerator[Item, None]:
        session = self._session
        session.check()
        if self._cancelled:
            never = Watch(session.key, 0)
            never.end = ("removed", None, None, session.live.state.head)
            self._result = await session._result(never)
            return
        listener = session.live.listen()
        asked: asyncio.Task[None] | None = None
        try:
            self.seq = await session.post(self._content, output_type=self._kind, **self._options)
            before = 0
            if self.seq <= listener.after:  # an idempotent repeat: it happened before
                listener.close()
                before = session.live.state.head
                listener = session.live.listen(self.seq - 1)
            self._watch = watch = Watch(session.key, self.seq)
            if self._behind():
                self._result = await session._result(watch, self._kind)
                return
            asked = asyncio.create_task(self._until_asked(listener))
            async with contextlib.aclosing(aiter(listener)) as items:
                async for item in items:
                    if watch.see(item):
                        yield item
                    if watch.end is None and self._asks_within(item):
                        watch.end = ("waiting", None, None, session.live.state.head)
                    if _was(item, before):
                        continue  # it may have waited then, and gone on since
                    if watch.end is not None or self._behind():
                        break
                    if session.live.stuck is not None and isinstance(item, Trouble):
                        raise session.live.stuck
            if watch.end is None and asked.done():
                asked.result()  # a sub-agent that cannot go on is told of here
                if not self._behind():
                    watch.end = ("waiting", None, None, session.live.state.head)
            if watch.end is None:
                raise session.live.failure or HarnessClosed(what=f"session {session.id!r}")
            self._result = await session._result(watch, self._kind)
        finally:
            listener.close()
            if asked is not None:
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)

    async def _until_asked(self, listener: Listener) -> None:
        """Read no further once a sub-agent of the run waits for a person."""
        session = self._session
        try:
            while not self._asked:
                await session.live.until(lambda: delegates(session.live.state))
                self._asked = await session.subagents.asked()
        finally:
            listener.end()


def _was(item: Item, head: int) -> bool:
    """Whether more of what happened up to event `head` is to come after this."""
    return isinstance(item, Event) and item.seq < head


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


def phase_of(session: Session) -> str:
    """One word for what is going on."""
    if session.closed:
        return "closed"
    return phase(session.live.state)
