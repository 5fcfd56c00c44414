"""The driver's errors: which of them are temporary, and which Holdfast error each is translated
to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from asyncpg import exceptions as pg

from ...errors import HoldfastError, InvalidValue, StoreError, StoreUnavailable

# The server is unavailable, starting or stopping, or aborted this transaction in favour of another.
PASSING: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    pg.InternalClientError,  # the driver found its connection closing
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.IdleSessionTimeoutError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.TooManyConnectionsError,
    pg.TransactionRollbackError,
    pg.ReadOnlySQLTransactionError,
    pg.InvalidCachedStatementError,  # the schema changed since the statement was prepared
)
# The server responds, but cannot write now. Waiting would only block the caller.
FULL: tuple[type[BaseException], ...] = (
    pg.InsufficientResourcesError,
    pg.PostgresSystemError,
    pg.QueryCanceledError,
    pg.LockNotAvailableError,
)


def passing(error: Exception) -> bool:
    """Return whether the error is temporary, so that the same attempt may succeed soon."""
    return isinstance(error, PASSING) and not isinstance(error, pg.ClientConfigurationError)


def broken(error: BaseException) -> bool:
    """Return whether the connection can no longer be used."""
    return isinstance(error, PASSING) and not isinstance(error, pg.TransactionRollbackError)


@contextmanager
def translated() -> Iterator[None]:
    """Context manager that translates the driver's errors into Holdfast errors, with the driver's
    error as the cause. The server's text may quote a value, so the message has only the error's
    class and code."""
    try:
        yield
    except HoldfastError:
        raise
    except (pg.ClientConfigurationError, pg.UndefinedObjectError) as error:
        raise InvalidValue(
            field="url",
            problem="has an option or value that the driver or the server does not support",
            remedy="see docs/postgres.md and the documentation of libpq",
        ) from error
    except (*PASSING, *FULL) as error:
        raise StoreUnavailable(problem=f"the database is unavailable: {_named(error)}") from error
    except pg.InsufficientPrivilegeError as error:
        raise StoreError(
            problem=f"the database user lacks a privilege: {error.args[0]}; grant it, or let a "
            "user who has it run `holdfast migrate` once"
        ) from error
    except (pg.InvalidPasswordError, pg.InvalidAuthorizationSpecificationError) as error:
        raise StoreError(
            problem=f"the server rejected the login ({_named(error)}): check user and password"
        ) from error
    except pg.InvalidCatalogNameError as error:
        raise StoreError(problem="the database does not exist: create it first") from error
    except asyncpg.PostgresError as error:
        raise StoreError(problem=f"the store failed: {_named(error)}") from error


def _named(error: BaseException) -> str:
    code = getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__
