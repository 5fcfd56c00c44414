"""Tools: functions that a model may call, and the sources of tools.

`definition` declares tools, and `values` defines their results. `signature`, `reading`,
`docstring`, `pydantic_types` and `jsonschema` derive schemas from functions and validate arguments.
`probes` has the answers of functions that say whether a call took effect.
`thread_runner` runs synchronous functions, and `allowance` limits the time of a call. `mcp*` and
`skills` are sources of tools; `files` has the built-in tools, `tasks` the logic of task lists.
"""

from .definition import Approve, Tool, ToolContext, tool
from .probes import DontKnow, Happened, NotHappened, ProbeAnswer
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
    "DontKnow",
    "Happened",
    "Issue",
    "NotHappened",
    "Park",
    "Permission",
    "ProbeAnswer",
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
