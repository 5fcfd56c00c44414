"""The phases of a session, and which move leads from which to which: one table. Pure.

`suspended` is stale, nothing more: whoever comes back finds it as it was. `expired` is the
end; only a reopening leads out of it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["created", "active", "suspended", "expired"]
Move: TypeAlias = Literal["touch", "revive", "suspend", "resume", "expire", "reopen"]

PHASES: tuple[Phase, ...] = ("created", "active", "suspended", "expired")
LIVE: tuple[Phase, ...] = ("created", "active", "suspended")

# What is not here is not a move: asked for, it is refused; found in a log, it changes nothing,
# as when a touch and an expiry met and the expiry came first.
MOVES: dict[Move, dict[Phase, Phase]] = {
    "touch": {"created": "active", "active": "active", "suspended": "active"},
    "revive": {"suspended": "active"},
    "suspend": {"created": "suspended", "active": "suspended", "suspended": "suspended"},
    "resume": {"suspended": "active", "active": "active"},
    "expire": {
        "created": "expired",
        "active": "expired",
        "suspended": "expired",
        "expired": "expired",
    },
    "reopen": {"expired": "active"},
}
