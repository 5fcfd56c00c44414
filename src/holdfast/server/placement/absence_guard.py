"""Handles sessions that may be in an unavailable store: they are neither reported as missing nor
created again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...errors import StoreUnavailable
from ...log.events import Scope
from ..recent import RecentMap
from .circuit_breaker import CircuitBreaker

SEEN = 10_000  # sessions outside of the default store that are remembered


@dataclass(eq=False, kw_only=True)
class StoreUnasked(StoreUnavailable):
    """Raised when an unavailable store may contain the session. The message contains only the kind
    of the store, so clients may read it."""


class AbsenceGuard:
    """Prevents a session from being reported as missing while a store that may contain it is
    unavailable: for `unsure` seconds, or without limit if `unsure` is None. For sessions that this
    process has already found in that store, there is no limit either."""

    def __init__(self, breaker: CircuitBreaker, unsure: float | None) -> None:
        self._breaker, self._unsure = breaker, unsure
        self._seen: RecentMap[Scope, str] = RecentMap(SEEN)

    def found(self, scope: Scope, kind: str) -> None:
        """Record that a session is in a store."""
        self._seen[scope] = kind

    def gone(self, scope: Scope, kind: str) -> None:
        """Record that a session is no longer in a store."""
        if self._seen.get(scope) == kind:
            del self._seen[scope]

    def check(self, away: Collection[str], scope: Scope | None = None) -> None:
        """Raise `StoreUnavailable` if one of these unavailable stores may contain the session."""
        for kind in away:
            known = scope is not None and self._seen.get(scope) == kind
            if known or self._unsure is None or self._breaker.away(kind) <= self._unsure:
                raise StoreUnasked(
                    problem=f"the {kind} store is unavailable and may contain this session: try "
                    f"again later; to create a new session, pass its store explicitly"
                )
