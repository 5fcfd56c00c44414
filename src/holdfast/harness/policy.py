"""Whether a tool call may be carried out: one decision, in one place. Pure."""

from __future__ import annotations

from typing import Literal

from .toolvalues import Approval


def allowed(tool: Approval, mode: Literal["auto", "ask", "deny", "tool"]) -> Approval:
    """What is to happen with a call, from what the tool says of it and what the mode says of
    all tools. An explicit no always wins; then the mode; then the tool."""
    if "deny" in (tool, mode):
        return "deny"
    return tool if mode == "tool" else mode
