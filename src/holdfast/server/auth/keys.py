"""Bearer keys: kept in the store, hashed, one log a key, so that every replica knows them and
what was done to them stays known. A key is shown once, when it is made.

A key is `hk_`, twelve characters that name it, and forty-three that are the secret. Of the
secret the log has the SHA-256: it is random and long, so nothing slower is needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import string
import time
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import HeadMoved, InvalidValue
from ...log import events as ev
from ...log.catalog import Query
from ...log.codec import check_name
from ...log.events import Event, Key, NewEvent
from ...stores.port import Store, wall_clock
from .callers import USUAL, Caller, Credentials, check_scopes, check_tenant

TENANT = "~keys"
PREFIX = "hk_"
LETTERS = string.ascii_letters + string.digits
NAME, SECRET = 12, 43
FRESH = 5.0  # seconds that a key is known without a look at the store
KNOWN = 10_000  # keys that are remembered at most
PAGE = 1_000


class KeyIssued(Struct, frozen=True, kw_only=True):
    """A secret, by its hash, that stands for these. `old_until` is how long earlier ones do."""

    hash: str
    tenant: str
    principal: str
    scopes: list[str]
    expires: int | None = None
    label: str | None = None
    old_until: int | None = None


class KeyInfo(Struct, frozen=True, kw_only=True):
    """A key as it may be shown. Times are UTC ms."""

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


class NewKey(Struct, frozen=True, kw_only=True):
    """A key that was just made: the only time that it is shown."""

    key: str
    info: KeyInfo

    def __repr__(self) -> str:
        return f"NewKey(id={self.info.id!r})"


class Keys:
    """The keys of a server, in its store."""

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
        """A new key, valid at once; `expires` (UTC ms) is never unless it is given."""
        check_tenant(tenant)
        check_name("principal", principal, limit=256)
        if label is not None:
            check_name("label", label)
        if expires is not None and expires <= self._clock():
            problem, remedy = "is in the past", "give a time to come"
            raise InvalidValue(field="expires", problem=problem, remedy=remedy)
        id, secret = _random(NAME), _random(SECRET)
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
        """The tenants that have keys."""
        return sorted({info.tenant for info in await self.list() if info.revoked is None})

    async def list(self, tenant: str | None = None) -> list[KeyInfo]:
        """All keys, or those of a tenant, the newest first."""
        query = Query(tenant=TENANT, workspace=tenant, order="created")
        found, cursor = [], None
        while True:
            page = await self._store.find(query, cursor=cursor, limit=PAGE)
            found += [(await self._record(row.session)).info for row in page.items]
            if (cursor := page.cursor) is None:
                return found

    async def get(self, id: str) -> KeyInfo:
        """A key, valid or not (`InvalidValue` where there is none)."""
        return (await self._record(id)).info

    async def revoke(self, id: str) -> KeyInfo:
        """Let a key be good for nothing, from now on and for ever."""
        record = await self._record(id)
        if record.info.revoked is None:
            event = NewEvent.of("key.revoked", {}, id=f"revoke:{id}")
            await self._store.append(_key(id), [event])
        return (await self._record(id)).info

    async def rotate(self, id: str, *, grace: int = 0, expires: int | None = None) -> NewKey:
        """A new secret for a key; the old one is good for `grace` seconds more."""
        while True:
            record = await self._record(id)
            if record.info.revoked is not None:
                problem, remedy = f"key {id!r} is revoked", "create a new one"
                raise InvalidValue(field="id", problem=problem, remedy=remedy)
            secret, info = _random(SECRET), record.info
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

    async def _record(self, id: str) -> Record:
        record = await self.record(id)
        if record is None:
            problem, remedy = f"there is no key {id!r}", "list them with `holdfast keys list`"
            raise InvalidValue(field="id", problem=problem, remedy=remedy)
        return record

    async def record(self, id: str) -> Record | None:
        """What the log says of a key, if there is one."""
        if await self._store.row(_key(id)) is None:
            return None
        record: Record | None = None
        async for event in self._store.read(_key(id)):
            record = _fold(id, record, event)
        return record


class Record(Struct, frozen=True):
    """A key with the hashes of its secrets, each with the time until which it is good."""

    info: KeyInfo
    hashes: tuple[tuple[str, int | None], ...]
    head: int

    def fits(self, secret: str, now: int) -> bool:
        """Whether this is the secret of a key that is valid. Looks at all, in constant time."""
        given, fits = hashed(secret), False
        for known, until in self.hashes:
            fits |= hmac.compare_digest(given, known) and (until is None or now < until)
        return fits and self.info.valid(now)


def _fold(id: str, record: Record | None, event: Event) -> Record | None:
    if event.kind == "key.issued":
        issued = msgspec.json.decode(event.data, type=KeyIssued)
        known = () if record is None else record.hashes
        old = [(hash, _sooner(until, issued.old_until)) for hash, until in known]
        created = event.at if record is None else record.info.created
        info = KeyInfo(
            id=id,
            tenant=issued.tenant,
            principal=issued.principal,
            scopes=issued.scopes,
            created=created,
            expires=issued.expires,
            label=issued.label,
            rotated=None if record is None else event.at,
        )
        return Record(info, ((issued.hash, None), *old), event.seq)
    if event.kind == "key.revoked" and record is not None:
        return Record(replace(record.info, revoked=event.at), record.hashes, event.seq)
    return record if record is None else Record(record.info, record.hashes, event.seq)


def _sooner(one: int | None, other: int | None) -> int | None:
    times = [time for time in (one, other) if time is not None]
    return min(times) if times else None


class KeyAuth:
    """Knows callers by their keys. A key is looked up in the store again every five seconds, so
    that one that was revoked is refused by every replica within them."""

    def __init__(self, keys: Keys, *, clock: Callable[[], int] = wall_clock) -> None:
        self._keys, self._clock = keys, clock
        self._known: dict[str, tuple[float, Record]] = {}
        self._looking: dict[str, asyncio.Task[Record | None]] = {}

    async def authenticate(self, shown: Credentials) -> Caller | None:
        parts = split(shown.bearer() or "")
        if parts is None:
            return None
        id, secret = parts
        record = await self._look(id)
        if record is None or not record.fits(secret, self._clock()):
            return None
        info = record.info
        return Caller(
            tenant=info.tenant, principal=info.principal, scopes=frozenset(info.scopes), key=id
        )

    async def _look(self, id: str) -> Record | None:
        """What is known of a key: looked up once by all who ask at the same time. A key that is
        not there is not remembered, so that guesses cost no room."""
        known = self._known.get(id)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        looking = self._looking.get(id)
        if looking is None:
            looking = self._looking[id] = asyncio.create_task(self._keys.record(id))
            looking.add_done_callback(lambda _: self._looking.pop(id, None))
        record = await asyncio.shield(looking)
        self._known.pop(id, None)
        if record is not None:
            while len(self._known) >= KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[id] = (time.monotonic() + FRESH, record)
        return record


def split(key: str) -> tuple[str, str] | None:
    """The name and the secret of a key, if it has the form of one."""
    body = key.removeprefix(PREFIX)
    whole = key.startswith(PREFIX) and len(body) == NAME + SECRET
    if not whole or not body.isascii() or not body.isalnum():
        return None
    return body[:NAME], body[NAME:]


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(length))


def _key(id: str) -> Key:
    return Key(TENANT, id, "main")
