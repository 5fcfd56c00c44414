"""Handles termination signals, in addition to the program's own handlers. A server waits for open
requests before it shuts down, so subscriptions must end first."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_shutdown(
    leave: Callable[[], None], signals: Iterable[signal.Signals] = ENDS
) -> Iterator[None]:
    """Context manager that handles termination signals: it calls `leave` on the event loop, then
    the previous handler. Does nothing outside the main thread, or for signals without a handler."""
    if not _in_main():
        yield
        return
    loop, before = asyncio.get_running_loop(), dict[signal.Signals, Any]()

    def heard(number: int, frame: FrameType | None) -> None:
        if (
            not loop.is_closed()
        ):  # a later handler may still call this one after the loop has closed
            loop.call_soon_threadsafe(leave)
        before[signal.Signals(number)](number, frame)

    for one in signals:
        known = signal.getsignal(one)
        if _is_handled(known):
            before[one] = known
            signal.signal(one, heard)
    try:
        yield
    finally:
        for one, known in before.items():
            if signal.getsignal(one) is heard and _in_main():
                signal.signal(one, known)


def ending() -> tuple[signal.Signals, ...]:
    """Return the termination signals that this process handles: SIGTERM, and SIGINT if it has the
    same handler. A program may use Ctrl-C for something else."""
    term, interrupt = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    if not _is_handled(term):
        return ()
    return ENDS if interrupt == term else (signal.SIGTERM,)


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_handled(handler: Any) -> bool:
    return callable(handler) and handler is not signal.default_int_handler
