"""What is not known of a session while a store is away that may have it: whether there is one at
all, and so whether it may be begun."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from ...errors import StoreUnavailable
from ...log.events import Scope
from .circuit_breaker import Reaching

SEEN = 10_000  # sessions that are remembered to be in a store which no entry names


@dataclass(eq=False, kw_only=True)
class Unasked(StoreUnavailable):
    """A store cannot say whether it has a session. It says nothing but the store's kind, so
    strangers may read it."""


class Doubt:
    """Whatever only a store may know that is away is in doubt for `unsure` seconds, or with None
    for as long as that lasts; and so is always what was found there before by this process."""

    def __init__(self, reaching: Reaching, unsure: float | None) -> None:
        self._reaching, self._unsure = reaching, unsure
        self._seen: OrderedDict[Scope, str] = OrderedDict()

    def found(self, scope: Scope, kind: str) -> None:
        """A session is in a store."""
        self._seen[scope] = kind
        self._seen.move_to_end(scope)
        while len(self._seen) > SEEN:
            self._seen.popitem(last=False)

    def gone(self, scope: Scope, kind: str) -> None:
        """A session is not in a store, or not any more."""
        if self._seen.get(scope) == kind:
            del self._seen[scope]

    def check(self, away: Collection[str], scope: Scope | None = None) -> None:
        """Refuse to say that there is no such session, or to begin it, while one of these stores
        may have it (`StoreUnavailable`)."""
        for kind in away:
            known = scope is not None and self._seen.get(scope) == kind
            if known or self._unsure is None or self._reaching.away(kind) <= self._unsure:
                problem = f"the {kind} store may have it and cannot be asked now"
                raise Unasked(problem=f"{problem}: ask again, or name the store of a new session")
