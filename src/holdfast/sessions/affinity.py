"""Affinity: finds the session of an incoming message.

It is the session to which the message's surface is attached, or else the user's most recent session
in that workspace, or else a new session. If two processes receive the first message of a user at
the same time, they create only one session: a name for this first contact is claimed before the
session is created, and a process that finds a claim without its session creates that session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol, Unpack

import msgspec
from msgspec import Struct

from ..errors import PhaseError, SessionNotFound, SurfaceTaken
from ..log import events as ev
from ..log.catalog import LIVE, Page, Phase, Row
from ..log.catalog.filters import SessionFilters
from ..log.codec import check_name
from ..log.events import Scope, new_id
from .changes import Changes, touch
from .surfaces import attach, named, taken

CONTACT = "contact:"  # prefix of the claim of a first contact, with a hash of user and workspace
TRIES = 5  # attempts if the session ends meanwhile


class Inbound(Struct, frozen=True, kw_only=True):
    """An incoming message: its user, surface, address and workspace. `id` is the message's own id,
    if it has one.

    ```python
    row = await sessions.resolve_session(Inbound(user="ann", surface="slack", address="D42"))
    ```
    """

    user: str
    surface: str
    address: str
    workspace: str | None = None
    id: str | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.surface, self.address


class SessionFinder(Protocol):
    """The method of `Sessions` that a resolver needs."""

    async def find(
        self,
        *,
        phases: Iterable[Phase] | None = None,
        cursor: str | None = None,
        **filters: Unpack[SessionFilters],
    ) -> Page[Row]: ...


class AffinityResolver(Protocol):
    """Chooses the session for an incoming message.

    See [which session a message belongs to](../sessions.md#route-a-message-to-its-session).
    """

    async def resolve(self, sessions: SessionFinder, message: Inbound) -> Row | None:
        """Return the session for the message, or None to create a new session."""
        ...


class MostRecent:
    """Chooses the session to which the message's surface is attached, else the user's most recent
    session in that workspace that has not expired.

    If the surface is attached to another user's session, `SurfaceTaken` is raised. With
    `shared_surfaces`, for channels with several users, the message goes to that session.

    See [which session a message belongs to](../sessions.md#route-a-message-to-its-session).
    """

    def __init__(self, *, shared_surfaces: bool = False) -> None:
        self._shared = shared_surfaces

    async def resolve(self, sessions: SessionFinder, message: Inbound) -> Row | None:
        found = await sessions.find(surface=message.place, phases=LIVE)
        for row in found.items:
            if row.sealed is not None:
                continue
            if self._shared or (row.user, row.workspace) == (message.user, message.workspace):
                return row
            raise taken(row.scope, message.place)
        cursor = None
        while True:
            page = await sessions.find(
                user=message.user, workspace=message.workspace, phases=LIVE, cursor=cursor
            )
            for row in page.items:
                # A message without a workspace goes only to a session without one.
                if row.workspace == message.workspace and row.sealed is None:
                    return row
            if (cursor := page.cursor) is None:
                return None


async def resolve_session(
    sessions: SessionFinder, changes: Changes, message: Inbound, resolver: AffinityResolver
) -> Row:
    check_name("user", message.user)
    if message.workspace is not None:
        check_name("workspace", message.workspace)
    named(message.place)
    for tries_left in reversed(range(TRIES)):
        row = await resolver.resolve(sessions, message)
        if row is None:
            row = await _first_contact(sessions, changes, message, resolver)
        try:
            await touch(
                changes, row.session, surface=message.surface, once=message.id, actor=message.user
            )
            payload = ev.SurfaceAttached(
                surface=message.surface, address=message.address, touch=False
            )
            return await attach(changes, row.session, payload, move=False, actor=message.user)
        except (PhaseError, SessionNotFound, SurfaceTaken):
            # The session ended, or another process took the surface first: try again.
            if not tries_left:
                raise
    raise AssertionError("unreachable")


async def _first_contact(
    sessions: SessionFinder, changes: Changes, message: Inbound, resolver: AffinityResolver
) -> Row:
    """Return the session that was created for this user in this workspace, by this process or
    another one."""
    store, ours = changes.store, Scope(changes.tenant, new_id())
    person = msgspec.json.encode((message.user, message.workspace))
    name = CONTACT + hashlib.sha256(person).hexdigest()
    holder = await store.claim(ours.tenant, name, ours)
    while holder != ours:
        row = await store.row(changes.key(holder.session))
        if row is None:
            break
        # The claimed session exists. Either the resolver finds it, or it has ended, and the claim
        # is replaced.
        if (picked := await resolver.resolve(sessions, message)) is not None:
            return picked
        holder = await store.claim(ours.tenant, name, ours, instead_of=holder)
    created = ev.SessionCreated(
        user=message.user, workspace=message.workspace, ttl=changes.ttl, expiry=changes.expiry
    )
    # The event id is the same in all processes, so that only one of them creates the session.
    event = changes.event(created, message.user, f"contact:{holder.session}")
    await store.append(changes.key(holder.session), [event], create=True)
    return await changes.row(holder.session)
