"""Values of tools: results and their references, permissions, and issues with arguments.
`holdfast.harness.tools` exports them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import HoldfastError, InvalidValue

Risk: TypeAlias = Literal["safe", "read", "write", "execute", "network", "destructive"]
Approval: TypeAlias = Literal["auto", "ask", "deny"]

UNKNOWN = "It is not known whether this call took effect. Do not repeat it unasked."
ROOT = "(root)"
ISSUES = 50  # issues that one error lists
LEAST = 1_000  # characters: the smallest limit of a result


class Ref(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reference in a tool result, for example to a path, a URL, a command or a session. `role`
    says how the call used it.

    See [tools](../tools.md).
    """

    kind: Literal["file", "url", "command", "call", "session", "external"]
    value: str
    role: Literal["created", "modified", "read", "evidence"] | None = None
    exit_code: int | None = None


class Permission(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that a tool needs to access. This is information for users and policies; it does
    not grant access.

    See [tools](../tools.md).
    """

    kind: Literal["filesystem", "shell", "network", "custom"]
    access: str | None = None
    path: str | None = None
    description: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a tool call: `content` is text for the model, `data` a JSON value for
    programs.

    ```python
    return ToolResult(failed=True, content="no stock", code="no_stock")
    ```
    """

    content: str = ""
    data: Any = None
    refs: list[Ref] = []
    metadata: dict[str, Any] = {}
    failed: bool = False
    code: str | None = None


class Park(Exception):
    """Raised by a tool that needs an answer to continue. The call becomes a pending item, and no
    process has to wait for the answer. Once it is answered, the tool is called again from its
    beginning, with the answer in `context.answer`. `schema` is the JSON Schema that an answer must
    match.

    See [tools](../tools.md).
    """

    def __init__(
        self,
        title: str,
        *,
        what: Literal["question", "plan", "access", "external"] = "question",
        detail: dict[str, Any] | None = None,
        schema: dict[str, Any] | None = None,
        expires: float | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(title)
        self.title, self.what, self.expires, self.id = title, what, expires, id
        self.detail = {**(detail or {}), **({"schema": schema} if schema else {})}


class CallAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a parked call (see `Park`). `outcome` is `approved`, `denied` or `answered`.

    See [tools](../tools.md).
    """

    outcome: str
    value: Any = None
    reason: str | None = None
    by: str | None = None


class Issue(Struct, frozen=True):
    """A problem with the arguments of a call. `path` is the dotted path of the invalid value;
    `(root)` means the arguments as a whole.

    See [tools](../tools.md).
    """

    path: str
    problem: str


@dataclass(eq=False, kw_only=True)
class BadArguments(HoldfastError):
    """The arguments of a call are invalid, so the tool was not called. `issues` lists all
    problems.

    What to do: [`bad_arguments`](../errors.md#bad_arguments).
    """

    code = "bad_arguments"

    tool: str
    issues: list[Issue]

    def __str__(self) -> str:
        listed = "".join(f"\n- {issue.path}: {issue.problem}" for issue in self.issues)
        return f"tool {self.tool!r} was not called, because its arguments are invalid:{listed}"

    def result(self) -> ToolResult:
        """Return the error as a result for the model, with every issue also in `data`."""
        issues = msgspec.to_builtins(self.issues)
        return ToolResult(
            content=str(self),
            data={"error": {"code": self.code, "tool": self.tool, "issues": issues}},
            failed=True,
            code=self.code,
        )


def bad_arguments(tool: str, issues: list[Issue]) -> BadArguments:
    """Return an error with these issues. It contains the first `ISSUES` issues and the number of
    further issues."""
    if (more := len(issues) - ISSUES) > 0:
        issues = [*issues[:ISSUES], Issue(ROOT, f"has {more} more issues")]
    return BadArguments(tool=tool, issues=issues)


def as_result(value: Any) -> ToolResult:
    """Convert the return value of a tool to a result. Text is for the model; any other value is
    data, and the model reads its JSON. A failure always has a code and text for the model.

    See [tools](../tools.md).
    """
    if isinstance(value, ToolResult):
        return _whole(value)
    if value is None:
        return ToolResult()
    if isinstance(value, str):
        return ToolResult(content=clean(value))
    text = _json(value)
    return ToolResult(content=text, data=msgspec.json.decode(text))


def _whole(result: ToolResult) -> ToolResult:
    changes: dict[str, Any] = {"content": clean(result.content)}
    text = None if result.data is None else _json(result.data)
    if text is not None:
        changes["data"] = msgspec.json.decode(text)
    if not result.content:
        changes["content"] = text or ("the tool failed" if result.failed else "")
    if result.failed:
        code = changes["code"] = result.code or "tool_failed"
        if text is None:
            changes["data"] = {"error": {"code": code, "message": changes["content"]}}
    return msgspec.structs.replace(result, **changes)


def clean(value: str) -> str:
    """Make text valid UTF-8: lone surrogates, as in some file names, are escaped."""
    return value.encode(errors="backslashreplace").decode()


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=_foreign).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValue(
            field="result",
            problem=f"is a {type(value).__name__} that cannot be encoded as JSON ({error})",
            remedy="return text, a ToolResult, numbers, lists, dicts, dataclasses or "
            "msgspec Structs",
        ) from error


def _foreign(value: Any) -> Any:
    """Convert a pydantic model to JSON values. It is recognised by its attributes, so pydantic is
    not imported."""
    if hasattr(type(value), "__pydantic_serializer__") and hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"an object of type {type(value).__name__} is not JSON serializable")
