"""API keys. Only a hash of each key is stored, in a log of its own, so that every replica can read
it and its history is kept. A key is shown once, when it is created.

A key consists of `hk_`, an id of twelve characters, and a secret of forty-three characters. The log
contains the SHA-256 of the secret. The secret is long and random, so a slower hash is not needed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...environment import wall_clock
from ...errors import HeadMoved, InvalidValue
from ...local_token import random_text
from ...log import events as ev
from ...log.catalog import Query
from ...log.codec import check_name
from ...log.events import Event, Key, NewEvent
from ...stores.pages import every_row
from ...stores.port import Store
from .callers import USUAL, Caller, check_scopes, check_tenant

TENANT = "~keys"
PREFIX = "hk_"
NAME, SECRET = 12, 43
PAGE = 1_000


class KeyIssued(Struct, frozen=True, kw_only=True):
    """The event payload for a new secret of a key: its hash. Earlier secrets are valid until
    `old_until`."""

    hash: str
    tenant: str
    principal: str
    scopes: list[str]
    expires: int | None = None
    label: str | None = None
    old_until: int | None = None


class ApiKeyInfo(Struct, frozen=True, kw_only=True):
    """The public data of a key. Times are UTC ms.

    See [the server](../server.md).
    """

    id: str
    tenant: str
    principal: str
    scopes: list[str]
    created: int
    expires: int | None = None
    label: str | None = None
    revoked: int | None = None
    rotated: int | None = None

    def valid(self, now: int) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def caller(self) -> Caller:
        """Return the caller who authenticates with this key."""
        scopes = frozenset(self.scopes)
        return Caller(tenant=self.tenant, principal=self.principal, scopes=scopes, key=self.id)


class NewKey(Struct, frozen=True, kw_only=True):
    """A newly created key. Its secret is shown only here.

    See [the server](../server.md).
    """

    key: str
    info: ApiKeyInfo

    def __repr__(self) -> str:
        return f"NewKey(id={self.info.id!r})"


class ApiKeys:
    """Creates, lists, rotates and revokes the API keys of a server, which are kept in its store.

    See [the server](../server.md).
    """

    def __init__(self, store: Store, *, clock: Callable[[], int] = wall_clock) -> None:
        self._store, self._clock = store, clock

    async def create(
        self,
        *,
        principal: str,
        tenant: str = "main",
        scopes: Iterable[str] = USUAL,
        expires: int | None = None,
        label: str | None = None,
    ) -> NewKey:
        """Create a key, valid immediately. `expires` is UTC ms; by default, the key never
        expires."""
        check_tenant(tenant)
        check_name("principal", principal, limit=256)
        if label is not None:
            check_name("label", label)
        if expires is not None and expires <= self._clock():
            raise InvalidValue(
                field="expires",
                problem=f"{expires} is in the past",
                remedy="pass a time in the future",
            )
        id, secret = random_text(NAME), random_text(SECRET)
        issued = KeyIssued(
            hash=hashed(secret),
            tenant=tenant,
            principal=principal,
            scopes=sorted(check_scopes(scopes)),
            expires=expires,
            label=label,
        )
        created = ev.SessionCreated(user=principal, workspace=tenant, title=label)
        events = [NewEvent.of("session.created", created), NewEvent.of("key.issued", issued)]
        await self._store.append(_key(id), events, expected=0, create=True)
        return NewKey(key=f"{PREFIX}{id}{secret}", info=(await self._record(id)).info)

    async def tenants(self) -> list[str]:
        """Return the tenants that have keys."""
        return sorted({info.tenant for info in await self.list() if info.revoked is None})

    async def list(self, tenant: str | None = None) -> list[ApiKeyInfo]:
        """Return all keys, or the keys of a tenant, newest first."""
        query = Query(tenant=TENANT, workspace=tenant, order="created")
        rows = every_row(self._store, query, batch=PAGE)
        return [(await self._record(row.session)).info async for row in rows]

    async def get(self, id: str) -> ApiKeyInfo:
        """Return a key, valid or not. Raises `InvalidValue` if it does not exist."""
        return (await self._record(id)).info

    async def revoke(self, id: str) -> ApiKeyInfo:
        """Revoke a key permanently."""
        record = await self._record(id)
        if record.info.revoked is None:
            event = NewEvent.of("key.revoked", {}, id=f"revoke:{id}")
            await self._store.append(_key(id), [event])
        return (await self._record(id)).info

    async def rotate(self, id: str, *, grace: int = 0, expires: int | None = None) -> NewKey:
        """Create a new secret for a key. The old secret stays valid for `grace` seconds."""
        while True:
            record = await self._record(id)
            if record.info.revoked is not None:
                raise InvalidValue(
                    field="id", problem=f"key {id!r} is revoked", remedy="create a new key"
                )
            secret, info = random_text(SECRET), record.info
            issued = KeyIssued(
                hash=hashed(secret),
                tenant=info.tenant,
                principal=info.principal,
                scopes=info.scopes,
                expires=expires if expires is not None else info.expires,
                label=info.label,
                old_until=self._clock() + grace * 1000,
            )
            event = NewEvent.of("key.issued", issued)
            try:
                await self._store.append(_key(id), [event], expected=record.head)
            except HeadMoved:
                continue
            return NewKey(key=f"{PREFIX}{id}{secret}", info=(await self._record(id)).info)

    async def _record(self, id: str) -> KeyRecord:
        record = await self.record(id)
        if record is None:
            raise InvalidValue(
                field="id",
                problem=f"key {id!r} does not exist",
                remedy="list the keys with `holdfast keys list`",
            )
        return record

    async def record(self, id: str) -> KeyRecord | None:
        """Read a key from its log. Returns None if it does not exist."""
        if await self._store.row(_key(id)) is None:
            return None
        record: KeyRecord | None = None
        async for event in self._store.read(_key(id)):
            record = _fold(id, record, event)
        return record


class KeyRecord(Struct, frozen=True):
    """An API key as read from its log: the hashes of its secrets, and when each secret expires."""

    info: ApiKeyInfo
    hashes: tuple[tuple[str, int | None], ...]
    head: int

    def fits(self, secret: str, now: int) -> bool:
        """Return whether a secret belongs to this key and is valid. Compares with every stored
        hash, in constant time."""
        given, fits = hashed(secret), False
        for known, until in self.hashes:
            fits |= hmac.compare_digest(given, known) and (until is None or now < until)
        return fits and self.info.valid(now)


def _fold(id: str, record: KeyRecord | None, event: Event) -> KeyRecord | None:
    if event.kind == "key.issued":
        issued = msgspec.json.decode(event.data, type=KeyIssued)
        known = () if record is None else record.hashes
        old = [(hash, _sooner(until, issued.old_until)) for hash, until in known]
        created = event.at if record is None else record.info.created
        info = ApiKeyInfo(
            id=id,
            tenant=issued.tenant,
            principal=issued.principal,
            scopes=issued.scopes,
            created=created,
            expires=issued.expires,
            label=issued.label,
            rotated=None if record is None else event.at,
        )
        return KeyRecord(info, ((issued.hash, None), *old), event.seq)
    if event.kind == "key.revoked" and record is not None:
        return KeyRecord(replace(record.info, revoked=event.at), record.hashes, event.seq)
    return record if record is None else KeyRecord(record.info, record.hashes, event.seq)


def _sooner(one: int | None, other: int | None) -> int | None:
    times = [time for time in (one, other) if time is not None]
    return min(times) if times else None


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(id: str) -> Key:
    return Key(TENANT, id, "main")
