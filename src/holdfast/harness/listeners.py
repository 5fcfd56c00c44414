"""The listeners of a harness: functions of the application that it calls for events of its
sessions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from ..errors import InvalidValue
from .telemetry.logs import BoundLog

Listener: TypeAlias = Callable[[str, str, Any], Any]


class Listeners:
    """Holds the listeners: plain functions that are called with an event, a session id and a value.
    If a listener raises an exception, the exception is logged, and the other listeners are still
    called."""

    def __init__(self, log: BoundLog) -> None:
        self._log = log
        self._listeners: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener. Returns a function that removes it."""
        function: Any = listener
        waits = inspect.iscoroutinefunction
        if not callable(function) or waits(function) or waits(type(function).__call__):
            problem = "is async" if callable(function) else f"is {type(function).__name__}"
            remedy = "pass a plain function; it may start a task"
            raise InvalidValue(field="listener", problem=problem, remedy=remedy)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def notify(self, event: str, id: str | None, value: Any = None) -> None:
        """Call all listeners with an event, the id of a session and a value."""
        for listener in [*self._listeners]:
            try:
                listener(event, id or "", value)
            except Exception as error:
                self._log.error("listener_failed", category="session", error=error)
