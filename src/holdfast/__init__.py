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
    from .harness.agents.agent import Agent, Context, Hook, Mode, context, hook
    from .harness.agents.subagents import SubAgent
    from .harness.faults import Attempts, ErrorPolicy, Retry
    from .harness.host import Harness
    from .harness.loop.prompt_context import Reading
    from .harness.session.session import Session
    from .harness.telemetry.logs import LogConfig
    from .harness.tools import Tool, ToolContext, ToolResult, tool
    from .sessions import Inbound, Retention, Sessions, Sweeper
    from .stores import connect
    from .stores.port import BlobRef, Damage, Draft, Lease, Snapshot, Store, StoreInfo
    from .stores.vault.keys import Vault

__version__ = "0.1.0"

# Imported when they are first used: a client, or a program that only reads logs, needs neither
# stores nor the harness.
_LATER = {
    "Agent": ".harness.agents.agent",
    "Attempts": ".harness.faults",
    "BlobRef": ".stores.port",
    "Context": ".harness.agents.agent",
    "Damage": ".stores.port",
    "Draft": ".stores.port",
    "ErrorPolicy": ".harness.faults",
    "Harness": ".harness.host",
    "Hook": ".harness.agents.agent",
    "Inbound": ".sessions",
    "Lease": ".stores.port",
    "LogConfig": ".harness.telemetry.logs",
    "Mode": ".harness.agents.agent",
    "Reading": ".harness.loop.prompt_context",
    "Retention": ".sessions",
    "Retry": ".harness.faults",
    "Session": ".harness.session.session",
    "Sessions": ".sessions",
    "Snapshot": ".stores.port",
    "Store": ".stores.port",
    "StoreInfo": ".stores.port",
    "SubAgent": ".harness.agents.subagents",
    "Sweeper": ".sessions",
    "Tool": ".harness.tools",
    "ToolContext": ".harness.tools",
    "ToolResult": ".harness.tools",
    "Vault": ".stores.vault.keys",
    "bundle_schema": ".bundle.format",
    "connect": ".stores",
    "context": ".harness.agents.agent",
    "export_bundle": ".bundle.write",
    "hook": ".harness.agents.agent",
    "import_bundle": ".bundle.read",
    "tool": ".harness.tools",
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
    "WrongLoop",
    "bundle_schema",
    "connect",
    "context",
    "export_bundle",
    "hook",
    "import_bundle",
    "key",
    "new_id",
    "tool",
    "validate_bundle",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
