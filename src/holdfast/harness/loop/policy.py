"""The approval policy: decides whether a tool call may be carried out. Pure.

The first rule that applies decides, in this order:

1. an explicit denial, anywhere: by the tool itself, by a rule for the tool or its category, or by
   the mode;
2. the tool itself, if it needs several approvals: rules and grants cannot replace them;
3. a rule for the tool;
4. a grant of the driver, for the tool or for its category;
5. a rule for the category;
6. the mode: `auto` or `ask` for all tools;
7. the tool itself.
"""

from __future__ import annotations

from typing import Literal

from ...log.state import Grants, Rules
from ..tools.values import Approval

NO_RULES, NO_GRANTS = Rules(), Grants()


def allowed(
    own: Approval,
    mode: Literal["auto", "ask", "deny", "tool"],
    *,
    tool: str = "",
    category: str | None = None,
    rules: Rules = NO_RULES,
    grants: Grants = NO_GRANTS,
    several: bool = False,
) -> tuple[Approval, str]:
    """Return the decision about a call, and its source: tool, rule, grant or mode."""
    of_tool, of_category = rules.tools.get(tool), rules.categories.get(category or "")
    for said, who in ((own, "tool"), (of_tool, "rule"), (of_category, "rule"), (mode, "mode")):
        if said == "deny":
            return "deny", who
    if several and own == "ask":
        return "ask", "tool"
    if of_tool is not None:
        return ("auto" if of_tool == "allow" else "ask"), "rule"
    if tool in grants.tools or (category is not None and category in grants.categories):
        return "auto", "grant"
    if of_category is not None:
        return ("auto" if of_category == "allow" else "ask"), "rule"
    if mode in ("auto", "ask"):
        return ("auto" if mode == "auto" else "ask"), "mode"
    return own, "tool"


def hidden(tool: str, category: str | None, rules: Rules) -> bool:
    """Return whether a tool is hidden from the model because a rule of the session denies it."""
    return "deny" in (rules.tools.get(tool), rules.categories.get(category or ""))
