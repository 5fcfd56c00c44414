"""`Webhooks`: adds, lists, changes and removes the webhook endpoints of a tenant."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ..environment import current, wall_clock
from ..errors import HeadMoved, InvalidValue, LeaseHeld, LogReplaced, SessionNotFound
from ..log import events as ev
from ..log.catalog import Query, Row
from ..log.codec import LARGEST, check_count, check_name, typed
from ..log.events import Key, NewEvent, Scope, ids, new_id
from ..stores.pages import every_row, existing_row
from ..stores.port import Store
from ..values.webhooks import DAY, NewWebhook, WebhookEndpoint, WebhookReply
from .addresses import target
from .http import Sender
from .message import check_kinds, message_id, test_body
from .records import (
    AGENT,
    DEAD,
    MAIN,
    OWN,
    SECRETS,
    TENANT,
    DeadLetters,
    event_of,
    inbox_of,
    key_of,
    last,
    move_back,
    no_endpoint,
    record_of,
    secrets_of,
)
from .signatures import headers, new_secret
from .signatures import key_of as secret_key

MOST = 100  # endpoints of a tenant, and entries of a filter
LEAST_GIVE_UP, MOST_GIVE_UP = 60, 365 * DAY
GIVE_UP = 3 * DAY  # seconds until an event becomes a dead letter
GRACE = DAY  # seconds for which an old secret signs as well
PAGE = 100


class Webhooks:
    """The webhook endpoints of one tenant.

        hooks = Webhooks(store)
        made = await hooks.add("https://example.com/hooks", kinds=["run.finished"])
        print(made.secret)

    Endpoints are kept in the store. A `Deliverer` of any process delivers to them.

    See [webhooks](../webhooks.md).
    """

    def __init__(self, store: Store, *, tenant: str = "main", actor: str | None = None) -> None:
        check_name("tenant", tenant, limit=400)
        self._store, self._tenant, self._actor = store, tenant, actor

    async def add(
        self,
        url: str,
        *,
        kinds: Iterable[str] = (),
        agents: Iterable[str] = (),
        labels: Iterable[str] = (),
        since: int | None = None,
        give_up: int = GIVE_UP,
        secret: str | None = None,
        key: str | None = None,
    ) -> NewWebhook:
        """Add an endpoint, which gets the events from now on, or since a time (UTC ms). The secret
        is returned only here. A call with the same idempotency `key` adds no second endpoint."""
        target(url)
        filters = _filters(kinds=kinds, agents=agents, labels=labels)
        check_count("give_up", give_up, least=LEAST_GIVE_UP, most=MOST_GIVE_UP)
        if since is not None:
            check_count("since", since, least=0, most=LARGEST)
        if secret is not None:
            secret_key(secret)
        name = current().token_bytes(12).hex() if key is None else _digest(key)
        home = key_of(self._tenant, f"ep_{name}")
        if await self._store.row(home) is None and len(await self._rows()) >= MOST:
            raise InvalidValue(
                field="endpoint",
                problem=f"would be number {MOST + 1} of this tenant",
                remedy="remove one",
                limit=MOST,
            )
        secret, now = secret or new_secret(), wall_clock()
        since = now if since is None else since
        hooked = ev.SurfaceHooked(
            url=url,
            kinds=filters["kinds"],
            agents=filters["agents"],
            labels=filters["labels"],
            give_up=give_up,
            since=since,
            due=now,
        )
        # The secret first: an endpoint that is listed can sign.
        signed = [self._event(ev.SurfaceHooked(secret=secret))]
        created = [self._event(ev.SessionCreated(agent=AGENT)), self._event(hooked)]
        secrets = key_of(self._tenant, home.session, SECRETS)
        for log, events in ((secrets, signed), (home, created)):
            with contextlib.suppress(HeadMoved):  # an earlier call with this key created it
                await self._store.append(log, events, expected=0, create=True)
        return await self._new(home.session)

    async def get(self, id: str) -> WebhookEndpoint:
        """Return an endpoint. Raises `InvalidValue` if it does not exist."""
        shown = await self._shown(await self._row(id))
        if shown is None:
            raise no_endpoint(id)
        return shown

    async def dead(self, id: str) -> list[ev.SurfaceFailed]:
        """Return the dead letters of an endpoint, oldest first."""
        await self._row(id)
        letters = await self._dead(id)
        return [letter.failed for letter in letters.open.values()]

    async def rotate(
        self, id: str, *, grace: int = GRACE, secret: str | None = None, key: str | None = None
    ) -> NewWebhook:
        """Add a new secret to an endpoint. For `grace` seconds, deliveries are signed with the old
        secret too. A call with the same idempotency `key` adds no second secret."""
        check_count("grace", grace, least=0, most=MOST_GIVE_UP)
        if secret is not None:
            secret_key(secret)
        await self._row(id)
        secrets = key_of(self._tenant, id, SECRETS)
        await self._forget_secrets(secrets)
        until = wall_clock() + grace * 1000
        payload = ev.SurfaceHooked(secret=secret or new_secret(), until=until)
        name = new_id() if key is None else f"rotated:{_digest(key)}"
        await self._store.append(secrets, [event_of(payload, self._actor, id=name)])
        return await self._new(id)

    async def remove(self, id: str) -> None:
        """Remove an endpoint with its secrets, positions and dead letters."""
        row = await self._row(id)
        await self._store.append(row.key, [self._event(ev.SurfaceUnhooked(why="removed"))])
        await self._close_items(id, "superseded")
        try:
            # While a deliverer has the endpoint, the deliverer deletes it.
            await self._store.acquire(row.key, new_id(), ttl=5.0)
        except LeaseHeld:
            return
        with contextlib.suppress(SessionNotFound, LogReplaced):
            await self._store.delete(Scope(row.tenant, id))

    async def redeliver(
        self,
        id: str,
        *,
        session: str | None = None,
        thread: str = MAIN,
        after: int = 0,
        since: int | None = None,
    ) -> None:
        """Deliver again: the events of a session after a number, or everything since a time (UTC
        ms), or else the dead letters. An endpoint that was stopped takes deliveries again."""
        row = await self._row(id)
        if session is not None and since is not None:
            raise InvalidValue(
                field="since", problem="cannot be combined with session", remedy="pass one of them"
            )
        if since is not None:
            check_count("since", since, least=0, most=LARGEST)
            await self._change(row.key, ev.SurfaceHooked(replay=since, reason="redeliver"))
            return
        if session is not None:
            check_count("after", after, least=0, most=LARGEST)
            about = await existing_row(self._store, Key(self._tenant, session, thread))
            endpoint = (await record_of(self._store, row.key)).endpoint
            await move_back(self._store, self._tenant, endpoint, about, after, self._actor)
        else:
            await self._close_items(id, "approved")
        if (await record_of(self._store, row.key)).why is not None:
            await self._change(row.key, ev.SurfaceHooked(reason="redeliver"))

    async def test(self, id: str, sender: Sender) -> WebhookReply:
        """Send a test delivery now, and return the result. Nothing is recorded."""
        row = await self._row(id)
        endpoint = (await record_of(self._store, row.key)).endpoint
        now = wall_clock()
        body = test_body(id, now)
        sent = headers(await self.secrets(id), message_id(new_id(), 0), now // 1000, body)
        return await sender.post(endpoint.url, sent, body)

    async def secrets(self, id: str) -> list[str]:
        """Return the secrets with which a delivery is signed now, the newest first."""
        found = await secrets_of(self._store, key_of(self._tenant, id))
        now = wall_clock()
        return [secret for secret, until in found if until is None or now < until]

    # Reading

    async def _new(self, id: str) -> NewWebhook:
        secret, _ = (await secrets_of(self._store, key_of(self._tenant, id)))[0]
        return NewWebhook(endpoint=await self.get(id), secret=secret)

    async def _rows(self) -> list[Row]:
        query = Query(tenant=TENANT + self._tenant, agent=AGENT, order="created")
        return [row async for row in every_row(self._store, query, batch=PAGE)]

    async def _row(self, id: str) -> Row:
        check_name("endpoint", id)
        row = await self._store.row(key_of(self._tenant, id))
        if row is None or row.agent != AGENT:
            raise no_endpoint(id)
        return row

    async def _shown(self, row: Row) -> WebhookEndpoint | None:
        """Return an endpoint with its state; None if it is being removed."""
        try:
            record = await record_of(self._store, row.key)
            if record.why == "removed":
                return None
            letters, failing = await self._dead(row.session), await self._failing(row)
        except (SessionNotFound, LogReplaced):
            return None
        errors = [one.error for one in failing if one.error]
        errors += [letter.failed.error for letter in letters.open.values() if letter.failed.error]
        return replace(
            record.endpoint,
            state="stopped" if record.why else "failing" if failing else "active",
            failing=len(failing),
            dead=len(letters.open),
            error=errors[0] if errors else None,
        )

    async def _dead(self, id: str) -> DeadLetters:
        letters, key = DeadLetters(), key_of(self._tenant, id, DEAD)
        with contextlib.suppress(SessionNotFound):
            await letters.catch_up(self._store.read(key))
        return letters

    async def _failing(self, row: Row) -> list[ev.SurfaceFailed]:
        """Return the latest failure of each log whose next event could not be delivered, of those
        with recent activity."""
        query = Query(tenant=row.tenant, session=row.session)
        page = await self._store.find(query, limit=PAGE)
        found = []
        for one in page.items:
            if one.thread in OWN or one.due is None:
                continue
            if isinstance(failed := await last(self._store, one), ev.SurfaceFailed):
                found.append(failed)
        return found

    # Writing

    def _event(self, payload: ev.Payload) -> NewEvent:
        return event_of(payload, self._actor)

    async def _change(self, key: Key, payload: ev.SurfaceHooked) -> None:
        changed = replace(payload, due=wall_clock())
        await self._store.append(key, [self._event(changed)])

    async def _close_items(self, id: str, outcome: Any) -> None:
        """Settle the open questions about an endpoint."""
        row = await self._store.row(inbox_of(self._tenant, id))
        for item in [] if row is None else row.pending:
            payload = ev.PendingSettled(id=item, outcome=outcome)
            event = event_of(payload, self._actor, id=ids.settle_id(item))
            await self._store.append(inbox_of(self._tenant, id), [event])

    async def _forget_secrets(self, key: Key) -> None:
        """Erase the secrets that are no longer valid."""
        expired, until = list[int](), list[int]()
        async for event in self._store.read(key, reverse=True):
            payload = typed(event)
            if not isinstance(payload, ev.SurfaceHooked):  # it was erased
                continue
            if until and min(until) <= wall_clock():
                expired.append(event.seq)
            until += [] if payload.until is None else [payload.until]
        if expired:
            await self._store.erase(key, expired, reason="the secret was replaced")

    async def list(self) -> list[WebhookEndpoint]:
        """Return all endpoints, the newest first."""
        found = [await self._shown(row) for row in await self._rows()]
        return [one for one in found if one is not None]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def _filters(**given: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, values in given.items():
        if isinstance(values, str):
            raise InvalidValue(
                field=name, problem="is one text", remedy="pass several names, or one in a list"
            )
        found[name] = [*dict.fromkeys(values)]
        if len(found[name]) > MOST:
            raise InvalidValue(
                field=name,
                problem=f"has {len(found[name])} entries",
                remedy=f"pass at most {MOST}",
                limit=MOST,
            )
        for value in found[name]:
            check_name(name, value)
    check_kinds(found["kinds"])
    return found
