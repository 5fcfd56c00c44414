"""Tools: what a model may call, and where calls come from.

`definition` is a tool and how it is declared, `values` what its calls come to. `signature`,
`reading`, `docstring`, `pydantic_types` and `jsonschema` are how arguments are read; `apart` and
`allowance` the thread and the time a call gets; `mcp*` and `skills` where tools come from; `files`
and `tasks` those that are here.
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
