"""Keys, ids and the envelope of an event.

An event records one fact. The fields of its envelope are fixed; fields that later versions may add
are in `data`, one line of JSON text that is stored unchanged.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from ...environment import new_id
from ...errors import InvalidValue

T = TypeVar("T")


class Scope(Struct, frozen=True, order=True, gc=False):
    """The identity of one session: its tenant and its id.

    See [the log](../the-log.md).
    """

    tenant: str
    session: str


class Key(Struct, frozen=True, order=True, gc=False):
    """The identity of one log: the tenant, the session and the thread.

    See [the log](../the-log.md).
    """

    tenant: str
    session: str
    thread: str

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.session)


def key(session: str, thread: str = "main", tenant: str = "main") -> Key:
    """Return the key of a log. The thread and the tenant default to `main`.

    ```python
    log = key("customer-42")  # thread `main`, tenant `main`
    ```
    """
    return Key(tenant, session, thread)


def to_json(value: Any) -> Raw:
    """Encode a value as one line of JSON. Rejects values that JSON cannot represent, instead of
    changing them.

    See [the log](../the-log.md).
    """
    try:
        if isinstance(value, Raw):
            return Raw(msgspec.json.format(bytes(value), indent=-1))
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # UnicodeEncodeError, for a lone surrogate, is a ValueError; so is msgspec's own.
        raise InvalidValue(
            field="data", problem=f"cannot be written as JSON ({error})", remedy="use JSON values"
        ) from error
    # msgspec silently writes NaN and the infinities as null.
    if b"null" in text and _not_a_number(value):
        raise InvalidValue(
            field="data", problem="contains NaN or infinity", remedy="use a string or null for them"
        )
    return Raw(text)


def _not_a_number(value: Any) -> bool:
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return True
        if isinstance(item, dict):
            todo.extend(item.keys())
            todo.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            todo.extend(item)
        elif not isinstance(item, (str, int, float, type(None), Raw)):
            todo.append(msgspec.to_builtins(item, enc_hook=str))  # a Struct, an Enum, …
    return False


class NewEvent(Struct, frozen=True, kw_only=True, gc=False):
    """An event that is not in a log yet. Its id is also its idempotency key.

    ```python
    await store.append(key("customer-42"), [NewEvent.of("message.received", {"text": "Hello"})])
    ```
    """

    kind: str
    data: Raw
    id: str = field(default_factory=new_id)
    v: int = 1
    run: str | None = None
    actor: str | None = None
    cause: str | None = None

    @classmethod
    def of(cls, kind: str, payload: Any = None, **rest: Any) -> NewEvent:
        """Return a new event of this kind. `payload` is a Struct, a dict or any JSON value, and is
        encoded as JSON."""
        return cls(kind=kind, data=to_json({} if payload is None else payload), **rest)

    def numbered(self, seq: int, at: int) -> Event:
        """Return the event as it is stored in a log. A store calls this method when it knows the
        event's number, because the stored data may depend on the number."""
        return Event(
            kind=self.kind,
            data=self.data,
            id=self.id,
            v=self.v,
            run=self.run,
            actor=self.actor,
            cause=self.cause,
            seq=seq,
            at=at,
        )


class Event(NewEvent, frozen=True, kw_only=True, gc=False):
    """An event in a log. `seq` is its number, from 1 without gaps; `at` is the time of the store's
    clock, UTC in ms.

    ```python
    async for event in store.read(key("customer-42")):
        print(event.seq, event.kind, event.json())
    ```
    """

    seq: int
    at: int

    def payload(self, type: type[T]) -> T:
        """Return the data decoded as `type`; fields that `type` does not have are ignored."""
        return msgspec.json.decode(self.data, type=type)

    def json(self) -> Any:
        """Return the data as plain Python values."""
        return msgspec.json.decode(self.data)


class Lease(Struct, frozen=True, kw_only=True):
    """The right to drive a thread until `until` (ms). Passed to writes as `fence=`.

    ```python
    lease = await store.acquire(log, "worker-1", ttl=15)
    await store.append(log, events, fence=lease)
    ```
    """

    key: Key
    log: str
    token: int
    owner: str
    since: int
    until: int
    ttl: int
    reason: str | None = None


class Appended(Struct, frozen=True):
    """The result of an append: for each event, its number and whether it is new or was already
    stored, and how many events were new. `lease` is the lease that the caller holds after the
    append: the lease that `acquire=` took, or the lease that `release=` could not release.

    See [the log](../the-log.md).
    """

    seqs: tuple[int, ...]
    head: int
    fresh: int
    lease: Lease | None = None
