"""Validates session bundles of Harn. Reports all faults at once, in the order in which Harn finds
them. Pure. Size and depth are checked first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, Literal, TypeAlias

import msgspec

from ...errors import Fault
from ...log.codec import LIMITS, too_deep
from ..faults import invalid, invalid_all
from ..json_values import NOT_JSON, JsonObject
from ..redaction.scrub import Scrub, ScrubConfig
from ..type_check import mismatches
from .format import TYPE, VERSION, HarnBundle, HarnDocument
from .names import field_path

MAX_BYTES = LIMITS.blob_bytes  # maximum size of a document: an import stores it as a blob
MAX_DEPTH = LIMITS.depth
INNER_DEPTH = MAX_DEPTH - 8  # levels of a record or a snapshot inside a document

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

ROOT = (
    *("_type", "schema_version", "bundle_id", "created_at", "producer", "source", "runtime"),
    *("transcript", "tools", "permissions", "replay", "redaction", "attachments"),
)
NESTED = {
    "producer": ("name", "version", "schema_id"),
    "source": ("kind", "run_record_id", "workflow_id", "task", "status"),
    "runtime": ("harn_version", "provider_models"),
    "transcript": ("sections",),
    "tools": ("schemas", "calls"),
    "replay": (
        *("event_log_pointers", "transitions", "checkpoints", "trace_spans"),
        "deterministic_events",
    ),
    "redaction": (
        *("mode", "policy", "placeholder", "entries"),
        "unsafe_secret_markers_rejected",
    ),
}


def fault(code: FaultCode, path: str, problem: str) -> Fault:
    """Create a fault of one of Harn's classes. It never contains a value."""
    return Fault(code=code, path=path, problem=problem)


def read_document(source: bytes | str | JsonObject, *, allow_secrets: bool = False) -> HarnDocument:
    """Read the document from JSON or from a tree. Raises `InvalidBundle` with all faults if it is
    invalid. Text that looks like a secret is a fault unless `allow_secrets` is set. Unknown fields
    are kept.

    See [other formats](../interchange.md).
    """
    if isinstance(source, dict):
        check_tree(source)
    tree = source if isinstance(source, dict) else _parsed(source)
    if faults := find_faults(tree, allow_secrets=allow_secrets):
        raise invalid_all(faults)
    return HarnDocument(msgspec.convert(tree, HarnBundle), tree)


def check_tree(tree: JsonObject, path: str = "$", deepest: int = MAX_DEPTH) -> None:
    """Raise `InvalidBundle` if a tree is not JSON, too large or too deep."""
    try:
        text = msgspec.json.encode(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid("decode", path, "is not JSON, or is nested too deep") from error
    check_text(text, path, deepest)


def check_text(text: bytes, path: str, deepest: int = MAX_DEPTH) -> None:
    """Raise `InvalidBundle` if JSON is too large or too deep."""
    if len(text) > MAX_BYTES:
        raise invalid("decode", path, f"has {len(text)} bytes; the limit is {MAX_BYTES}")
    if too_deep(text, deepest):
        raise invalid("decode", path, f"is nested deeper than {deepest} levels")


def _parsed(source: bytes | str) -> Any:
    try:
        text = source.encode() if isinstance(source, str) else source
    except UnicodeEncodeError as error:
        raise invalid("decode", "$", "contains a lone surrogate") from error
    check_text(text, "$")
    try:
        return msgspec.json.decode(text)
    except NOT_JSON as error:
        raise invalid("decode", "$", f"is not JSON ({error})") from error


def find_faults(tree: Any, *, allow_secrets: bool = False) -> list[Fault]:
    """Return all faults of a tree; empty for a valid bundle.

    See [other formats](../interchange.md).
    """
    if not isinstance(tree, dict):
        return [fault("missing_required", "$._type", "is missing")]
    faults = [*_missing(tree), *_identity(tree)]
    if any(found.code == "unsupported_schema_version" for found in faults):
        return faults  # the fields of another version are unknown
    if not allow_secrets:
        faults += _secrets(tree)
    for found in mismatches(tree, HarnBundle, "$", field_path):
        if found.path != "$.schema_version":
            faults.append(fault("decode", found.path, found.problem))
    return list(dict.fromkeys(faults))


def _missing(tree: JsonObject) -> Iterator[Fault]:
    required: list[tuple[str, JsonObject, Sequence[str]]] = [("$", tree, ROOT)]
    for outer, inner in NESTED.items():
        # null counts as an object without fields; a missing object is only one fault.
        if outer in tree and isinstance(tree[outer], (dict, NoneType)):
            required.append((f"$.{outer}", tree[outer] or {}, inner))
    for path, inside, names in required:
        for name in names:
            if name not in inside:
                yield fault("missing_required", f"{path}.{name}", "is missing")


def _identity(tree: JsonObject) -> Iterator[Fault]:
    if "_type" in tree and tree["_type"] != TYPE:
        yield fault("invalid_type", "$._type", f"is not {TYPE!r}")
    version = tree.get("schema_version", VERSION)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        yield fault("invalid_type", "$.schema_version", "is not a positive integer")
    elif version != VERSION:
        problem = f"is {version}; this release reads {VERSION}"
        yield fault("unsupported_schema_version", "$.schema_version", problem)


def _secrets(tree: Any) -> Iterator[Fault]:
    scrub = Scrub("sanitized", ScrubConfig(paths=False, detector=False))
    for path, text in _strings(tree, "$"):
        if scrub.text(text, path) != text:
            yield fault("unsafe_secret_marker", path, "contains text that looks like a secret")


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every string value in a tree with its path. Field names are not included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _strings(value[name], field_path(path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _strings(item, f"{path}[{number}]")
