"""What can be wrong with a bundle, a record or a snapshot of Harn's, in Harn's own classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from ...errors import Fault, InvalidBundle

__all__ = ["Fault", "FaultCode", "fault", "refused"]

FaultCode: TypeAlias = Literal[
    "decode",
    "missing_required",
    "unsupported_schema_version",
    "invalid_type",
    "unsupported_checkpoint_state",
    "unsafe_secret_marker",
    "missing_run_record",
    "missing_session_events",
    "id_mismatch",
]
LISTED = 100  # faults that an error lists


def fault(code: FaultCode, path: str, problem: str) -> Fault:
    """One thing that is wrong: which class of fault, where, and what. Never a value."""
    return Fault(code=code, path=path, problem=problem)


def refused(faults: Sequence[Fault]) -> InvalidBundle:
    """The error that says all of them, in their order."""
    return InvalidBundle(faults=list(faults[:LISTED]), more=max(len(faults) - LISTED, 0))
