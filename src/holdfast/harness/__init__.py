"""The public names of the harness, which runs agents durably. Other packages import only these
names, never the modules inside. Each name is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents.agent import Agent, Context, Hook, Mode, context, hook, slug
    from .agents.config import check_offered
    from .agents.limits import RunBounds
    from .agents.settings import settings_for, wrong_limits
    from .agents.subagents import SubAgent, steps_of
    from .faults import FAULT_CODES, Attempts, ErrorPolicy, Retry
    from .host import GRACE, Harness, sessions_of
    from .live.decisions import Answer, settle_pending
    from .live.log import Live
    from .live.prompt_history import History
    from .loop.decide import decide
    from .loop.delegation import subagent_model_key
    from .loop.prompt_context import Reading
    from .loop.steps import Idle, SetDue
    from .replay import Divergence, Recording, Replayed, play, stored_recording
    from .replay.comparison import payload_fields
    from .sandbox import LocalSandbox, NoSandbox, Place, Ran, Sandbox
    from .sandbox.archive import pack, unpack
    from .sandbox.folder import MAX_DEPTH
    from .sandbox.removal import WORK_FOLDER, clear_sandbox, mark_for_removal
    from .session.message_stream import MessageStream
    from .session.pending_answers import settle_item
    from .session.regenerate import regeneration_of
    from .session.session import Session, core_of
    from .session.subagents import thread_of_item
    from .telemetry.logs import (
        LOGGER,
        LineFormatter,
        LogConfig,
        RedactingFilter,
        logging_configured,
    )
    from .tools import (
        DontKnow,
        Happened,
        NotHappened,
        Park,
        ProbeAnswer,
        Tool,
        ToolContext,
        ToolResult,
        tool,
    )
    from .worker import Worker
    from .workers.signals import on_shutdown

_MODULES = {
    ".agents.agent": "Agent Context Hook Mode context hook slug",
    ".agents.config": "check_offered",
    ".agents.limits": "RunBounds",
    ".agents.settings": "settings_for wrong_limits",
    ".agents.subagents": "SubAgent steps_of",
    ".faults": "Attempts ErrorPolicy FAULT_CODES Retry",
    ".host": "GRACE Harness sessions_of",
    ".live.decisions": "Answer settle_pending",
    ".live.log": "Live",
    ".live.prompt_history": "History",
    ".loop.decide": "decide",
    ".loop.delegation": "subagent_model_key",
    ".loop.prompt_context": "Reading",
    ".loop.steps": "Idle SetDue",
    ".replay": "Divergence Recording Replayed play stored_recording",
    ".replay.comparison": "payload_fields",
    ".sandbox": "LocalSandbox NoSandbox Place Ran Sandbox",
    ".sandbox.archive": "pack unpack",
    ".sandbox.folder": "MAX_DEPTH",
    ".sandbox.removal": "WORK_FOLDER clear_sandbox mark_for_removal",
    ".session.message_stream": "MessageStream",
    ".session.pending_answers": "settle_item",
    ".session.regenerate": "regeneration_of",
    ".session.session": "Session core_of",
    ".session.subagents": "thread_of_item",
    ".telemetry.logs": "LOGGER LineFormatter LogConfig RedactingFilter logging_configured",
    ".tools": "DontKnow Happened NotHappened Park ProbeAnswer Tool ToolContext ToolResult tool",
    ".worker": "Worker",
    ".workers.signals": "on_shutdown",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "FAULT_CODES",
    "GRACE",
    "LOGGER",
    "MAX_DEPTH",
    "WORK_FOLDER",
    "Agent",
    "Answer",
    "Attempts",
    "Context",
    "Divergence",
    "DontKnow",
    "ErrorPolicy",
    "Happened",
    "Harness",
    "History",
    "Hook",
    "Idle",
    "LineFormatter",
    "Live",
    "LocalSandbox",
    "LogConfig",
    "MessageStream",
    "Mode",
    "NoSandbox",
    "NotHappened",
    "Park",
    "Place",
    "ProbeAnswer",
    "Ran",
    "Reading",
    "Recording",
    "RedactingFilter",
    "Replayed",
    "Retry",
    "RunBounds",
    "Sandbox",
    "Session",
    "SetDue",
    "SubAgent",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Worker",
    "check_offered",
    "clear_sandbox",
    "context",
    "core_of",
    "decide",
    "hook",
    "logging_configured",
    "mark_for_removal",
    "on_shutdown",
    "pack",
    "payload_fields",
    "play",
    "regeneration_of",
    "sessions_of",
    "settings_for",
    "settle_item",
    "settle_pending",
    "slug",
    "steps_of",
    "stored_recording",
    "subagent_model_key",
    "thread_of_item",
    "tool",
    "unpack",
    "wrong_limits",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name], __name__), name)
    globals()[name] = value
    return value
