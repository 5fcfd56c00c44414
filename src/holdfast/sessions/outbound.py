"""Outbound messages: sends a message from a session to all or some of its surfaces. The caller
decides how a message is sent. This module checks where it may be sent: only for sessions that have
not expired, and only to surfaces that are attached to the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from .changes import Changes, check_live
from .surfaces import Surface, named

Send = Callable[[str, str, Any], Awaitable[object]]


class Delivery(Struct, frozen=True, kw_only=True):
    """The surfaces to which a message was delivered, and the error of each other surface.

    See [the life of a session](../sessions.md).
    """

    delivered: list[Surface]
    failed: dict[Surface, str]


async def emit(
    changes: Changes, id: str, message: Any, send: Send, to: Iterable[Surface] | None
) -> Delivery:
    row = await changes.row(id)
    check_live(row, "emit")
    attached = [msgspec.json.decode(name, type=Surface) for name in row.surfaces]
    wanted = attached if to is None else list(to)
    for surface in wanted:
        if surface not in attached:
            raise InvalidValue(
                field="to",
                problem=f"{named(surface)} is not attached to session {id!r}",
                remedy="attach it first, or omit it",
            )

    async def deliver(surface: Surface) -> None:
        await send(*surface, message)

    sent = await asyncio.gather(*map(deliver, wanted), return_exceptions=True)
    for result in sent:
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
    outcome = list(zip(wanted, sent, strict=True))
    return Delivery(
        delivered=[surface for surface, result in outcome if not isinstance(result, Exception)],
        failed={s: repr(result) for s, result in outcome if isinstance(result, Exception)},
    )
