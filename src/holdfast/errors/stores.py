"""Errors about sessions, logs and stores."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, instead


@dataclass(eq=False, kw_only=True)
class SessionNotFound(HoldfastError):
    """The tenant has no such thread: it was never created, or it was deleted.

    What to do: [`session_not_found`](../errors.md#session_not_found).
    """

    code = "session_not_found"
    template = (
        "no thread {thread!r} of session {session!r} in tenant {tenant!r}: check the id, or "
        "create the session first"
    )

    tenant: str
    session: str
    thread: str = "main"


@dataclass(eq=False, kw_only=True)
class SessionExists(HoldfastError):
    """A session or thread cannot be created, because it already exists.

    What to do: [`session_exists`](../errors.md#session_exists).
    """

    code = "session_exists"
    template = "thread {thread!r} of session {session!r} already exists"

    tenant: str
    session: str
    thread: str = "main"


@dataclass(eq=False, kw_only=True)
class SessionMoved(HoldfastError):
    """The log accepts no events, because its session was moved to another store or server.

    What to do: [`session_moved`](../errors.md#session_moved).
    """

    code = "session_moved"
    template = "session {session!r} was moved to {to!r} and accepts no events here"

    tenant: str
    session: str
    thread: str
    to: str


@dataclass(eq=False, kw_only=True)
class PhaseError(HoldfastError):
    """The phase of the session does not allow this operation.

    What to do: [`phase_error`](../errors.md#phase_error).
    """

    code = "phase_error"
    template = "session {session!r} is {phase}: {move} is not allowed"

    tenant: str
    session: str
    phase: str
    move: str


@dataclass(eq=False, kw_only=True)
class SurfaceTaken(HoldfastError):
    """The surface belongs to another live session. Pass `move=True` to take it over.

    What to do: [`surface_taken`](../errors.md#surface_taken).
    """

    code = "surface_taken"
    template = "surface {surface} {address!r} belongs to session {session!r}"

    tenant: str
    session: str
    surface: str
    address: str


@dataclass(eq=False, kw_only=True)
class DeletionRefused(HoldfastError):
    """The session cannot be deleted now, for example because of a legal hold.

    What to do: [`deletion_refused`](../errors.md#deletion_refused).
    """

    code = "deletion_refused"
    template = "session {session!r} cannot be deleted: {reason}"

    tenant: str
    session: str
    reason: str


@dataclass(eq=False, kw_only=True)
class HeadMoved(HoldfastError):
    """Another writer appended first. Read the new events, then decide again.

    What to do: [`head_moved`](../errors.md#head_moved).
    """

    code = "head_moved"
    retryable = True
    template = (
        "thread {thread!r} of session {session!r} is at event {head}, but {expected} was expected"
    )

    tenant: str
    session: str
    thread: str
    expected: int
    head: int


@dataclass(eq=False, kw_only=True)
class LogReplaced(HoldfastError):
    """The log was deleted and created again. Read it from the beginning.

    What to do: [`log_replaced`](../errors.md#log_replaced).
    """

    code = "log_replaced"
    template = (
        "thread {thread!r} of session {session!r} was deleted and created again; log {known!r} no "
        "longer exists"
    )

    tenant: str
    session: str
    thread: str
    known: str
    log: str | None


@dataclass(eq=False, kw_only=True)
class LeaseLost(HoldfastError):
    """The lease was released, or another driver took it over. Stop driving the session.

    What to do: [`lease_lost`](../errors.md#lease_lost).
    """

    code = "lease_lost"

    tenant: str
    session: str
    thread: str
    token: int
    newest: int
    owner: str | None

    def __str__(self) -> str:
        holder = f"held by {self.owner!r}" if self.owner else "released"
        return (
            f"lease {self.token} of thread {self.thread!r} of session {self.session!r} "
            f"is no longer valid: the newest lease is {self.newest} ({holder})"
        )


@dataclass(eq=False, kw_only=True)
class LeaseHeld(HoldfastError):
    """Another driver has the lease. Wait until it expires, or take it over with `steal=reason`.

    What to do: [`lease_held`](../errors.md#lease_held).
    """

    code = "lease_held"
    retryable = True
    template = (
        "thread {thread!r} of session {session!r} is driven by {owner!r}; its lease expires in "
        "{left} ms"
    )

    tenant: str
    session: str
    thread: str
    owner: str
    since: int
    left: int


@dataclass(eq=False, kw_only=True)
class BlobNotFound(HoldfastError):
    """The session has no blob with this hash.

    What to do: [`blob_not_found`](../errors.md#blob_not_found).
    """

    code = "blob_not_found"
    template = "session {session!r} has no blob {sha256}"

    tenant: str
    session: str
    sha256: str


@dataclass(eq=False, kw_only=True)
class StoreError(HoldfastError):
    """The backend failed; the database driver's error is `__cause__`.

    What to do: [`store_error`](../errors.md#store_error).
    """

    code = "store_error"
    template = "{problem}"

    problem: str


@dataclass(eq=False, kw_only=True)
class StoreUnavailable(StoreError):
    """The backend did not respond or rejected a write. The same call may be retried.

    What to do: [`store_unavailable`](../errors.md#store_unavailable).
    """

    code = "store_unavailable"
    retryable = True


@dataclass(eq=False, kw_only=True)
class StoreTooNew(StoreError):
    """A newer version of Holdfast wrote this store. Upgrade this program.

    What to do: [`store_too_new`](../errors.md#store_too_new).
    """

    code = "store_too_new"

    found: int
    known: int


@dataclass(eq=False, kw_only=True)
class StoreDamaged(StoreError):
    """The database file is malformed. Restore a backup.

    What to do: [`store_damaged`](../errors.md#store_damaged).
    """

    code = "store_damaged"


@dataclass(eq=False, kw_only=True)
class StoreReplaced(StoreError):
    """The file at `path` was removed or replaced while the store was open. Reads and writes fail
    from then on: close the store, restore the file, and open the store again.

    What to do: [`store_replaced`](../errors.md#store_replaced).
    """

    code = "store_replaced"

    path: str


@dataclass(eq=False, kw_only=True)
class LogDamaged(StoreError):
    """One event is missing or cannot be read. All events before it were returned; to read the
    events after it, pass `after=seq`.

    What to do: [`log_damaged`](../errors.md#log_damaged).
    """

    code = "log_damaged"

    tenant: str
    session: str
    thread: str
    seq: int


@dataclass(eq=False, kw_only=True)
class KeyMissing(StoreError):
    """The data is encrypted with a key that the vault does not have. `seq` is the number of the
    encrypted event, if it is known.

    What to do: [`key_missing`](../errors.md#key_missing).
    """

    code = "key_missing"

    tenant: str
    key: str
    seq: int | None = None


@dataclass(eq=False, kw_only=True)
class UnknownStore(HoldfastError):
    """There is no such kind of store. `available` lists the available kinds.

    What to do: [`unknown_store`](../errors.md#unknown_store).
    """

    code = "unknown_store"

    kind: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown kind of store {self.kind!r}: {instead(self.kind, self.available)}"
