"""The driver's errors: which of them are temporary, and which Holdfast error each is translated to.
No message contains a URL. The driver's error is the cause; its text may contain hosts and commands,
but never credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)

from ...errors import HoldfastError, StoreError, StoreUnavailable

# Codes of a server that is stopping, stepping down, electing, or busy.
_PASSING = {
    6,  # HostUnreachable
    7,  # HostNotFound
    24,  # LockTimeout
    43,  # CursorNotFound
    46,  # LockBusy
    50,  # MaxTimeMSExpired
    64,  # WriteConcernFailed
    89,  # NetworkTimeout
    91,  # ShutdownInProgress
    112,  # WriteConflict
    133,  # FailedToSatisfyReadPreference
    134,  # ReadConcernMajorityNotAvailableYet
    175,  # QueryPlanKilled
    189,  # PrimarySteppedDown
    234,  # RetryChangeStream
    237,  # CursorKilled
    262,  # ExceededTimeLimit
    276,  # IndexBuildAborted
    9001,  # SocketException
    10107,  # NotWritablePrimary
    11600,  # InterruptedAtShutdown
    11601,  # Interrupted
    11602,  # InterruptedDueToReplStateChange
    13388,  # StaleConfig
    13435,  # NotPrimaryNoSecondaryOk
    13436,  # NotPrimaryOrSecondary
}
_DUPLICATE = 11000
_ILLEGAL = 20
_FULL = {14031}  # OutOfDiskSpace
_DENIED = {
    11,  # UserNotFound
    13,  # Unauthorized
    18,  # AuthenticationFailed
    33,  # AuthSchemaIncompatible
    8000,  # AtlasError
}
_LABELS = ("RetryableWriteError", "TransientTransactionError", "ResumableChangeStreamError")


def passing(error: Exception) -> bool:
    """Return whether the error is temporary, so that the same call may succeed soon."""
    if isinstance(error, BulkWriteError):
        return _bulk_passing(error)
    if isinstance(error, OperationFailure) and _codes(error) & (_FULL | _DENIED):
        return False
    if isinstance(error, (ConnectionFailure, WriteConcernError, TimeoutError)):
        return True
    if _unlocked(error):
        return True
    if isinstance(error, PyMongoError) and any(error.has_error_label(name) for name in _LABELS):
        return True
    if not isinstance(error, OperationFailure):
        return False
    return bool(_codes(error) & _PASSING) or _mistaken(error)


def _mistaken(error: OperationFailure) -> bool:
    """Return whether the driver mistook a standalone server for a replica set. This can happen when
    connections are lost. Nothing was written in this case."""
    return error.code == _ILLEGAL and "Transaction numbers" in str(error)


def _unlocked(error: Exception) -> bool:
    """Return whether the driver released one of its own locks twice. On Python 3.11 it does so if a
    call is cancelled while it waits for a primary or a connection; then another call fails."""
    return isinstance(error, RuntimeError) and "Lock is not acquired" in str(error)


def _codes(error: OperationFailure) -> set[int]:
    """Return the error codes in a reply: its own, and that of its write concern."""
    concern = (error.details or {}).get("writeConcernError") or {}
    return {code for code in (error.code, concern.get("code")) if code is not None}


def _bulk_passing(error: BulkWriteError) -> bool:
    details = error.details
    codes = {failed.get("code") for failed in details.get("writeErrors", ())}
    return codes <= _PASSING | {_DUPLICATE}


def only_duplicates(error: BulkWriteError) -> bool:
    """Return whether an insert failed only because the document already exists."""
    details = error.details
    codes = {failed.get("code") for failed in details.get("writeErrors", ())}
    return codes == {_DUPLICATE} and not details.get("writeConcernErrors")


@contextmanager
def translated() -> Iterator[None]:
    """Translate the driver's errors into Holdfast's, with the driver's error as the cause."""
    try:
        yield
    except HoldfastError:
        raise
    except (OperationFailure, BSONError, PyMongoError) as error:
        raise _ours(error) from error


def _ours(error: Exception) -> StoreError:
    codes = _codes(error) if isinstance(error, OperationFailure) else set()
    if isinstance(error, BulkWriteError):
        codes |= {failed.get("code") for failed in error.details.get("writeErrors", ())}
    if codes & _DENIED:
        return StoreError(
            problem=f"the server rejected the request: {_text(error)}; "
            "check the user's name and password, and grant it readWrite on the database"
        )
    if codes & _FULL:
        return StoreUnavailable(
            problem="the server's disk is full and nothing was written: free some space, then retry"
        )
    if isinstance(error, ConfigurationError):
        return StoreError(
            problem=f"the MongoDB driver does not support this server or option: {_text(error)}"
        )
    if passing(error):
        return StoreUnavailable(problem=f"the database is unavailable: {_text(error)}")
    return StoreError(problem=f"the store failed: {_text(error)}")


def _text(error: Exception) -> str:
    """Return the error as one line; the server's full reply is in the cause."""
    if isinstance(error, OperationFailure) and error.details:
        name = error.details.get("codeName")
        text = error.details.get("errmsg") or str(error)
        return f"{text} ({name})" if name else str(text)
    return str(error).split(", full error:")[0].split(", Topology Description:")[0]
