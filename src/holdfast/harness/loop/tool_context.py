"""The context object that tools and hooks receive, to read and change the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import ToolError
from ...log import events as ev
from ...log.codec import LIMITS
from ..agents.subagents import delegation_result
from ..sandbox.port import Place, Ran, Reason
from ..tools import CallAnswer, Tool, ToolResult
from ..tools.allowance import Allowance
from ..tools.tasks import summary
from ..tools.values import Park
from .delegation import begin, stop
from .driver import Driving
from .effects import Effects
from .large_results import stored_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEPTH = 9  # levels of nested calls


class Acting(Effects):
    """The `ToolContext` of a call, and the context of a hook. `key` identifies the call: it is the
    same every time the call is carried out, in any process."""

    def __init__(self, driving: Driving, call: str, name: str, depth: int = 0) -> None:
        super().__init__(driving, call, name)
        self.key = call
        self.sandbox = LazyPlace(driving)
        self.log = driving.log.bind(call=call, tool=name)
        self.aborted: asyncio.Event = driving.aborted
        self.answer: CallAnswer | None = None
        self.time = Allowance()
        self._depth, self._nested = depth, 0
        self.open = False  # whether this is a tool call in the log, which gets an outcome
        self.returned = False  # the tool returned in time; its background work may still write

    def _acts(self) -> Driving:
        """Return the driver to write with. Raises an error if the call was stopped but ignored the
        cancellation: its outcome is already in the log."""
        if self.open and not self.returned and self.call not in self._driving.state.calls:
            raise ToolError(problem="this call has ended, so it can no longer change the session")
        return self._driving

    async def progress(self, data: Any) -> None:
        """Report the progress of the call to subscribers. The report is written to the log."""
        payload = ev.ProgressReported(call=self.call, data=data)
        await self._acts().write(self._driving.event("progress.reported", payload))

    async def invoke(self, tool: Tool | str, /, **arguments: Any) -> ToolResult:
        """Call another tool of the current mode, and return its result. Approval rules apply as
        usual."""
        self._nested += 1
        invoke, id = self._acts().invoke, f"{self.call}.{self._nested}"
        result: ToolResult = await invoke(self._driving, self, tool, arguments, id)
        return result

    async def stored_text(self, call: str) -> str | None:
        """Return the full text of a call's result that was stored; None if there is none in the
        conversation."""
        stored = self._driving.live.history.stored().get(call)
        return None if stored is None else await stored_text(self._driving, stored)

    @property
    def depth(self) -> int:
        return self._depth

    async def delegate(
        self,
        name: str,
        task: str,
        *,
        model: str | None = None,
        forked: bool | None = None,
        detached: bool = False,
    ) -> ToolResult:
        """Delegate a task to a sub-agent. The call waits until the sub-agent has finished, and then
        returns its result. If it is `detached`, the call returns at once."""
        if self.answer is not None:
            if self.answer.outcome != "answered":
                await stop(self._driving, [self.call])
            return delegation_result(self.answer)
        if self._depth:
            raise ToolError(problem="a nested call cannot delegate tasks")
        sub = next((item for item in self.agent.subagents if item.name == name), None)
        if sub is None:
            raise ToolError(problem=f"sub-agent {name!r} does not exist")
        how: dict[str, Any] = {"model": model, "forked": forked, "detached": detached}
        begun = await begin(self._acts(), self.call, sub, task, **how)
        if isinstance(begun, Park):
            raise begun
        return begun

    @property
    def tasks(self) -> tuple[ev.Task, ...]:
        """The task list of this thread."""
        return self._driving.state.tasks

    async def set_tasks(self, tasks: list[ev.Task]) -> ToolResult:
        """Replace the list of tasks. Returns the new list as text for the model."""
        if (size := len(msgspec.json.encode(tasks))) > LIMITS.map_bytes:
            raise ToolError(problem=f"the tasks have {size} bytes; the limit is {LIMITS.map_bytes}")
        payload = ev.TaskChanged(tasks=tasks)
        await self._acts().write(self._driving.event("task.changed", payload))
        return summary(tasks)

    @property
    def mode_after_plan(self) -> str | None:
        """The mode to switch to once a plan is approved, or None if the current mode does not
        define one."""
        return self.agent.mode(self.mode).after_plan


class LazyPlace:
    """The session's sandbox. It is opened when it is first used."""

    def __init__(self, driving: Driving) -> None:
        self._driving = driving

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the command's
    ) -> Ran:
        place = await self._place()
        return await place.run(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout)

    async def read(self, path: str, *, limit: int | None = None) -> bytes:
        return await (await self._place()).read(path, limit=limit)

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        await (await self._place()).write(path, data, append=append)

    async def list(self, pattern: str = "**/*", *, limit: int) -> list[str]:
        return await (await self._place()).list(pattern, limit=limit)

    async def close(self, reason: Reason) -> None:
        """Does nothing, because the harness closes the sandbox."""

    async def _place(self) -> Place:
        driving = self._driving
        return await driving.runtime.place(driving.live.key, driving.config.agent.key)
