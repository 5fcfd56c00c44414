"""Tools: functions that a model may call, and the sources of tools.

`definition` declares a tool, `values` has the results of calls. `signature`, `reading`,
`docstring`, `pydantic_types` and `jsonschema` parse arguments; `thread_runner` and `allowance` are
the thread and the timeout of a call; `mcp*` and `skills` are sources of tools; `files` and `tasks`
are built-in tools.
"""

from .definition import Approve, Tool, ToolContext, tool
from .values import (
    Approval,
    BadArguments,
    CallAnswer,
    Issue,
    Park,
    Permission,
    Ref,
    Risk,
    ToolResult,
    as_result,
)

__all__ = [
    "Approval",
    "Approve",
    "BadArguments",
    "CallAnswer",
    "Issue",
    "Park",
    "Permission",
    "Ref",
    "Risk",
    "Tool",
    "ToolContext",
    "ToolResult",
    "as_result",
    "tool",
]


def __dir__() -> list[str]:
    return sorted(__all__)
