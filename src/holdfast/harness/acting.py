"""What tools and hooks are given: the session, to read and to act on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .. import events as ev
from ..codec import LIMITS, check_name
from ..errors import InvalidValue, QueueFull, ToolError
from ..events import NewEvent, new_id
from ..state import ENTRIES, RESERVED
from .agent import Mode, called
from .allowance import Allowance
from .contexts import Reading
from .delegation import begin, stop
from .driving import Driving
from .inputs import MOST
from .output import convert
from .sandbox.port import Place, Ran, Reason
from .subagents import told
from .tasks import summary
from .tools import Answer, BadArguments, Tool, ToolResult
from .toolvalues import as_result
from .userstate import Edit, change, setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEPTH = 9  # of calls within calls
CHAIN = 20  # runs that start each other, one after the other


class Acting(Reading):
    """A `ToolContext`. `key` is the same whenever and wherever this call is carried out."""

    def __init__(self, driving: Driving, call: str, name: str, depth: int = 0) -> None:
        super().__init__(driving)
        self.call, self.name, self.key = call, name, call
        self.sandbox = LazyPlace(driving)
        self.log = driving.log.bind(call=call, tool=name)
        self.aborted: asyncio.Event = driving.aborted
        self.answer: Answer | None = None
        self.time = Allowance()
        self._depth, self._nested = depth, 0

    async def progress(self, data: Any) -> None:
        """Tell those who listen how far the call is; it is written to the log."""
        payload = ev.ProgressReported(call=self.call, data=data)
        await self._driving.write(self._driving.event("progress.reported", payload))

    async def invoke(self, tool: Tool | str, /, **arguments: Any) -> ToolResult:
        """Call another tool of this mode; it is asked about like any other."""
        self._nested += 1
        invoke, id = self._driving.invoke, f"{self.call}.{self._nested}"
        result: ToolResult = await invoke(self._driving, self, tool, arguments, id)
        return result

    @property
    def depth(self) -> int:
        return self._depth

    async def update_state(self, function: Edit | None = None, /, **changes: Any) -> Any:
        """Set entries of the user state; or let a function change a copy of the latest, and
        return what it returns. It is called again where another writer was first."""
        return await self._change_state(function or setting(changes))

    async def set_state(self, **entries: Any) -> None:
        """Replace the user state."""
        await self._change_state(setting(entries, all=True))

    async def _change_state(self, edit: Edit) -> Any:
        driving, agent = self._driving, self.agent
        shared = driving.shared
        return await change(
            shared.log,
            lambda: shared.state,
            lambda events, head: driving.write_shared(*events, expected=head),
            edit,
            kind=agent.state_type,
            custom=lambda kind, payload: custom(agent.events, kind, payload),
        )

    async def emit(self, kind: str, payload: Any = None) -> None:
        """Write an event of the program's own."""
        checked = custom(self.agent.events, kind, payload)
        await self._driving.write(self._driving.event(kind, checked, cause=self.call))

    async def send(self, text: str, how: Literal["queue", "steer"] = "queue") -> None:
        """Queue a message, as if a person had sent it. Runs that start each other so have an
        end; a message that steers a run ends with it."""
        await self._driving.write(self._message(text, how))

    def _message(self, text: str, how: Literal["queue", "steer"]) -> NewEvent:
        run, waiting = self._driving.state.run, len(self._driving.state.queue)
        if waiting >= MOST:
            raise QueueFull(session=self.session.session, limit=MOST)
        if run is not None and run.chain >= CHAIN:
            raise ToolError(problem=f"runs start each other {CHAIN} times at most")
        payload = ev.MessageReceived(text=text, how=how, metadata={"by": self.name})
        by = run.id if run is not None else None
        return NewEvent.of("message.received", payload, actor=self.name, run=by)

    async def switch_mode(self, mode: str, text: str | None = None) -> None:
        """Work in another mode from the next step on; `text` joins the run with it."""
        driving, agent = self._driving, self.agent
        left: Mode | None = None
        while True:
            before = driving.config.mode(driving.state)
            if changed := agent.follows(before, mode):
                if left is not before:
                    await called(before.on_exit, self, mode)
                    left = before
                    continue  # which may have changed it
                change = ev.ModeChanged(mode=mode, left=before.name)
                events = [driving.event("mode.changed", change)]
            else:
                events = []
            if text is not None:
                events.append(self._message(text, "steer"))
            expected = driving.state.head if changed else None
            if not events or await driving.write(*events, expected=expected):
                break
        if changed:
            await called(agent.mode(mode).on_enter, self, text)

    @property
    def tasks(self) -> tuple[ev.Task, ...]:
        """The tasks of this thread."""
        return self._driving.state.tasks

    async def set_tasks(self, tasks: list[ev.Task]) -> ToolResult:
        """Replace them; the list as the model is told of it."""
        if (size := len(msgspec.json.encode(tasks))) > LIMITS.map_bytes:
            raise ToolError(problem=f"the tasks have {size} bytes: keep to {LIMITS.map_bytes}")
        payload = ev.TaskChanged(tasks=tasks)
        await self._driving.write(self._driving.event("task.changed", payload))
        return summary(tasks)

    async def delegate(
        self, name: str, task: str, *, model: str | None = None, forked: bool | None = None
    ) -> ToolResult:
        """Hand a task to a sub-agent, and wait; what came of it, once it has ended."""
        if self.answer is not None:
            if self.answer.outcome != "answered":
                await stop(self._driving, [self.call])
            return told(self.answer)
        if self._depth:
            raise ToolError(problem="a call within a call cannot hand tasks on")
        sub = next((item for item in self.agent.subagents if item.name == name), None)
        if sub is None:
            raise ToolError(problem=f"there is no sub-agent {name!r}")
        raise await begin(self._driving, self.call, sub, task, model=model, forked=forked)

    @property
    def mode_after_plan(self) -> str | None:
        """The mode to work in once a plan is approved, if this one leads to one."""
        return self.agent.mode(self.mode).after_plan

    async def add_context(
        self,
        content: str,
        *,
        id: str | None = None,
        role: Literal["system", "message"] = "system",
        scope: Literal["step", "run", "session"] = "run",
        consume: Literal["once", "while_active"] = "once",
        on: str | None = None,
        replace: bool = False,
    ) -> str:
        """Show the model something from its next call on, or from the next event of kind `on`."""
        id = id or new_id()
        check_name("id", id, limit=128)
        if len(self._driving.state.contexts) >= ENTRIES and id not in self._driving.state.contexts:
            problem = f"{ENTRIES} contexts were added already"
            raise InvalidValue(field="id", problem=problem, remedy="remove some first")
        if id in self._driving.state.contexts and not replace:
            raise InvalidValue(
                field="id", problem=f"{id!r} is there already", remedy="pass replace=True"
            )
        payload = ev.ContextAdded(
            id=id, content=content, role=role, scope=scope, consume=consume, on=on
        )
        await self._driving.write(self._driving.event("context.added", payload))
        return id

    async def remove_context(self, *ids: str) -> int:
        """Take away what was added, all of it when nothing is named; how many there were."""
        known = self._driving.state.contexts
        gone = [id for id in (ids or known) if id in known]
        if gone:
            payload = ev.ContextRemoved(ids=gone)
            await self._driving.write(self._driving.event("context.removed", payload))
        return len(gone)


class LazyPlace:
    """The session's sandbox, opened when it is first used."""

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
        """Nothing: the harness closes it."""

    async def _place(self) -> Place:
        return await self._driving.config.place(self._driving.live.key)


def custom(known: Mapping[str, Any], kind: str, payload: Any) -> Any:
    """The payload of an event of the program's own, checked by its declared type."""
    word, dot, _ = kind.partition(".")
    if not dot or word in RESERVED:
        raise InvalidValue(
            field="kind", problem=f"{kind!r} is ours or has no dot", remedy="use words of your own"
        )
    if (declared := known.get(kind)) is None:
        return payload
    plain = payload if isinstance(payload, str) else as_result(payload).data
    try:
        convert(plain, declared)
    except BadArguments as error:
        wrong = "; ".join(f"{issue.path} {issue.problem}" for issue in error.issues)
        raise InvalidValue(
            field=kind, problem=wrong, remedy="give what the agent declared"
        ) from error
    return plain
