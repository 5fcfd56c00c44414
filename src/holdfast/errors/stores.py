"""Errors about sessions, logs and stores."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, instead


@dataclass(eq=False, kw_only=True)
class SessionNotFound(HoldfastError):
    """The tenant has no such thread: it was never created, or it was deleted."""

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
    """A session or thread cannot be created, because it already exists."""

    code = "session_exists"
    template = "thread {thread!r} of session {session!r} already exists"

    tenant: str
    session: str
    thread: str = "main"


@dataclass(eq=False, kw_only=True)
class SessionMoved(HoldfastError):
    """The log accepts no events, because its session was moved to another store or server."""

    code = "session_moved"
    template = "session {session!r} was moved to {to!r} and accepts no events here"

    tenant: str
    session: str
    thread: str
    to: str


@dataclass(eq=False, kw_only=True)
class PhaseError(HoldfastError):
    """The phase of the session does not allow this operation."""

    code = "phase_error"
    template = "session {session!r} is {phase}: {move} is not allowed"

    tenant: str
    session: str
    phase: str
    move: str


@dataclass(eq=False, kw_only=True)
class SurfaceTaken(HoldfastError):
    """The surface belongs to another live session. Pass `move=True` to take it over."""

    code = "surface_taken"
    template = "surface {surface} {address!r} belongs to session {session!r}"

    tenant: str
    session: str
    surface: str
    address: str


@dataclass(eq=False, kw_only=True)
class DeletionRefused(HoldfastError):
    """The session cannot be deleted now, for example because of a legal hold."""

    code = "deletion_refused"
    template = "session {session!r} cannot be deleted: {reason}"

    tenant: str
    session: str
    reason: str


@dataclass(eq=False, kw_only=True)
class HeadMoved(HoldfastError):
    """Another writer appended first. Read the new events, then decide again."""

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
    """The log was deleted and created again. Read it from the beginning."""

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
    """The lease was released, or another driver took it over. Stop driving the session."""

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
    """Another driver has the lease. Wait until it expires, or take it over with `steal=reason`."""

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
    """The session has no blob with this hash."""

    code = "blob_not_found"
    template = "session {session!r} has no blob {sha256}"

    tenant: str
    session: str
    sha256: str


@dataclass(eq=False, kw_only=True)
class StoreError(HoldfastError):
    """The backend failed; the database driver's error is `__cause__`."""

    code = "store_error"
    template = "{problem}"

    problem: str


@dataclass(eq=False, kw_only=True)
class StoreUnavailable(StoreError):
    """The backend did not respond or rejected a write. The same call may be retried."""

    code = "store_unavailable"
    retryable = True


@dataclass(eq=False, kw_only=True)
class StoreTooNew(StoreError):
    """A newer version of Holdfast wrote this store. Upgrade this program."""

    code = "store_too_new"

    found: int
    known: int


@dataclass(eq=False, kw_only=True)
class StoreDamaged(StoreError):
    """The database file is malformed. Restore a backup."""

    code = "store_damaged"


@dataclass(eq=False, kw_only=True)
class StoreReplaced(StoreError):
    """The file at `path` was removed or replaced while the store was open. Reads and writes fail
    from then on: close the store, restore the file, and open the store again."""

    code = "store_replaced"

    path: str


@dataclass(eq=False, kw_only=True)
class LogDamaged(StoreError):
    """One event is missing or cannot be read. All events before it were returned; to read the
    events after it, pass `after=seq`."""

    code = "log_damaged"

    tenant: str
    session: str
    thread: str
    seq: int


@dataclass(eq=False, kw_only=True)
class KeyMissing(StoreError):
    """The data is encrypted with a key that the vault does not have. `seq` is the number of the
    encrypted event, if it is known."""

    code = "key_missing"

    tenant: str
    key: str
    seq: int | None = None


@dataclass(eq=False, kw_only=True)
class UnknownStore(HoldfastError):
    """There is no such kind of store. `available` lists the available kinds."""

    code = "unknown_store"

    kind: str
    available: list[str]

    def __str__(self) -> str:
        return f"unknown kind of store {self.kind!r}: {instead(self.kind, self.available)}"
