"""The filters of lists as typed keyword arguments, and the check for unknown ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from ...errors import InvalidValue


class SessionFilters(TypedDict, total=False):
    """The filters of a list of sessions. All that are passed must match. `session` lists the
    threads of one session. Times are as in `Row`: `created` in milliseconds, all others in seconds
    (UTC); `_from` is inclusive, `_until` exclusive. `metadata` matches the entries that it has."""

    session: str | None
    user: str | None
    workspace: str | None
    agent: str | None
    run: str | None
    label: str | None
    surface: tuple[str, str] | None
    metadata: dict[str, Any]
    created_from: int | None
    created_until: int | None
    active_from: int | None
    active_until: int | None
    stale_until: int | None
    order: Literal["active", "created"]
    newest_first: bool
    total: bool


class AgentFilters(SessionFilters, total=False):
    """The filters of `Harness.list`: those of sessions, and `phases`."""

    phases: tuple[str, ...]


class PendingFilters(TypedDict, total=False):
    """The filters of a list of pending items: the session, what is asked (such as `approval`), who
    it is assigned to, and the user of the session."""

    session: str | None
    what: str | None
    assignee: str | None
    user: str | None


def check_filters(kind: type, given: Mapping[str, Any], *others: str) -> None:
    """Raise `InvalidValue` for a filter that `kind` does not have; the error lists all filters.
    `others` are further arguments of the method."""
    known = [*kind.__annotations__, *others]
    for name in given:
        if name not in known:
            raise InvalidValue(
                field=name, problem="is not a filter", remedy=f"use {', '.join(sorted(known))}"
            )
