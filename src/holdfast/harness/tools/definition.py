"""The declaration of a tool: a function that a model may call, and how its arguments are parsed.

A `Tool` is immutable and keeps no state between calls. It declares whether a call needs approval,
how many calls may run concurrently, and how long a call may take.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, Unpack, cast, get_args, overload

import msgspec

from ...errors import InvalidValue
from ...log.codec import check_choice
from ...log.events import Key
from ...models.port import ToolSpec
from .jsonschema import SchemaForm
from .probes import DontKnow, Happened, NotHappened, ProbeAnswer
from .signature import is_async, signature_of
from .thread_runner import run_in_thread
from .values import (
    LEAST,
    ROOT,
    Approval,
    CallAnswer,
    Issue,
    Permission,
    Risk,
    ToolResult,
    as_result,
    bad_arguments,
)

Approve: TypeAlias = Approval | Callable[..., Approval | bool | Awaitable[Approval | bool]]
Probe: TypeAlias = Callable[..., ProbeAnswer | Awaitable[ProbeAnswer]]
MOST_APPROVALS = 20
PROBING = 30.0  # seconds that a probe may take by default
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HIDDEN = ("form", "function")  # fields that are not in the manifest


class ArgumentForm(Protocol):
    """How arguments are passed to a function: as parameters of its signature, or as one dict that
    matches a JSON Schema."""

    @property
    def schema(self) -> dict[str, Any]: ...

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]: ...

    def call(
        self, function: Callable[..., Any], arguments: dict[str, Any], context: Any
    ) -> Any: ...


class DictForm:
    """Calls a function with its arguments as one dict, and the context as second argument."""

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(arguments, context)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tool:
    """A function that a model may call. Created by `@tool` or `Tool.from_schema`.

    `approval` is `auto`, `ask`, `deny`, or a function of the parsed arguments; `approvals` is the
    required number of approvers. `repeat_safe` allows a call whose outcome is unknown to be
    repeated. Without it, `on_unknown` says whether to ask the user about the outcome (`ask`), or to
    report to the model that it is unknown (`tell`). Before any of this, `probe` is asked whether
    the call took effect, if the tool has one. `result_limit` is the number of characters of a
    result above which it is stored as a blob, in place of the harness's setting. Times are in
    seconds; `concurrency` limits the concurrent calls of this tool in one run.

    See [tools](../tools.md).
    """

    name: str
    description: str
    form: ArgumentForm = field(repr=False)
    function: Callable[..., Any] = field(repr=False)
    category: str | None = None
    risk: Risk | None = None
    permissions: tuple[Permission, ...] = ()
    approval: Approve = "auto"
    approvals: int = 1
    timeout: float | None = None
    repeat_safe: bool = False
    on_unknown: Literal["ask", "tell"] = "ask"
    concurrency: int | None = None
    expires: float | None = None
    version: str = "1"
    probe: Probe | None = None
    probe_timeout: float = PROBING
    result_limit: int | None = None
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "permissions", tuple(self.permissions))
        _check(self)
        known = msgspec.json.encode([self.name, self.version, self.schema], order="sorted")
        object.__setattr__(self, "fingerprint", hashlib.sha256(known).hexdigest()[:16])

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, version={self.version!r})"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function directly, as if it were not a tool."""
        return self.function(*arguments, **named)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.form.schema

    @property
    def spec(self) -> ToolSpec:
        """The description of the tool that is sent to the model."""
        return ToolSpec(self.name, self.description, self.schema)

    @property
    def manifest(self) -> dict[str, Any]:
        """Everything the tool declares, except the function, as plain values."""
        names = [one.name for one in dataclasses.fields(self) if one.name not in _HIDDEN]
        return {
            **{name: getattr(self, name) for name in names},
            "permissions": msgspec.to_builtins([*self.permissions]),
            "approval": "dynamic" if callable(self.approval) else self.approval,
            "probe": self.probe is not None,
            "schema": self.schema,
        }

    def replace(self, **changes: Any) -> Tool:
        """Return a copy of the tool with some of its declarations changed."""
        return dataclasses.replace(self, **changes)

    def parse(self, arguments: Any) -> dict[str, Any]:
        """Parse the arguments for the function. Raises `BadArguments` with every issue found."""
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            found = "text that is not JSON" if isinstance(arguments, str) else "not an object"
            raise bad_arguments(self.name, [Issue(ROOT, f"is {found}: pass an object")])
        values, issues = self.form.read(arguments)
        if issues:
            raise bad_arguments(self.name, issues)
        return values

    async def approval_of(self, arguments: dict[str, Any], context: ToolContext) -> Approval:
        """Return whether a call with these parsed arguments needs approval: `auto`, `ask` or
        `deny`. If `approval` is a function that returns a bool, True means ask and False means do
        not ask."""
        if not callable(self.approval):
            return self.approval
        said = self.approval(**_wanted(self.approval, {**arguments, "context": context}))
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, bool):
            return "ask" if said else "auto"
        check_choice(f"{self.name}.approval", said, get_args(Approval))
        return said

    async def probed(self, arguments: dict[str, Any], context: ToolContext) -> ProbeAnswer:
        """Ask the probe whether a call with these parsed arguments took effect; its exceptions
        propagate. A value that is no answer of a probe is an `InvalidValue`. A result is returned
        as a `ToolResult`."""
        probe = self.probe
        assert probe is not None, "the tool has no probe"
        given = _wanted(probe, {**arguments, "context": context})
        if is_async(probe):
            said: Any = await cast("Awaitable[ProbeAnswer]", probe(**given))
        else:
            said = await run_in_thread(functools.partial(probe, **given))
            if inspect.isawaitable(said):
                said = await said
        if isinstance(said, Happened):
            return Happened(as_result(said.result))
        if not isinstance(said, NotHappened | DontKnow):
            raise InvalidValue(
                field=f"{self.name}.probe",
                problem=f"returned a {type(said).__name__}",
                remedy="return Happened(result), NotHappened() or DontKnow()",
            )
        return said

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the function with parsed arguments; its exceptions propagate. A synchronous
        function runs in its own thread, with the context variables of the caller."""
        if is_async(self.function):
            value = await self.form.call(self.function, arguments, context)
        else:
            value = await run_in_thread(self.form.call, self.function, arguments, context)
            if inspect.isawaitable(value):
                value = await value
        return as_result(value)

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        schema: dict[str, Any],
        function: Callable[..., Any],
        **options: Any,
    ) -> Tool:
        """Create a tool whose arguments are validated by a JSON Schema. `function` takes them as
        one dict, and a `ToolContext` if it has a second parameter. Needs the extra `mcp`."""
        form = SchemaForm.of(schema, function, name)
        return cls(name=name, description=description, form=form, function=function, **options)


class ToolContext(Protocol):
    """The context that a tool's function receives in a parameter of this type, regardless of the
    parameter's name. The parameter is not part of the schema. `key` is the same across retries,
    resumes and workers: use it as the idempotency key of requests to other services.

    ```python
    @tool(repeat_safe=True)
    async def charge(cents: int, context: ToolContext) -> str:
        '''Charge the customer.'''
        return await context.resources.bank.charge(cents, idempotency_key=context.key)
    ```
    """

    session: Key
    run: str | None
    call: str
    name: str
    key: str
    resources: Any
    sandbox: Any
    log: Any
    aborted: asyncio.Event
    answer: CallAnswer | None

    @property
    def state(self) -> dict[str, Any]: ...

    async def progress(self, data: Any) -> None: ...

    async def invoke(self, tool: Tool | str, /, **arguments: Any) -> ToolResult: ...

    async def update_state(
        self, function: Callable[[dict[str, Any]], Any] | None = None, /, **changes: Any
    ) -> Any: ...

    async def emit(self, kind: str, payload: Any = None) -> None: ...


class ToolOptions(TypedDict, total=False):
    """The declarations of a tool in addition to its name and description; see `Tool`."""

    category: str | None
    risk: Risk | None
    permissions: Iterable[Permission]
    approval: Approve
    approvals: int
    timeout: float | None
    repeat_safe: bool
    on_unknown: Literal["ask", "tell"]
    concurrency: int | None
    expires: float | None
    version: str
    probe: Probe | None
    probe_timeout: float
    result_limit: int | None


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool: ...


@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Create a tool from a typed function. The model sees its name, its docstring and the types of
    its parameters. A parameter of type `ToolContext` receives the context of the call.

    Raises `InvalidValue` for a parameter that a model cannot pass: a parameter without a type or
    with a type that JSON Schema cannot describe, `*args`, `**kwargs`, or a positional-only
    parameter.

    ```python
    @tool(approval="ask")
    async def refund(order: str, cents: int) -> str:
        '''Refund an order.'''
        return f"refunded {cents} cents of order {order}"
    ```
    """

    def make(function: Callable[..., Any], names: Mapping[str, Any]) -> Tool:
        called: str = name or getattr(function, "__name__", None) or ""
        _check_name(called)
        form = signature_of(function, called, ToolContext, names)
        return Tool(
            name=called,
            description=form.description if description is None else description,
            form=form,
            function=function,
            **options,
        )

    if function is not None:
        return make(function, sys._getframe(1).f_locals)
    return lambda function: make(function, sys._getframe(1).f_locals)


def _check(tool: Tool) -> None:
    _check_name(tool.name)
    where = tool.name
    check_choice(f"{where}.on_unknown", tool.on_unknown, ("ask", "tell"))
    if tool.risk is not None:
        check_choice(f"{where}.risk", tool.risk, get_args(Risk))
    if not callable(tool.approval):
        check_choice(f"{where}.approval", tool.approval, get_args(Approval))
    else:
        _check_function(tool.approval, tool.schema, f"{where}.approval")
    if tool.probe is not None:
        _check_function(tool.probe, tool.schema, f"{where}.probe")
    if type(tool.approvals) is not int or not 1 <= tool.approvals <= MOST_APPROVALS:
        raise InvalidValue(
            field=f"{where}.approvals",
            problem=f"is {tool.approvals!r}",
            remedy=f"pass a whole number from 1 to {MOST_APPROVALS}",
            limit=MOST_APPROVALS,
        )
    for name in ("timeout", "expires", "concurrency", "probe_timeout"):
        value = getattr(tool, name)
        if value is not None and not value > 0:
            raise InvalidValue(
                field=f"{where}.{name}",
                problem=f"is {value}",
                remedy="pass a number above 0, or None",
            )

    limit = tool.result_limit
    if limit is not None and (type(limit) is not int or limit < LEAST):
        raise InvalidValue(
            field=f"{where}.result_limit",
            problem=f"is {limit!r}",
            remedy=f"pass a whole number of at least {LEAST}, or None",
        )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidValue(
            field="name",
            problem=f"is {name!r}",
            remedy="use 1 to 64 letters, digits, _ and -, which every model accepts",
        )


def _check_function(function: Any, schema: dict[str, Any], where: str) -> None:
    """Reject a function about calls that requires a parameter the tool does not have."""
    if not callable(function):
        raise InvalidValue(
            field=where, problem=f"is {function!r}", remedy="pass a function of the arguments"
        )
    known = {*schema.get("properties", {}), "context"}
    for parameter in inspect.signature(function).parameters.values():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if parameter.kind is parameter.POSITIONAL_ONLY or (needed and parameter.name not in known):
            raise InvalidValue(
                field=where,
                problem=f"has a parameter {parameter.name!r} that is not an argument of the tool",
                remedy="use the names of the tool's arguments, `context`, or **arguments",
            )


def _wanted(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {name: given[name] for name in given if name != "context" or name in parameters}
    return {name: value for name, value in given.items() if name in parameters}
