"""`Sessions`: the API for the life cycle of sessions, without a harness."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, Literal, Unpack

import msgspec

from ..environment import wall_clock
from ..errors import HeadMoved, HoldfastError, InvalidValue, SessionExists, StoreError
from ..log import events as ev
from ..log.catalog import Page, Phase, Row, term
from ..log.catalog.filters import SessionFilters
from ..log.codec import check_count, check_name
from ..log.events import Key, Payload, new_id, to_json
from ..stores.pages import existing_row
from ..stores.port import Store
from ..values.audit import Audited
from ..values.records import PersonErased, PersonRecord, Receipt
from ..values.search import SearchPage
from . import (
    affinity,
    audit,
    outbound,
    people,
    posting,
    queries,
    search,
    surfaces,
    sweep,
    transitions,
)
from .affinity import AffinityResolver, Inbound, MostRecent
from .changes import Changes, check_live, delete, touch
from .outbound import Delivery, Send
from .rewind import rewind
from .sweep import Purged, Retention, Swept
from .transitions import Transition

HOUR = 3_600
LONGEST = 100 * 365 * 24 * HOUR


class Sessions:
    """The life cycle of the sessions of one tenant.

    A session is stale `ttl` seconds after its last activity (None: never), and a stale session
    expires after `expiry` more seconds (None: never); each session can have its own times. For
    `least` seconds after its last activity it cannot be deleted. `actor` is recorded as the author
    of changes, unless a call passes another actor.

    ```python
    sessions = Sessions(store, ttl=30 * 60)
    row = await sessions.get_or_create("customer-42", user="ann")
    await sessions.update_metadata("customer-42", {"plan": "pro"})
    ```
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "main",
        ttl: int | None = HOUR,
        expiry: int | None = None,
        least: int | None = None,
        actor: str | None = None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        check_name("tenant", tenant)
        self.store = store
        self.tenant = tenant
        self.ttl = check_seconds("ttl", ttl)
        self.expiry = check_seconds("expiry", expiry)
        self.changes = Changes(
            store,
            tenant,
            actor=actor,
            clock=clock,
            ttl=self.ttl,
            expiry=self.expiry,
            least=check_seconds("least", least),
        )

    # Creating and finding

    async def create(
        self,
        id: str | None = None,
        *,
        user: str,
        workspace: str | None = None,
        surface: tuple[str, str] | None = None,
        agent: str | None = None,
        title: str | None = None,
        labels: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
        ttl: int | Literal["default"] | None = "default",
        expiry: int | Literal["default"] | None = "default",
        actor: str | None = None,
    ) -> Row:
        """Create a session. Without an id, an id is generated. `surface` is attached from the
        start. Raises `SessionExists` if a session has this id, and `SurfaceTaken` if another
        session has the surface."""
        check_name("user", user)
        session = new_id() if id is None else id
        created = ev.SessionCreated(
            user=user,
            workspace=workspace,
            agent=agent,
            title=title,
            labels=list(labels),
            metadata=dict(metadata or {}),
            ttl=self.ttl if ttl == "default" else check_seconds("ttl", ttl),
            expiry=self.expiry if expiry == "default" else check_seconds("expiry", expiry),
        )
        return await self._begin(session, created, surface, actor)

    async def _begin(
        self,
        session: str,
        created: ev.SessionCreated,
        surface: tuple[str, str] | None,
        actor: str | None,
    ) -> Row:
        key = self.changes.key(session)
        events = [self.changes.event(created, actor)]
        if surface is not None:
            attached = ev.SurfaceAttached(surface=surface[0], address=surface[1], touch=False)
            events.append(self.changes.event(attached, actor))
            await surfaces.take(self.changes, key.scope, surface, move=False)
        try:
            await self.store.append(key, events, expected=0, create=True)
        except HoldfastError as error:
            # After a failure of the store it is unknown whether the session was created.
            if surface is not None and not isinstance(error, StoreError):
                await surfaces.give_back(self.changes, key.scope, surface)
            if isinstance(error, HeadMoved):
                raise SessionExists(tenant=self.tenant, session=session) from None
            raise
        row = await self.changes.row(session)
        if surface is not None:
            row = await surfaces.settle(self.changes, row, actor, only=surface)
        return row

    async def get(self, id: str) -> Row | None:
        """Return the session, in any phase, or None if it does not exist."""
        return await self.store.row(self.changes.key(id))

    async def get_or_create(self, id: str, *, user: str, **more: Any) -> Row:
        """Return the session, or create it if it does not exist. Of several concurrent calls, only
        one creates it."""
        row = await self.get(id)
        if row is None:
            try:
                return await self.create(id, user=user, **more)
            except SessionExists:
                row = await self.changes.row(id)
        if row.user != user:
            raise SessionExists(tenant=self.tenant, session=id)
        return row

    async def post(
        self,
        id: str,
        text: str,
        *,
        agent: str,
        user: str | None = None,
        title: str | None = None,
        workspace: str | None = None,
        labels: Iterable[str] = (),
        key: str | None = None,
        actor: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Store a message for an agent that runs in another process, and create the session if
        necessary. Returns the number of the message as soon as it is durable; a worker that serves
        the agent answers it.

        `agent` is the key of the agent. `key` is an idempotency key: a message with a repeated key
        is stored once. `metadata` belongs to the message; user, title, workspace and labels are
        used if the session is created, which then does not have the initial state that the agent
        declares. Raises `PhaseError` if the session has expired, and `InvalidValue` if it belongs
        to another agent. The limit of queued messages is not checked.
        """
        check_name("agent", agent)
        created = ev.SessionCreated(
            agent=agent,
            user=user,
            title=title,
            workspace=workspace,
            labels=list(labels),
            ttl=self.ttl,
            expiry=self.expiry,
        )
        return await posting.post(
            self.changes, id, text, created, key=key, actor=actor, metadata=metadata
        )

    async def find(
        self,
        *,
        phases: Phase | Iterable[Phase] | None = None,
        active_after: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
        **filters: Unpack[SessionFilters],
    ) -> Page[Row]:
        """Return sessions that match all filters, most recently active first. `phases`
        is one phase or several; an empty list matches nothing. `active_after` is a time in seconds;
        sessions active exactly then are excluded.

        Paging with `newest_first=False` returns every session; sessions that are touched in the
        meantime come at the end.
        """
        return await queries.find(
            self.changes,
            phases=phases,
            active_after=active_after,
            cursor=cursor,
            limit=limit,
            **filters,
        )

    def walk(self, **filters: Any) -> AsyncGenerator[Row, None]:
        """Yield every session that matches the filters. The session that was idle longest is
        first."""
        return queries.walk(self.changes, **filters)

    # The life cycle

    async def touch(
        self,
        id: str,
        *,
        surface: str | None = None,
        once: str | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Row:
        """Mark the session as active now. `once` identifies the touch, so that a message delivered
        twice counts once. Raises `PhaseError` if the session has expired."""
        return await touch(self.changes, id, surface=surface, once=once, actor=actor, reason=reason)

    async def suspend(self, id: str, *, actor: str | None = None, reason: str | None = None) -> Row:
        """Suspend a session, as sweeps do with stale sessions. The next activity resumes it."""
        return await self.changes.move(
            id, "suspend", ev.SessionSuspended(reason=reason), actor=actor
        )

    async def resume(self, id: str, *, actor: str | None = None, reason: str | None = None) -> Row:
        """Resume a suspended session."""
        return await self.changes.move(id, "resume", ev.SessionResumed(reason=reason), actor=actor)

    async def expire(self, id: str, *, actor: str | None = None, reason: str | None = None) -> Row:
        """Expire a session: it accepts no more events. Nothing is deleted."""
        return await self.changes.move(id, "expire", ev.SessionExpired(reason=reason), actor=actor)

    async def reopen(self, id: str, *, actor: str | None = None, reason: str | None = None) -> Row:
        """Reopen an expired session. Surfaces that another session has attached in the meantime are
        detached from this session."""
        row = await self.changes.move(id, "reopen", ev.SessionReopened(reason=reason), actor=actor)
        return await surfaces.settle(self.changes, row, actor)

    async def adopt(
        self, id: str, agent: str, *, actor: str | None = None, reason: str | None = None
    ) -> Row:
        """Assign a session without an agent, or one that an SDK's adapter wrote, to an agent of
        Holdfast, whose harness can then continue it. Has no effect if the session already belongs
        to this agent; raises `InvalidValue` if it belongs to another agent."""
        check_name("agent", agent)

        def decide(row: Row) -> Payload | None:
            check_live(row, "adopt")
            if row.agent == agent:
                return None
            if row.agent not in (None, *ev.ADAPTER_NAMESPACES):
                raise InvalidValue(
                    field="id",
                    problem=f"session {row.session!r} belongs to agent {row.agent!r}",
                    remedy="adopt a session that an SDK's adapter wrote, or fork this one",
                )
            return ev.SessionAdopted(agent=agent, reason=reason)

        return await self.changes.make(id, decide, actor=actor)

    # Metadata, and settings for sweeps

    async def update_metadata(
        self,
        id: str,
        set: Mapping[str, Any] | None = None,
        *,
        drop: Iterable[str] = (),
        actor: str | None = None,
        reason: str | None = None,
    ) -> Row:
        """Set some keys of the metadata, and remove the keys in `drop`. Nested values are replaced
        as a whole."""
        new: dict[str, Any] = msgspec.json.decode(to_json(dict(set or {})))
        old = [name for name in drop if name not in new]

        def decide(row: Row) -> Payload | None:
            check_live(row, "update_metadata")
            gone = [name for name in old if name in row.metadata]
            changed = {
                name: value
                for name, value in new.items()
                if name not in row.metadata or term(row.metadata[name]) != term(value)
            }
            if not gone and not changed:
                return None
            return ev.MetadataChanged(set=changed, drop=gone, reason=reason)

        return await self.changes.make(id, decide, actor=actor)

    async def pin(
        self, id: str, pinned: bool = True, *, actor: str | None = None, reason: str | None = None
    ) -> Row:
        """Exempt a session from sweeps and retention; `pinned=False` reverts this."""

        def decide(row: Row) -> Payload | None:
            return None if row.pinned == pinned else ev.SessionPinned(pinned=pinned, reason=reason)

        return await self.changes.make(id, decide, actor=actor)

    async def hold(
        self, id: str, why: str | None, *, actor: str | None = None, reason: str | None = None
    ) -> Row:
        """Place a session under legal hold for the reason `why`: every deletion is rejected. With
        None, lift the hold."""
        if why is not None:
            check_name("why", why)

        def decide(row: Row) -> Payload | None:
            return None if row.hold == why else ev.SessionHeld(hold=why, reason=reason)

        return await self.changes.make(id, decide, actor=actor)

    async def set_ttl(
        self,
        id: str,
        ttl: int | Literal["same"] | None = "same",
        *,
        expiry: int | Literal["same"] | None = "same",
        actor: str | None = None,
        reason: str | None = None,
    ) -> Row:
        """Set the time limits of one session, in seconds; None means never."""
        new = ttl if ttl == "same" else check_seconds("ttl", ttl)
        then = expiry if expiry == "same" else check_seconds("expiry", expiry)

        def decide(row: Row) -> Payload | None:
            check_live(row, "set_ttl")
            times = (row.ttl if new == "same" else new, row.expiry if then == "same" else then)
            if (row.ttl, row.expiry) == times:
                return None
            return ev.SessionTimed(ttl=times[0], expiry=times[1], reason=reason)

        return await self.changes.make(id, decide, actor=actor)

    async def delete(self, id: str, thread: str | None = None) -> Receipt:
        """Delete a session with everything it owns, or one of its threads. Raises `DeletionRefused`
        if it is under hold or was active less than `least` seconds ago."""
        return await delete(self.changes, id, thread)

    # The conversation

    async def rewind(
        self,
        id: str,
        to: int,
        *,
        thread: str = "main",
        actor: str | None = None,
        key: str | None = None,
    ) -> Row:
        """Return the conversation of a thread to its state right after event `to`; 0 clears it.

        Nothing is deleted: the events stay in the log. Queued messages after `to` are dropped;
        usage, mode, model, state, labels and checkpoints are not changed. A call with a `key` that
        was used before has no effect. Raises `SessionBusy` while a run or a pending item is open,
        and `PhaseError` if the session has expired.
        """
        check_live(await self.changes.row(id), "rewind")
        where = Key(self.tenant, id, thread)
        await rewind(self.store, where, to, actor=actor or self.changes.actor, key=key)
        return await existing_row(self.store, where)

    # Surfaces

    async def attach_surface(
        self,
        id: str,
        surface: str,
        address: str,
        *,
        detail: Mapping[str, Any] | None = None,
        move: bool = False,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Row:
        """Attach (surface, address) to the session. It stays attached until it is detached, and
        only one live session can have it. Raises `SurfaceTaken` if another live session has it;
        with `move` it is detached from that session."""
        payload = ev.SurfaceAttached(
            surface=surface,
            address=address,
            detail=dict(detail or {}),
            touch=False,
            reason=reason,
        )
        return await surfaces.attach(self.changes, id, payload, move=move, actor=actor)

    async def detach_surface(
        self,
        id: str,
        surface: str,
        address: str,
        *,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Row:
        """Detach (surface, address), so that other sessions can attach it. Has no effect if it is
        not attached."""
        payload = ev.SurfaceDetached(surface=surface, address=address, reason=reason)
        return await surfaces.detach(self.changes, id, payload, actor=actor)

    async def emit(
        self,
        id: str,
        message: Any,
        send: Send,
        *,
        to: Iterable[tuple[str, str]] | None = None,
    ) -> Delivery:
        """Call `send(surface, address, message)` for every attached surface, or for the surfaces in
        `to`. If one call fails, the others still run. Raises `PhaseError` if the session has
        expired."""
        return await outbound.emit(self.changes, id, message, send, to)

    async def resolve_session(
        self, message: Inbound, resolver: AffinityResolver | None = None
    ) -> Row:
        """Return the session for an incoming message. The session is created if necessary, marked
        as active, and the message's surface is attached. The same message, sent twice or to two
        processes, resolves to the same session."""
        return await affinity.resolve_session(self, self.changes, message, resolver or MostRecent())

    # Time

    async def sweep_stale(
        self, ttl: int | None = None, *, dry_run: bool = False, limit: int = 10_000
    ) -> Swept:
        """Suspend stale sessions, and expire sessions that were suspended for their `expiry`, at
        most `limit` sessions in total.

        With `ttl`, sessions count as stale after that idle time, regardless of their own setting.
        Any number of sweepers may run; sessions that are in use or are touched in the meantime are
        not suspended. With `dry_run`, nothing is changed.
        """
        return await sweep.sweep(self.changes, check_seconds("ttl", ttl), limit, dry_run)

    async def purge_expired(
        self, retention: Retention, *, dry_run: bool = False, limit: int = 10_000
    ) -> Purged:
        """Delete expired sessions according to `retention`, and report each; with `dry_run`, only
        report. Sessions that are pinned, are under legal hold, or have pending items are kept."""
        return await sweep.purge(self.changes, retention, dry_run, limit)

    def transitions(
        self, id: str, *, after: int = 0, wait: bool = True
    ) -> AsyncGenerator[Transition, None]:
        """Yield the phase changes of a session after event `after`. With `wait`, also wait for
        future changes."""
        return transitions.follow(self.changes, id, after, wait)

    async def search(
        self,
        query: str,
        *,
        session: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        phase: Phase | Iterable[Phase] | None = None,
        kind: str | None = None,
        since: int | None = None,
        until: int | None = None,
        labels: Iterable[str] = (),
        limit: int = 20,
        cursor: str | None = None,
    ) -> SearchPage:
        """Return one page of matches, newest first: messages, calls, results, titles, notices and
        summaries that contain all words of the query, in all sessions or in one `session`.

        The query language supports `"a phrase"`, `prefix*`, `-without`, `from:user`, `tool:refund`.
        `since` and `until` are times of events, UTC in ms. Text that was compacted is found, but
        not text that was erased or that a rewind removed. Pass the page's `cursor` to get the next
        page.
        """
        return await search.search(
            self.changes,
            query,
            session=session,
            user=user,
            agent=agent,
            phase=phase,
            kind=kind,
            since=since,
            until=until,
            labels=labels,
            limit=limit,
            cursor=cursor,
        )

    def audit(self, id: str) -> AsyncGenerator[Audited, None]:
        """Yield every tool call of the session, in all threads: who requested it, what was
        proposed, who decided, which arguments it ran with, and the outcome. Text of models is not
        included."""
        return audit.audit(self.changes, id)

    # People

    def export_person(
        self, user: str, *, shared: bool = True
    ) -> AsyncGenerator[PersonRecord, None]:
        """Yield all data stored about a user: the user's complete sessions and, with `shared`, the
        user's events in all other sessions. With `shared`, every log of the tenant is read."""
        return people.export(self.changes, user, shared)

    async def erase_person(
        self, user: str, *, reason: str, shared: bool = True, dry_run: bool = False
    ) -> PersonErased:
        """Delete a user's sessions and, with `shared`, erase the user's events in all other
        sessions. Sessions under legal hold are skipped and reported."""
        return await people.erase(self.changes, user, reason, shared, dry_run)


def check_seconds(field: str, value: int | None) -> int | None:
    """Check a time in seconds, and return it. None means never; values below 1 are rejected."""
    if value is not None:
        check_count(field, value, least=1, most=LONGEST)
    return value
