"""Hearing that the process is to end, beside whoever runs it: a server waits for its connections
before it ends the app, and streams would keep it waiting."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told(leave: Callable[[], None]) -> Iterator[None]:
    """Call `leave` on the loop when the process is told to end, and then whoever was told before.
    Nothing where nobody listens to signals, or in another thread than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), dict[signal.Signals, Any]()

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(leave)
        before[signal.Signals(number)](number, frame)

    for one in ENDS:
        known = signal.getsignal(one)
        if callable(known) and known is not signal.default_int_handler:
            before[one] = known
            signal.signal(one, heard)
    try:
        yield
    finally:
        for one, known in before.items():
            if signal.getsignal(one) is heard:
                signal.signal(one, known)
