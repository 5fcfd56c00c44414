"""Hearing that the process is to end, beside whoever runs it: a server waits for its requests
before it ends the app, and what reads on and on would keep it waiting."""

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
    """Call `leave` on the loop when the process is told to end, and then whoever was told before.
    Nothing where nobody listens to signals, or in another thread than the main one."""
    if not _in_main():
        yield
        return
    loop, before = asyncio.get_running_loop(), dict[signal.Signals, Any]()

    def heard(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():  # others that were told may have kept this one in their chain
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
    """The signals by which this process is told to end, as far as somebody here listens to them:
    SIGTERM, and SIGINT where that means the same. A program may have another use for Ctrl-C."""
    term, interrupt = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    if not _is_handled(term):
        return ()
    return ENDS if interrupt == term else (signal.SIGTERM,)


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_handled(handler: Any) -> bool:
    return callable(handler) and handler is not signal.default_int_handler
