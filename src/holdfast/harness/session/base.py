"""The core of a live session: its logs, its harness, and the methods that append events. The
session and its attributes, such as `session.queue`, share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, Unpack

from ...environment import wall_clock
from ...errors import HarnessClosed, HeadMoved, PhaseError
from ...log import events as ev
from ...log.events import Key, NewEvent, Payload, ids, new_id
from ...log.state import State
from ...sessions.rewind import rewind
from ...stores.event_loop import OwnLoop
from ...stores.port import Store
from ...values.options import Content, SendOptions, check_options
from ...values.watch import Rest
from ..agents.config import Config
from ..agents.runtime import HarnessRuntime
from ..live.inputs import accept, message_event
from ..live.log import Live, Subscriber
from ..loop.decide import rest_of
from ..loop.typed_output import output_request, output_tool
from ..sandbox.port import Place

S = TypeVar("S")
KIND_OF = {payload: kind for kind, payload in ev.KINDS.items()}


class SessionHost(Protocol[S]):
    """The attributes and methods of a harness that a session uses."""

    @property
    def config(self) -> Config: ...

    @property
    def runtime(self) -> HarnessRuntime: ...

    @property
    def store(self) -> Store: ...

    def wake(self, live: Live) -> None: ...

    async def start_run(
        self, live: Live, event: NewEvent, accepted: Callable[[int], None]
    ) -> tuple[int, bool] | None: ...

    async def close(self, id: str) -> bool: ...

    def subscribed(self, subscriber: Subscriber) -> None: ...

    async def open(self, id: str, thread: str = "main") -> SessionCore[S]: ...

    async def delete_thread(self, id: str, thread: str) -> Any: ...


class SessionCore(Generic[S]):
    """One open thread of a session. `live` is its log; `shared` is the log of thread `main`, which
    holds the data that all threads share. `session` is the public object, which `make` creates."""

    def __init__(
        self, host: SessionHost[S], live: Live, shared: Live, make: Callable[[SessionCore[S]], S]
    ) -> None:
        self.host, self.live, self.shared = host, live, shared
        self.closed = False
        self._own = OwnLoop(f"session {live.key.session!r}")
        self.touch()
        self.session = make(self)

    @property
    def key(self) -> Key:
        return self.live.key

    @property
    def config(self) -> Config:
        return self.host.config.of(self.key, self.live.state)

    def touch(self) -> None:
        """Record that the session is in use now; see `Harness.evict`."""
        self.used = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Mark the session as closed. All later calls of its methods raise `HarnessClosed`."""
        self.closed = True

    def check_open(self) -> None:
        """Raise `HarnessClosed` if the session is closed."""
        self.touch()
        self._own.check()
        if self.closed:
            raise HarnessClosed(what=f"session {self.key.session!r}")

    def check(self) -> None:
        """Raise an error if the session is closed, was deleted or has expired."""
        self.check_open()
        if self.live.failure is not None:
            raise self.live.failure
        if self.shared.state.expired:
            key = self.key
            raise PhaseError(
                tenant=key.tenant, session=key.session, phase="expired", move="continuing"
            )

    async def catch_up(self, live: Live | None = None) -> State:
        """Return the state, including all events that other processes have written so far."""
        self.check()
        live = live or self.live
        row = await self.host.store.row(live.key)
        return live.state if row is None else await live.reach(row.head)

    def rest(self) -> Rest | None:
        """Return `finished` if nothing is left to do in this thread, `waiting` if it can continue
        only with user input, and None while work is in progress."""
        return rest_of(self.live.state, self.config.bounds, wall_clock())

    async def place(self) -> Place:
        """Return the sandbox of the session, opened if necessary."""
        return await self.host.runtime.place(self.key, self.config.agent.key)

    async def append(
        self, *events: NewEvent, live: Live | None = None, expected: int | None = None
    ) -> int:
        """Append events, wait until the local state includes them, and wake a driver. Returns the
        number of the last event."""
        self.check()
        live = live or self.live
        done = await self.host.store.append(live.key, events, expected=expected, log=live.log)
        await live.reach(done.head)
        self.host.wake(self.live)
        return done.seqs[-1]

    async def append_if(self, *events: NewEvent, live: Live, head: int) -> bool:
        """Append if event `head` is still the last event. Otherwise wait for the newer events and
        return False."""
        try:
            await self.append(*events, live=live, expected=head)
        except HeadMoved as moved:
            await live.reach(moved.head)
            return False
        return True

    async def post(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> int:
        """Write a message to the log, and return its number."""
        self.check()
        check_options(options)
        if (ref := options.get("model")) is not None:
            self.config.models.check(ref)
        output = None if output_type is None else output_request(output_type)

        def accepted(seq: int) -> None:
            if output_type is not None:
                self.host.runtime.outputs[self.live.log, seq] = output_tool(output_type)

        started = False

        async def start(event: NewEvent) -> tuple[int, bool] | None:
            nonlocal started
            done = await self.host.start_run(self.live, event, accepted)
            started = done is not None and done[1]
            return done

        seq, _ = await accept(
            self.host.store, self.live, content, output=output, start=start, **options
        )
        accepted(seq)
        if not started:
            self.host.wake(self.live)
        return seq

    async def post_at(self, to: int, content: Content, **options: Unpack[SendOptions]) -> int:
        """Rewind the thread to event `to` and write a message, in one append, and return the number
        of the message. Raises `SessionBusy` while a run or a pending item is open."""
        self.check()
        check_options(options)
        if (ref := options.get("model")) is not None:
            self.config.models.check(ref)
        live = self.live
        event = await message_event(self.host.store, live, content, **options)
        seq = await rewind(
            self.host.store,
            live.key,
            to,
            actor=options.get("actor"),
            state_at=lambda row: live.reach(row.head),
            then=[event],
        )
        await live.reach(seq + 1)
        self.host.wake(live)
        return seq + 1

    async def abort(
        self,
        reason: str | None = None,
        *,
        actor: str | None = None,
        run: str | None = None,
        key: str | None = None,
    ) -> None:
        """Request that the active run ends; with `run`, only if the active run has this id."""
        self.check()
        active = self.live.state.active
        if active is None or run not in (None, active.id):
            return
        event = NewEvent.of(
            "abort.requested",
            ev.AbortRequested(run=active.id, reason=reason),
            id=new_id() if key is None else ids.abort_id(key),
            actor=actor,
        )
        await self.append(event)


class SessionPart:
    """Base class for attributes of a session, such as `session.queue`. It stores nothing: it reads
    the state of the log, and its methods append events."""

    def __init__(self, core: SessionCore[Any]) -> None:
        self._core = core

    @property
    def _state(self) -> State:
        return self._core.live.state

    async def _append(self, payload: Payload, live: Live | None = None) -> int:
        event = NewEvent.of(KIND_OF[type(payload)], payload)
        return await self._core.append(event, live=live)
