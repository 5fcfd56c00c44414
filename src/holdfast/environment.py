"""The environment of a program: its clock, its source of randomness, its name, and its threads.

Holdfast uses these only through `current()`. A test replaces them with `use`, and the simulator
gives each simulated process its own environment.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random


class Environment:
    """The environment of this process. A test or simulator overrides its methods."""

    def __init__(self, random: Random | None = None) -> None:
        # Our own generator, so that ids do not repeat in a program that seeds `random`.
        self.random = random or Random()  # noqa: S311 - ids must be unique, not secret

    def time_ns(self) -> int:
        """Return the time in ns since 1970, UTC."""
        return time.time_ns()

    def token_bytes(self, count: int) -> bytes:
        """Return cryptographically secure random bytes."""
        return os.urandom(count)

    def process_name(self) -> str:
        """Return a name for this process that operators recognise: host name and process id."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Run `work` in a daemon thread, which does not keep the program from exiting."""
        threading.Thread(target=work, name=name, daemon=True).start()

    def new_id(self) -> str:
        """Return a UUIDv7: a unique id that sorts by time, so that new ids are added at the end of
        an index."""
        ms, rest = divmod(self.time_ns(), 1_000_000)
        fraction = (rest << 12) // 1_000_000
        number = ms << 80 | 7 << 76 | fraction << 64 | 1 << 63 | self.random.getrandbits(62)
        text = number.to_bytes(16, "big").hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_real = Environment()
_current: ContextVar[Environment] = ContextVar("holdfast_environment", default=_real)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_real.random.seed)

current = _current.get


@contextmanager
def use(environment: Environment) -> Iterator[None]:
    """Context manager that replaces the environment in the current context, and in tasks that are
    created in it."""
    token = _current.set(environment)
    try:
        yield
    finally:
        _current.reset(token)


def new_id() -> str:
    """Return a new id: a UUIDv7.

    See [the log](../the-log.md#appending).
    """
    return current().new_id()


def wall_clock() -> int:
    """Return the time in ms since 1970, UTC.

    See [the log](../the-log.md#appending).
    """
    return current().time_ns() // 1_000_000
