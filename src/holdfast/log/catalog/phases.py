"""The phases of a session and the allowed transitions between them, as one table. Pure.

A session becomes `suspended` after some time without activity; nothing in it is changed or removed.
`expired` is the last phase, from which a session can only be reopened.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["created", "active", "suspended", "expired"]
Move: TypeAlias = Literal["touch", "revive", "suspend", "resume", "expire", "reopen"]

PHASES: tuple[Phase, ...] = ("created", "active", "suspended", "expired")
LIVE: tuple[Phase, ...] = ("created", "active", "suspended")

# A transition that is not listed is not allowed: a request for it is rejected, and an event of it
# has no effect, for example if a touch and an expiry were concurrent and the expiry came first.
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
