"""Checks the certificate and the store before a server starts to listen, so that an error is
reported once and not by every worker."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from ..errors import HoldfastError, MissingExtra, StoreError
from ..log.catalog import Query
from ..stores.retry import slow
from .auth.keys import TENANT
from .settings import KEYS, Settings


class ServerStarted(Struct, frozen=True, kw_only=True):
    """Describes a server that has started. `kept` is true if sessions are kept when the server
    stops, `known` if at least one caller can authenticate, and `open` if no authentication is
    needed. `token` is the local token. `console` is true if the console is served."""

    port: int
    kept: bool
    known: bool
    token: str | None = None
    open: bool = False
    console: bool = False

    def __repr__(self) -> str:
        return f"ServerStarted(port={self.port})"


def tls_faults(cert: str | None, key: str | None) -> Iterator[str]:
    """Yield the problems with a certificate and its key."""
    if cert is None and key is None:
        return
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        yield f"TLS needs a certificate and its key: also pass {missing}"
        return
    files = {"--tls-cert": cert, "--tls-key": key}
    absent = [f"{option} {at!r}" for option, at in files.items() if not Path(at).is_file()]
    for one in absent:
        yield f"{one}: the file does not exist"
    if absent:
        return
    try:
        # An empty password prevents each worker from asking for one in the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        why = "cannot be used: pass PEM files, with a key that has no password"
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "do not match: pass the key that belongs to this certificate"
        yield f"--tls-cert and --tls-key {why}"
    except OSError as error:
        yield f"--tls-cert or --tls-key cannot be read ({error.strerror})"


async def known_callers(settings: Settings, waiting: Callable[[], None] | None = None) -> bool:
    """Open the default store and close it again. Returns False if callers need API keys and the
    store has none. Raises `StoreError`, `MissingExtra` or `InvalidValue`. `waiting` is called if
    the store does not respond immediately."""
    registry = settings.registry()
    try:
        with slow(waiting):
            store = await registry.get(settings.default)
            if settings.auth != KEYS:
                return True
            return bool((await store.find(Query(tenant=TENANT), limit=1)).items)
    except MissingExtra:
        raise
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, HoldfastError):
            raise cause from error
        # Only the type: the message of a driver may contain the address of the store.
        why = f" ({type(cause).__name__})" if cause is not None else ""
        raise StoreError(problem=f"{error}{why}") from error
    finally:
        await registry.aclose()
