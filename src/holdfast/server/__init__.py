"""The server: sessions over HTTP. `create_app` makes an ASGI app; `holdfast serve` runs it."""

from ..errors import MissingExtra

try:
    import litestar as _litestar  # noqa: F401
except ImportError as error:
    raise MissingExtra(extra="server", needed_for="the server") from error

from .app import close_app, create_app
from .auth.audit import AuditRecord, AuditSink, FileAudit, LogAudit, MemoryAudit
from .auth.callers import SCOPES, AuthHandler, Caller, Credentials, NoAuth, SharedSecret
from .auth.keys import KeyAuth, KeyInfo, Keys, NewKey
from .auth.limits import ServerLimits
from .engines import Engine, HoldfastEngine, Place
from .settings import Settings

__all__ = [
    "SCOPES",
    "AuditRecord",
    "AuditSink",
    "AuthHandler",
    "Caller",
    "Credentials",
    "Engine",
    "FileAudit",
    "HoldfastEngine",
    "KeyAuth",
    "KeyInfo",
    "Keys",
    "LogAudit",
    "MemoryAudit",
    "NewKey",
    "NoAuth",
    "Place",
    "ServerLimits",
    "Settings",
    "SharedSecret",
    "close_app",
    "create_app",
]


def __dir__() -> list[str]:
    return sorted(__all__)
