"""Proxies that make async objects usable without `await`: they forward every call to an event loop
in a daemon thread. `holdfast.sync` and `holdfast.client.sync` use them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Self, TypeVar

from .cancellation import ended
from .errors import HarnessClosed, InvalidValue
from .portal import LoopThread

T = TypeVar("T")


class Remote:
    """A proxy for an object that lives on the loop. Attributes are read on the loop, methods are
    called there, and awaitables are awaited. If the object supports `async for`, the proxy supports
    `for`.

    See [without async](../sync.md).
    """

    __slots__ = ("_loop", "_target")

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{name!r} is not available in holdfast.sync: use the async harness"
            )
        return self._loop.local(self._loop.call(getattr, self._target, name))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._loop.local(self._loop.call(self._target, *arguments, **named))

    def __iter__(self) -> Iterator[Any]:
        return self._loop.iterate(self._target)

    def __len__(self) -> int:
        return int(self._loop.call(len, self._target))

    def __bool__(self) -> bool:
        return True  # even if the target is empty

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and other._target is self._target

    def __hash__(self) -> int:
        return id(self._target)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<{self._target!r} of holdfast.sync>"


class RemoteContext(Remote):
    """A proxy that works as a context manager and closes its object at the end of the `with`
    block."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Loop:
    """An event loop in its own thread, which starts on first use. `what` is the name of the object
    in the error that is raised after `close`."""

    def __init__(self, what: str = "the harness") -> None:
        self._what = what
        self._portal: LoopThread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call a function on the loop, await its result if necessary, and return it."""
        return self.wait(_settled(function, arguments, named))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. An interrupt (Ctrl-C) ends the wait,
        but the coroutine continues."""
        try:
            return self._begin(work).result()
        except CancelledError:  # another thread closed the loop
            raise HarnessClosed(what=self._what) from None

    def local(self, value: Any) -> Any:
        """Return a value for use in the caller's thread: objects with async methods, and methods,
        are replaced by proxies."""
        if isinstance(value, Remote) or inspect.isclass(value):
            return value
        if inspect.isroutine(value):
            return self._function(value)
        if inspect.isasyncgen(value):
            return self.iterate(value)
        return Remote(value, self) if _is_live(type(value)) else value  # type: ignore[arg-type]  # a class is hashable

    def iterate(self, source: Any) -> Generator[Any, None, None]:
        """Iterate over an async iterable from the caller's thread."""
        steps = _Steps(self.call(aiter, source))
        try:
            while True:
                found, item = self._begin(steps.next()).result()
                if not found:
                    return
                yield item
        finally:
            with contextlib.suppress(HarnessClosed):
                self.wait(steps.end())

    def close(self, last: Callable[[], Awaitable[None]]) -> bool:
        """Call `last` on the loop, cancel all running tasks, and join the thread. Returns False if
        the loop was already closed."""
        if self._closed:
            return False
        try:
            self.call(last)
        finally:
            with self._lock:
                self._closed = True
            if self._portal is not None:
                self._portal.stop()
        return True

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        loop = None
        try:
            loop = self._running()
            return asyncio.run_coroutine_threadsafe(work, loop)
        except BaseException as error:
            if loop is None or isinstance(error, Exception):
                work.close()
            raise  # after an interrupt, the loop may be running the coroutine already

    def _function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            given = [a._target if isinstance(a, Remote) else a for a in arguments]
            return self.local(self.call(function, *given, **named))

        return called

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._portal is not None and self._portal.is_own_thread():
            raise InvalidValue(
                field="holdfast.sync",
                problem="was called from its own event loop, which would deadlock",
                remedy="use the context of the tool or hook, or call it from another thread",
            )
        with self._lock:
            if self._closed:
                raise HarnessClosed(what=self._what)
            if self._portal is None:
                self._portal = LoopThread("holdfast.sync")
            self._portal.start()
            return self._portal.loop


async def _settled(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    value = function(*arguments, **named)
    return await value if inspect.isawaitable(value) else value


class _Steps:
    """Reads an async iterator step by step. It records the task of the current step, so that the
    step can be cancelled even if an interrupt arrives before the caller has its future."""

    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> tuple[bool, Any]:
        """Return (True, the next item), or (False, None) at the end."""
        self._step = asyncio.current_task()
        try:
            return True, await anext(self._items)
        except StopAsyncIteration:  # a coroutine cannot raise it
            return False, None

    async def end(self) -> None:
        """Cancel the current step, and close the iterator."""
        if self._step is not None:
            await ended(self._step)
        if (close := getattr(self._items, "aclose", None)) is not None:
            await close()


@functools.lru_cache(maxsize=256)
def _is_live(kind: type[Any]) -> bool:
    """Return whether objects of this type are used with `await` or `async for`, so that they need a
    proxy."""
    members = [
        getattr(kind, name, None) for name in dir(kind) if name == "__aiter__" or name[0] != "_"
    ]
    return hasattr(kind, "__aiter__") or any(
        inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        for member in members
    )
