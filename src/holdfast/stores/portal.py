"""`PortalStore`, with which several event loops and threads can use one store: it forwards calls to
the event loop that owns the store."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
)
from contextlib import aclosing, suppress
from functools import partial, wraps
from itertools import islice
from types import coroutine
from typing import Any

from ..cancellation import ended
from ..errors import StoreError, StoreUnavailable
from ..log.catalog import Parent
from ..log.events import Event, Key
from ..portal import Portal, running_loop
from .checked import CHECKS, STREAMS
from .paging import PAGE_EVENTS, batches
from .port import Store, StoreInfo
from .wrapped import WrappedStore

BATCH_BYTES = 1 << 20  # of a stream, transferred to another loop in one batch

# Methods that are cancelled with their caller. All other methods write: once handed over to the
# owner's loop, they run to completion.
READS = """
seqs locate link row rows find pending claims runnable due_tenants holder search drafts
get_blob blobs load_snapshot
"""
_READS = frozenset(READS.split())


class PortalStore(WrappedStore):
    """A store for several event loops and threads of a process. It wraps a store that belongs to a
    single loop: the loop of `portal`, by default the running one.

    Calls on that loop go to the inner store directly. Calls from other asyncio loops and from trio
    are forwarded to it, with the caller's context variables, and return the same values or raise
    the same errors. `holdfast.sync.Store` makes the same calls without `await`. The items of
    `read`, `follow` and `verify` are transferred in batches of at most a page. Closing one of these
    streams closes the stream of the inner store.

    When a caller is cancelled, its reads are cancelled too, but a write that was handed over runs
    to completion; event ids make a retry safe. Close the store before its loop ends: later calls
    raise `StoreError`. Calls in a process that was forked from this one raise `StoreError` too.
    """

    _home: asyncio.AbstractEventLoop | object  # the loop on which `inner` may be called

    def __init__(self, inner: Store, portal: Portal | None = None) -> None:
        super().__init__(inner)
        self._portal = portal or Portal()
        self._home = self._portal.loop

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def portal(self) -> Portal:
        """The portal to the loop that owns the store. Code that makes many calls is faster when it
        runs there: `await store.portal.run(function)`."""
        return self._portal

    def _pass_on(self, method: str, *args: Any, **options: Any) -> Any:
        """Return the stream of `read`, `follow` or `verify`. On the owner's loop, it is the stream
        of the inner store itself."""
        if running_loop() is self._home:
            return getattr(self.inner, method)(*args, **options)
        CHECKS[method](*args, **options)
        return _read(self.portal, StreamBatches(partial(self._open, method, *args, **options)))

    async def _hop(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "restore":
            return await self._restore(*args, **options)
        run = self.portal.run if method in _READS else self.portal.run_to_end
        return await run(self._call, method, *args, **options)

    def info(self) -> StoreInfo:
        return self.inner.info()

    async def _store(self) -> Store:
        """Return the opened inner store. Called on the owner's loop."""
        return self.inner

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        return await getattr(await self._store(), method)(*args, **options)

    async def _open(self, method: str, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        stream: AsyncGenerator[Any, None] = getattr(await self._store(), method)(*args, **options)
        return stream

    async def _restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        """Restore a log from events that are read on the caller's loop."""
        restore = _Restore(lambda given: self._call("restore", key, given, parent=parent))
        try:
            async with aclosing(batches(events)) as some:
                async for batch in some:
                    if not await self.portal.run(restore.put, batch):
                        break
            await self.portal.run(restore.end)
        except BaseException:
            await self.portal.run_to_end(restore.cancel)
            raise

    # The same methods for threads, without `await`

    def wait(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method from a thread, block until the call has ended, and return its result.
        `read`, `follow` and `verify` return a plain generator; `restore` takes a plain iterable."""
        if method == "info":
            return self.info()
        if method in STREAMS:
            CHECKS[method](*args, **options)
            return _iterate(
                self.portal, StreamBatches(partial(self._open, method, *args, **options))
            )
        if method == "restore":
            return self._wait_restored(*args, **options)
        return self.portal.wait(getattr(self, method), *args, **options)

    def _wait_restored(
        self, key: Key, events: Iterable[Event], *, parent: Parent | None = None
    ) -> None:
        restore = _Restore(lambda given: self._call("restore", key, given, parent=parent))
        rest = iter(events)
        try:
            while batch := list(islice(rest, PAGE_EVENTS)):
                if not self.portal.wait(restore.put, batch):
                    break
            self.portal.wait(restore.end)
        except BaseException:
            self.portal.wait(restore.cancel)
            raise


def _method(name: str) -> Callable[..., Any]:
    """Return an async method that forwards to the same method of the inner store. On the owner's
    loop it calls that method directly."""

    @wraps(getattr(Store, name))
    async def call(self: PortalStore, *args: Any, **options: Any) -> Any:
        if running_loop() is self._home:
            return await getattr(self.inner, name)(*args, **options)
        return await self._hop(name, *args, **options)

    return call


for _name in {name for name in vars(Store) if name[0] != "_"} - STREAMS - {"info"}:
    setattr(PortalStore, _name, _method(_name))


# Streams


class StreamBatches:
    """Reads an async generator in batches. A batch has the items that the generator yields without
    waiting, up to a page or a megabyte. The generator does not advance between two batches. All
    methods run on the generator's loop, where one task opens and runs the generator."""

    def __init__(self, open: Callable[[], Awaitable[AsyncGenerator[Any, None]]]) -> None:
        self._open = open
        self._items: list[Any] = []
        self._bytes = 0
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._taker: asyncio.Future[list[Any]] | None = None
        self._wanted = asyncio.Event()
        self.ended = False

    async def take(self) -> list[Any]:
        """Wait for the next batch and return it; an empty batch marks the end. An error of the
        generator is raised after the items before it were returned."""
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        if not self._task.done():
            self._taker = asyncio.get_running_loop().create_future()
            self._wanted.set()
            if items := await self._taker:
                return items
        self.ended = True
        if self._error is not None:
            raise self._error
        return []

    async def close(self) -> None:
        """Cancel the task that runs the generator, which closes the generator."""
        if self._task is not None:
            await ended(self._task)

    async def _read(self) -> None:
        try:
            async with aclosing(await self._open()) as source:
                await self._read_all(source)
        except Exception as error:
            self._error = error
        except BaseException:
            self._error = StoreUnavailable(problem="the stream was closed")
            raise
        finally:
            self._deliver()

    async def _read_all(self, source: AsyncGenerator[Any, None]) -> None:
        while True:
            step = anext(source).__await__()
            try:
                waits_for = step.send(None)
            except StopIteration as found:
                item = found.value
            except StopAsyncIteration:
                return
            else:
                try:
                    item = await _rest_of(step, waits_for, self._pause)
                except StopAsyncIteration:
                    return
            self._items.append(item)
            if isinstance(item, Event):
                self._bytes += len(item.data)
            if len(self._items) >= PAGE_EVENTS or self._bytes >= BATCH_BYTES:
                await self._pause()

    async def _pause(self) -> None:
        """If there are items, deliver them and wait until the next batch is requested."""
        if self._items:
            self._wanted.clear()
            self._deliver()
            await self._wanted.wait()

    def _deliver(self) -> None:
        items, self._items, self._bytes = self._items, [], 0
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(items)


@coroutine
def _rest_of(
    step: Generator[Any, Any, Any], waits_for: Any, pause: Callable[[], Coroutine[Any, Any, None]]
) -> Generator[Any, Any, Any]:
    """Finish a generator step that is already suspended on `waits_for`. `pause` is awaited first,
    and the step resumes only after it ends; if `pause` is cancelled, the cancellation is thrown
    into the step."""
    try:
        try:
            yield from pause().__await__()
        except BaseException as error:  # cancelled
            waits_for = step.throw(error)
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                waits_for = step.throw(error)
            else:
                waits_for = step.send(sent)
    except StopIteration as done:
        return done.value


async def _read(portal: Portal, stream: StreamBatches) -> AsyncGenerator[Any, None]:
    try:
        while items := await portal.run(stream.take):
            for item in items:
                yield item
    finally:
        if not stream.ended:
            with suppress(StoreError):
                await portal.run_to_end(stream.close)


def _iterate(portal: Portal, stream: StreamBatches) -> Generator[Any, None, None]:
    try:
        while items := portal.wait(stream.take):
            yield from items
    finally:
        if not stream.ended:
            with suppress(StoreError):
                portal.wait(stream.close)


class _Restore:
    """A restore that receives its events in batches from another event loop or thread. All methods
    run on the store's loop; `put` waits until the previous batch is taken."""

    def __init__(self, begin: Callable[[AsyncIterable[Event]], Any]) -> None:
        self._begin = begin
        self._given: asyncio.Queue[list[Event] | None] = asyncio.Queue(1)
        self._restoring: asyncio.Task[None] | None = None

    async def put(self, batch: list[Event] | None) -> bool:
        """Pass the next events to the restore; None marks the end. Returns False if the restore has
        already ended."""
        if self._restoring is None:
            self._restoring = asyncio.create_task(self._begin(self._events()))
        putting = asyncio.create_task(self._given.put(batch))
        try:
            await asyncio.wait([putting, self._restoring], return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
        return not self._restoring.done()

    async def end(self) -> None:
        """Mark the end of the events and wait for the restore; raise its error if it failed."""
        await self.put(None)
        assert self._restoring is not None
        await self._restoring

    async def cancel(self) -> None:
        if self._restoring is not None:
            await ended(self._restoring)

    async def _events(self) -> AsyncGenerator[Event, None]:
        while (batch := await self._given.get()) is not None:
            for event in batch:
                yield event
