"""The phases of a session and the allowed transitions between them, as one table. Pure.

A `suspended` session is stale, but nothing in it has changed: a returning user finds it as it was.
`expired` is the last phase; only reopening the session ends it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["created", "active", "suspended", "expired"]
Move: TypeAlias = Literal["touch", "revive", "suspend", "resume", "expire", "reopen"]

PHASES: tuple[Phase, ...] = ("created", "active", "suspended", "expired")
LIVE: tuple[Phase, ...] = ("created", "active", "suspended")

# A move that is not listed is not allowed: a request for it is rejected; in a log it has no effect,
# as when a touch and an expiry were concurrent and the expiry came first.
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
