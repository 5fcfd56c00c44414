"""A context for a tool that no harness calls: it keeps what the tool does with it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from holdfast.events import Key, key
from holdfast.harness.tools import Tool, ToolResult


class Context:
    """Remembers progress, events and state; a nested call goes straight to its tool."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.session: Key = key("s1")
        self.run: str | None = "run-1"
        self.call = "call-1"
        self.name = "tool"
        self.key = "key-1"
        self.resources: Any = None
        self.sandbox: Any = None
        self.log: logging.LoggerAdapter[Any] = logging.LoggerAdapter(logging.getLogger("test"))
        self.aborted = asyncio.Event()
        self.answer: Any = None
        self.told: list[Any] = []
        self.events: list[tuple[str, Any]] = []
        self._state = dict(state or {})

    @property
    def state(self) -> dict[str, Any]:
        return dict(self._state)

    async def progress(self, data: Any) -> None:
        self.told.append(data)

    async def invoke(self, tool: Tool | str, /, **arguments: Any) -> ToolResult:
        assert isinstance(tool, Tool)
        return await tool.call(tool.parse(arguments), self)

    async def update_state(self, function: Any = None, /, **changes: Any) -> Any:
        await asyncio.sleep(0)  # as a store would let others go on
        self._state = {**self._state, **changes}
        return function(self._state) if function is not None else None

    async def emit(self, kind: str, payload: Any = None) -> None:
        self.events.append((kind, payload))
