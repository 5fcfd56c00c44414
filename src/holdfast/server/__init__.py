"""The HTTP server for sessions. `create_app` creates an ASGI app; `holdfast serve` runs one."""

from ..errors import MissingExtra

try:
    import litestar as _litestar  # noqa: F401
except ImportError as error:
    raise MissingExtra(extra="server", needed_for="the server") from error

from .app import close_app, create_app
from .auth.audit import AuditRecord, AuditSink, FileAudit, LogAudit, MemoryAudit
from .auth.authentication import KeyAuth
from .auth.callers import SCOPES, AuthHandler, Caller, NoAuth, RequestCredentials, SharedSecret
from .auth.keys import ApiKeyInfo, ApiKeys, NewKey
from .auth.limits import ServerLimits
from .engines import Engine, HoldfastEngine, TenantStore
from .settings import Settings

__all__ = [
    "SCOPES",
    "ApiKeyInfo",
    "ApiKeys",
    "AuditRecord",
    "AuditSink",
    "AuthHandler",
    "Caller",
    "Engine",
    "FileAudit",
    "HoldfastEngine",
    "KeyAuth",
    "LogAudit",
    "MemoryAudit",
    "NewKey",
    "NoAuth",
    "RequestCredentials",
    "ServerLimits",
    "Settings",
    "SharedSecret",
    "TenantStore",
    "close_app",
    "create_app",
]


def __dir__() -> list[str]:
    return sorted(__all__)
