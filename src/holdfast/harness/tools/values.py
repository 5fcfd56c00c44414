"""What comes out of a tool: results, what they point at, and the faults of arguments. Plain
values; `tools` has them all."""

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
ISSUES = 50  # as many faults as one error lists


class Ref(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a result points at: a path, an address, a command line, an id."""

    kind: Literal["file", "url", "command", "call", "session", "external"]
    value: str
    role: Literal["created", "modified", "read", "evidence"] | None = None
    exit_code: int | None = None


class Permission(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool may touch, for people and policies to read; it grants nothing by itself."""

    kind: Literal["filesystem", "shell", "network", "custom"]
    access: str | None = None
    path: str | None = None
    description: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call came to: `content` is what the model reads, `data` a JSON value for programs."""

    content: str = ""
    data: Any = None
    refs: list[Ref] = []
    metadata: dict[str, Any] = {}
    failed: bool = False
    code: str | None = None


class Park(Exception):
    """Raised by a tool that cannot go on without an answer. The call waits, in no process, for
    as long as it takes; then the tool is called again from its beginning, and finds what was
    said in `context.answer`. `schema` is the JSON Schema that an answer must fit."""

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
    """What a person said to a call that was parked: `approved`, `denied` or `answered`."""

    outcome: str
    value: Any = None
    reason: str | None = None
    by: str | None = None


class Issue(Struct, frozen=True):
    """One fault of one argument. `path` is dotted, `(root)` for the whole."""

    path: str
    problem: str


@dataclass(eq=False, kw_only=True)
class BadArguments(HoldfastError):
    """The arguments are not those that the tool takes; it was not called. Every fault is listed."""

    code = "bad_arguments"

    tool: str
    issues: list[Issue]

    def __str__(self) -> str:
        listed = "".join(f"\n- {issue.path}: {issue.problem}" for issue in self.issues)
        return f"tool {self.tool!r} was not called, its arguments are wrong:{listed}"

    def result(self) -> ToolResult:
        """The refusal as the model reads it, with every fault also as data."""
        issues = msgspec.to_builtins(self.issues)
        return ToolResult(
            content=str(self),
            data={"error": {"code": self.code, "tool": self.tool, "issues": issues}},
            failed=True,
            code=self.code,
        )


def bad_arguments(tool: str, issues: list[Issue]) -> BadArguments:
    """The error for these faults. Of very many it lists the first, and says how many more."""
    if (more := len(issues) - ISSUES) > 0:
        issues = [*issues[:ISSUES], Issue(ROOT, f"has {more} more faults")]
    return BadArguments(tool=tool, issues=issues)


def as_result(value: Any) -> ToolResult:
    """What a tool returned, as a result. Text is what the model reads; any other value is data,
    and the model reads its JSON. A failure always has a code, and words for the model."""
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
    """Text as UTF-8 can carry it: half a surrogate, as in some file names, is spelled out."""
    return value.encode(errors="backslashreplace").decode()


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=_foreign).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValue(
            field="result",
            problem=f"is a {type(value).__name__} that JSON cannot carry ({error})",
            remedy="return text, a ToolResult, or numbers, lists, dicts, dataclasses, Structs",
        ) from error


def _foreign(value: Any) -> Any:
    """A value of pydantic as JSON has it. It is known by its methods: nothing is imported."""
    if hasattr(type(value), "__pydantic_serializer__") and hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is no JSON value")
