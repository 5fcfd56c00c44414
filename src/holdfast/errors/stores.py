"""What a store, a log or a life cycle refuses, and how a database fails."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, instead


@dataclass(eq=False, kw_only=True)
class SessionNotFound(HoldfastError):
    """No log has this key in this tenant: never made, or deleted."""

    code = "session_not_found"

    tenant: str
    session: str
    thread: str = "main"

    def __str__(self) -> str:
        return (
            f"no thread {self.thread!r} of session {self.session!r} in tenant {self.tenant!r}: "
            "check the id, or begin the session first"
        )


@dataclass(eq=False, kw_only=True)
class SessionExists(HoldfastError):
    """The key that should begin a log has one already."""

    code = "session_exists"

    tenant: str
    session: str
    thread: str = "main"

    def __str__(self) -> str:
        return f"thread {self.thread!r} of session {self.session!r} exists already"


@dataclass(eq=False, kw_only=True)
class SessionMoved(HoldfastError):
    """The log was sealed because its session continues elsewhere."""

    code = "session_moved"

    tenant: str
    session: str
    thread: str
    to: str

    def __str__(self) -> str:
        return f"session {self.session!r} was moved to {self.to!r} and takes no new events here"


@dataclass(eq=False, kw_only=True)
class PhaseError(HoldfastError):
    """The session's phase does not allow this."""

    code = "phase_error"

    tenant: str
    session: str
    phase: str
    move: str

    def __str__(self) -> str:
        return f"session {self.session!r} is {self.phase}: {self.move} is not possible"


@dataclass(eq=False, kw_only=True)
class SurfaceTaken(HoldfastError):
    """Another live session has this surface: move it on purpose, or leave it there."""

    code = "surface_taken"

    tenant: str
    session: str
    surface: str
    address: str

    def __str__(self) -> str:
        return f"{self.surface} {self.address!r} is attached to session {self.session!r}"


@dataclass(eq=False, kw_only=True)
class DeletionRefused(HoldfastError):
    """The session must be kept: what keeps it is `reason`."""

    code = "deletion_refused"

    tenant: str
    session: str
    reason: str

    def __str__(self) -> str:
        return f"session {self.session!r} must be kept: {self.reason}"


@dataclass(eq=False, kw_only=True)
class HeadMoved(HoldfastError):
    """Another writer appended first: read what it wrote, then decide again."""

    code = "head_moved"
    retryable = True

    tenant: str
    session: str
    thread: str
    expected: int
    head: int

    def __str__(self) -> str:
        return (
            f"thread {self.thread!r} of session {self.session!r} "
            f"is at event {self.head}, not {self.expected}"
        )


@dataclass(eq=False, kw_only=True)
class LogReplaced(HoldfastError):
    """The log under this key is another one than the caller knew: start from its beginning."""

    code = "log_replaced"

    tenant: str
    session: str
    thread: str
    known: str
    log: str | None

    def __str__(self) -> str:
        return (
            f"thread {self.thread!r} of session {self.session!r} is not log {self.known!r} any more"
        )


@dataclass(eq=False, kw_only=True)
class LeaseLost(HoldfastError):
    """The lease was released, or somebody else took the thread over: stop driving."""

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
            f"is not the newest, which is {self.newest} ({holder})"
        )


@dataclass(eq=False, kw_only=True)
class LeaseHeld(HoldfastError):
    """Somebody drives this thread: wait, or take over with `steal=reason`."""

    code = "lease_held"
    retryable = True

    tenant: str
    session: str
    thread: str
    owner: str
    since: int
    left: int

    def __str__(self) -> str:
        return (
            f"thread {self.thread!r} of session {self.session!r} is driven by {self.owner!r} "
            f"since {self.since} for {self.left} ms more"
        )


@dataclass(eq=False, kw_only=True)
class BlobNotFound(HoldfastError):
    """The session owns no blob with this hash."""

    code = "blob_not_found"

    tenant: str
    session: str
    sha256: str

    def __str__(self) -> str:
        return f"session {self.session!r} has no blob {self.sha256}"


@dataclass(eq=False, kw_only=True)
class StoreError(HoldfastError):
    """The backend failed; the driver's error is `__cause__`."""

    code = "store_error"

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class StoreUnavailable(StoreError):
    """The backend did not answer or refused to write; the same call may be sent again."""

    code = "store_unavailable"
    retryable = True


@dataclass(eq=False, kw_only=True)
class StoreTooNew(StoreError):
    """A newer Holdfast wrote this store: upgrade this program."""

    code = "store_too_new"

    found: int
    known: int


@dataclass(eq=False, kw_only=True)
class StoreDamaged(StoreError):
    """The database file itself is malformed: `verify` reports what can still be told; put a backup
    in its place."""

    code = "store_damaged"


@dataclass(eq=False, kw_only=True)
class StoreReplaced(StoreError):
    """The file at `path` was removed or replaced while the store had it open. Nothing more is
    written or read: close the store, and open it again once the right file is there."""

    code = "store_replaced"

    path: str


@dataclass(eq=False, kw_only=True)
class LogDamaged(StoreError):
    """One event cannot be read, or is missing. Nothing behind it was given before this was raised;
    `after=seq` continues behind it."""

    code = "log_damaged"

    tenant: str
    session: str
    thread: str
    seq: int


@dataclass(eq=False, kw_only=True)
class KeyMissing(StoreError):
    """What is asked for, or event `seq` of it, is encrypted by a key that the vault does not
    have."""

    code = "key_missing"

    tenant: str
    key: str
    seq: int | None = None


@dataclass(eq=False, kw_only=True)
class UnknownStore(HoldfastError):
    """No store of this kind is to be had here: ask for one of `available`."""

    code = "unknown_store"

    kind: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no store of kind {self.kind!r}; {instead(self.kind, self.available)}"
