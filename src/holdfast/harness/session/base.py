"""What a session and its views stand on: its logs, live, and the way to append to them."""

from __future__ import annotations

import time
from typing import Any, Protocol, TypeVar, Unpack

from ...errors import HarnessClosed, PhaseError
from ...log.events import Key, NewEvent
from ...log.state import State
from ...stores.event_loop import OwnLoop
from ...stores.port import Store
from ...values.options import Content, SendOptions, check_options
from ..agents.config import Config
from ..live.inputs import accept
from ..live.log import Hearer, Live
from ..loop.typed_output import output_tool, wish


class Host(Protocol):
    """What a session asks of its harness."""

    @property
    def config(self) -> Config: ...

    @property
    def store(self) -> Store: ...

    def wake(self, live: Live) -> None: ...

    async def close(self, id: str) -> bool: ...

    def subscribed(self, hearer: Hearer) -> None: ...


class Ground:
    """One thread of a session (`live`), and what all its threads share (`shared`)."""

    def __init__(self, host: Host, live: Live, shared: Live) -> None:
        self.host, self.live, self.shared = host, live, shared
        self.closed = False
        self._own = OwnLoop(f"session {live.key.session!r}")
        self.used = time.monotonic()  # when somebody last asked something of it

    @property
    def key(self) -> Key:
        return self.live.key

    @property
    def config(self) -> Config:
        return self.host.config.of(self.key, self.live.state)

    def check(self) -> None:
        """Refuse to go on with what is closed or gone."""
        self.check_open()
        if self.live.failure is not None:
            raise self.live.failure
        if self.shared.state.expired:
            key = self.key
            raise PhaseError(
                tenant=key.tenant, session=key.session, phase="expired", move="going on"
            )

    async def catch_up(self, live: Live | None = None) -> State:
        """The state with all that others have written by now."""
        self.check()
        live = live or self.live
        row = await self.host.store.row(live.key)
        return live.state if row is None else await live.reach(row.head)

    async def append(
        self, *events: NewEvent, live: Live | None = None, expected: int | None = None
    ) -> int:
        """Append, wait until it is folded here, and see that somebody looks at it; the number
        of the last event."""
        self.check()
        live = live or self.live
        done = await self.host.store.append(live.key, events, expected=expected, log=live.log)
        await live.reach(done.head)
        self.host.wake(self.live)
        return done.seqs[-1]

    def check_open(self) -> None:
        """Refuse to read on behalf of a session that is closed."""
        self.used = time.monotonic()
        self._own.check()
        if self.closed:
            raise HarnessClosed(what=f"session {self.key.session!r}")

    async def post(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> int:
        """Send a message and do not wait: it is accepted when this returns its number."""
        self.check()
        check_options(options)
        if (ref := options.get("model")) is not None:
            self.config.models.check(ref)
        output = None if output_type is None else wish(output_type)
        seq, _ = await accept(self.host.store, self.live, content, output=output, **options)
        if output_type is not None:
            self.config.outputs[self.live.log, seq] = output_tool(output_type)
        self.host.wake(self.live)
        return seq


S_co = TypeVar("S_co", bound=Ground, covariant=True)


class Opener(Host, Protocol[S_co]):
    """A host that opens threads and deletes them."""

    async def open(self, id: str, thread: str = "main") -> S_co: ...

    async def delete_thread(self, id: str, thread: str) -> Any: ...
