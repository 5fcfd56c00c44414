"""Reads, validates, converts and writes session bundles of the agent runtime Harn, version 1.

`read_harn` and `write_harn` convert between Harn's format and Holdfast's. The other functions work
within Harn's format: they build bundles from run records and agent-session events, determine their
liveness, and handle worker snapshots.
"""

from ...errors import Fault
from .agent_events import (
    AgentEvent,
    AgentLiveness,
    bundle_of_events,
    liveness,
    session_events,
    until,
)
from .check import find_faults, read_document
from .export import checkpoint_bundle, record_bundle
from .format import HarnBundle, HarnDocument
from .names import record_path
from .read import read_harn
from .run_record import run_record, with_paths
from .schema import harn_schema, harn_schema_text, schema_is_stale
from .snapshots import Materialised, materialise
from .write import session_record, write_harn

__all__ = [
    "AgentEvent",
    "AgentLiveness",
    "Fault",
    "HarnBundle",
    "HarnDocument",
    "Materialised",
    "bundle_of_events",
    "checkpoint_bundle",
    "find_faults",
    "harn_schema",
    "harn_schema_text",
    "liveness",
    "materialise",
    "read_document",
    "read_harn",
    "record_bundle",
    "record_path",
    "run_record",
    "schema_is_stale",
    "session_events",
    "session_record",
    "until",
    "with_paths",
    "write_harn",
]


def __dir__() -> list[str]:
    return sorted(__all__)
