"""Durable sessions for AI agents: one append-only log per conversation, on any store."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AlreadyDecided,
    BlobNotFound,
    DeletionRefused,
    HarnessClosed,
    HeadMoved,
    HoldfastError,
    InvalidAgent,
    InvalidBundle,
    InvalidValue,
    KeyMissing,
    LeaseHeld,
    LeaseLost,
    LogDamaged,
    LogReplaced,
    MissingExtra,
    ModelError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    NotContinuable,
    NotPending,
    PhaseError,
    QueueFull,
    RunFailed,
    SessionBusy,
    SessionExists,
    SessionMoved,
    SessionNotFound,
    StoreDamaged,
    StoreError,
    StoreReplaced,
    StoreTooNew,
    StoreUnavailable,
    SurfaceTaken,
    ToolError,
    ToolMissing,
    UnknownStore,
    UnsafePoint,
    WrongLoop,
)
from .log.catalog import Page, Parent, Pending, PendingQuery, Query, Row
from .log.codec import LIMITS, Limits
from .log.events import Appended, Event, Key, NewEvent, Scope, key, new_id
from .values.budgets import Budget
from .values.delta import Delta
from .values.media import Media
from .values.options import RunLimits
from .values.pending import Ask
from .values.records import Receipt, Remains
from .values.result import Result
from .values.stream_items import CaughtUp, Trouble

if TYPE_CHECKING:
    from .bundle.check import validate_bundle
    from .bundle.format import bundle_schema
    from .bundle.read import import_bundle
    from .bundle.write import export_bundle
    from .harness import (
        Agent,
        Attempts,
        Context,
        ErrorPolicy,
        Harness,
        Hook,
        LogConfig,
        Mode,
        Reading,
        Retry,
        Session,
        SubAgent,
        Tool,
        ToolContext,
        ToolResult,
        Worker,
        context,
        hook,
        tool,
    )
    from .sessions import Inbound, Retention, Sessions, Sweeper
    from .stores import connect
    from .stores.port import BlobRef, Damage, Draft, Lease, Snapshot, Store, StoreInfo
    from .stores.shared import shared_store
    from .stores.vault.keys import Vault

__version__ = "0.2.0"

# Imported when they are first used: a client, or a program that only reads logs, needs neither
# stores nor the harness.
_LATER = {
    "Agent": ".harness",
    "Attempts": ".harness",
    "BlobRef": ".stores.port",
    "Context": ".harness",
    "Damage": ".stores.port",
    "Draft": ".stores.port",
    "ErrorPolicy": ".harness",
    "Harness": ".harness",
    "Hook": ".harness",
    "Inbound": ".sessions",
    "Lease": ".stores.port",
    "LogConfig": ".harness",
    "Mode": ".harness",
    "Reading": ".harness",
    "Retention": ".sessions",
    "Retry": ".harness",
    "Session": ".harness",
    "Sessions": ".sessions",
    "Snapshot": ".stores.port",
    "Store": ".stores.port",
    "StoreInfo": ".stores.port",
    "SubAgent": ".harness",
    "Sweeper": ".sessions",
    "Tool": ".harness",
    "ToolContext": ".harness",
    "ToolResult": ".harness",
    "Vault": ".stores.vault.keys",
    "Worker": ".harness",
    "bundle_schema": ".bundle.format",
    "connect": ".stores",
    "context": ".harness",
    "export_bundle": ".bundle.write",
    "hook": ".harness",
    "import_bundle": ".bundle.read",
    "shared_store": ".stores.shared",
    "tool": ".harness",
    "validate_bundle": ".bundle.check",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATER[name], __name__), name)
    globals()[name] = value
    return value


__all__ = [
    "LIMITS",
    "Agent",
    "AlreadyDecided",
    "Appended",
    "Ask",
    "Attempts",
    "BlobNotFound",
    "BlobRef",
    "Budget",
    "CaughtUp",
    "Context",
    "Damage",
    "DeletionRefused",
    "Delta",
    "Draft",
    "ErrorPolicy",
    "Event",
    "Harness",
    "HarnessClosed",
    "HeadMoved",
    "HoldfastError",
    "Hook",
    "Inbound",
    "InvalidAgent",
    "InvalidBundle",
    "InvalidValue",
    "Key",
    "KeyMissing",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Limits",
    "LogConfig",
    "LogDamaged",
    "LogReplaced",
    "Media",
    "MissingExtra",
    "Mode",
    "ModelError",
    "ModelRateLimited",
    "ModelTimeout",
    "ModelUnavailable",
    "NewEvent",
    "NotContinuable",
    "NotPending",
    "Page",
    "Parent",
    "Pending",
    "PendingQuery",
    "PhaseError",
    "Query",
    "QueueFull",
    "Reading",
    "Receipt",
    "Remains",
    "Result",
    "Retention",
    "Retry",
    "Row",
    "RunFailed",
    "RunLimits",
    "Scope",
    "Session",
    "SessionBusy",
    "SessionExists",
    "SessionMoved",
    "SessionNotFound",
    "Sessions",
    "Snapshot",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreInfo",
    "StoreReplaced",
    "StoreTooNew",
    "StoreUnavailable",
    "SubAgent",
    "SurfaceTaken",
    "Sweeper",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolMissing",
    "ToolResult",
    "Trouble",
    "UnknownStore",
    "UnsafePoint",
    "Vault",
    "Worker",
    "WrongLoop",
    "bundle_schema",
    "connect",
    "context",
    "export_bundle",
    "hook",
    "import_bundle",
    "key",
    "new_id",
    "shared_store",
    "tool",
    "validate_bundle",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
