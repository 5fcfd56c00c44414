"""The HTTP server for sessions. `create_app` creates an ASGI app; `holdfast serve` runs one.

Each name is imported when it is first used: `holdfast.web` uses the streams without the server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra

if TYPE_CHECKING:
    from .app import close_app, create_app
    from .auth.audit import AuditRecord, AuditSink, FileAudit, LogAudit, MemoryAudit
    from .auth.authentication import KeyAuth
    from .auth.callers import SCOPES, AuthHandler, Caller, NoAuth, RequestCredentials, SharedSecret
    from .auth.keys import ApiKeyInfo, ApiKeys, NewKey
    from .auth.limits import ServerLimits
    from .engines import Engine, HoldfastEngine, TenantStore
    from .settings import Settings

_MODULES = {
    ".app": "close_app create_app",
    ".auth.audit": "AuditRecord AuditSink FileAudit LogAudit MemoryAudit",
    ".auth.authentication": "KeyAuth",
    ".auth.callers": "SCOPES AuthHandler Caller NoAuth RequestCredentials SharedSecret",
    ".auth.keys": "ApiKeyInfo ApiKeys NewKey",
    ".auth.limits": "ServerLimits",
    ".engines": "Engine HoldfastEngine TenantStore",
    ".settings": "Settings",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("litestar")
    except ImportError as error:
        raise MissingExtra(extra="server", needed_for="the server") from error
    value = getattr(import_module(_HOME[name], __name__), name)
    globals()[name] = value
    return value
