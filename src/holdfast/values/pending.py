"""Pending items in the form that users see, and decisions on them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..log import events as ev
from ..log.state import OpenItem
from .risk import risk


class Ask(Struct, frozen=True):
    """A pending item. `risk` is a hint at the harm that the call could do; no decision is based on
    it. `approvals` is the required number of approvers; `approved_by` lists the users who have
    approved so far.

    ```python
    for item in await session.pending():
        print(item.id, item.title)
    ```
    """

    id: str
    what: str
    title: str
    call: str | None = None
    tool: str | None = None
    arguments: Any = None
    at: int = 0
    expires: int | None = None
    detail: Any = None
    thread: str = "main"
    risk: str | None = None
    approvals: int = 1
    approved_by: tuple[str, ...] = ()


class Decision(Struct, frozen=True):
    """A decision on a pending item, as recorded in the log. `voted` is true if it is one of several
    required approvals; `left` is the number of approvals still required."""

    item: str
    outcome: str
    by: str | None
    seq: int
    left: int = 0


def ask(id: str, item: OpenItem, opened: ev.PendingOpened | None, thread: str = "main") -> Ask:
    """Return a pending item in the form that users see."""
    detail = opened.detail if opened is not None else None
    known = detail if isinstance(detail, dict) else {}
    return Ask(
        id=id,
        what=item.what,
        title=(opened.title if opened is not None else None) or item.what,
        call=item.call,
        tool=known.get("tool"),
        arguments=known.get("arguments"),
        at=item.at,
        expires=item.expires,
        detail=detail,
        thread=thread,
        risk=risk(opened),
        approvals=item.approvals,
        approved_by=item.voters,
    )
