"""Whether something is a session bundle of Harn's that can be read: every fault at once, in the
order in which Harn would find them. Pure, and bounded in size and depth before anything else."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, UnsetType

from ...log.codec import LIMITS, too_deep
from ..redaction.scrub import Scrub, ScrubConfig
from .faults import Fault, fault, refused
from .names import step
from .shapes import TYPE, VERSION, HarnBundle, HarnDocument

LARGEST = LIMITS.blob_bytes  # bytes of a document: an import keeps it as a blob
DEEPEST = LIMITS.depth
INSIDE = DEEPEST - 8  # levels of a record or a snapshot, which stand within a document

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


def read_document(
    source: bytes | str | dict[str, Any], *, allow_secrets: bool = False
) -> HarnDocument:
    """The document in a JSON text or a tree, or `InvalidBundle` with all that is wrong with it.

    Refused too: a text in which something has the shape of a secret, unless that is allowed.
    What is not known here is kept.
    """
    if isinstance(source, dict):
        check_size(source)
    tree = source if isinstance(source, dict) else _parsed(source)
    if faults := find_faults(tree, allow_secrets=allow_secrets):
        raise refused(faults)
    return HarnDocument(msgspec.convert(tree, HarnBundle), tree)


def check_size(tree: dict[str, Any], path: str = "$", deepest: int = DEEPEST) -> None:
    """Refuse a tree that is no JSON, too large or too deep to be worked on."""
    try:
        text = msgspec.json.encode(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise refused([fault("decode", path, "is no JSON, or too deep")]) from error
    if len(text) > LARGEST:
        raise refused([fault("decode", path, f"has {len(text)} bytes; {LARGEST} are read")])
    if too_deep(text, deepest):
        raise refused([fault("decode", path, f"is nested deeper than {deepest} levels")])


def _parsed(source: bytes | str) -> Any:
    try:
        text = source.encode() if isinstance(source, str) else source
    except UnicodeEncodeError as error:
        raise refused([fault("decode", "$", "holds a lone surrogate")]) from error
    if len(text) > LARGEST:
        raise refused([fault("decode", "$", f"has {len(text)} bytes; {LARGEST} are read")])
    if too_deep(text, DEEPEST):
        raise refused([fault("decode", "$", f"is nested deeper than {DEEPEST} levels")])
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused([fault("decode", "$", f"is not JSON ({error})")]) from error


def find_faults(tree: Any, *, allow_secrets: bool = False) -> list[Fault]:
    """Everything that is wrong with a tree; none for a bundle that can be read."""
    if not isinstance(tree, dict):
        return [fault("missing_required", "$._type", "is missing")]
    faults = [*_missing(tree), *_identity(tree)]
    if any(found.code == "unsupported_schema_version" for found in faults):
        return faults  # what its fields are to be is not known here
    if not allow_secrets:
        faults += _secrets(tree)
    faults += _mismatches(tree, HarnBundle, "$")
    return list(dict.fromkeys(faults))


def _missing(tree: dict[str, Any]) -> Iterator[Fault]:
    for name in ROOT:
        if name not in tree:
            yield fault("missing_required", f"$.{name}", "is missing")
    for outer, names in NESTED.items():
        inside = tree.get(outer)
        # A null is there, and has none of its fields; what is missing itself was named above.
        if outer in tree and (inside is None or isinstance(inside, dict)):
            for name in names:
                if name not in (inside or {}):
                    yield fault("missing_required", f"$.{outer}.{name}", "is missing")


def _identity(tree: dict[str, Any]) -> Iterator[Fault]:
    if "_type" in tree and tree["_type"] != TYPE:
        yield fault("invalid_type", "$._type", f"is not {TYPE!r}")
    version = tree.get("schema_version", VERSION)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        yield fault("invalid_type", "$.schema_version", "is not a whole number from 1")
    elif version != VERSION:
        problem = f"is {version}; this program reads {VERSION}"
        yield fault("unsupported_schema_version", "$.schema_version", problem)


def _secrets(tree: Any) -> Iterator[Fault]:
    scrub = Scrub("sanitized", ScrubConfig(paths=False, detector=False))
    for path, text in strings(tree, "$"):
        if scrub.text(text, path) != text:
            yield fault("unsafe_secret_marker", path, "holds what looks like a secret")


def strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every text in a tree, with its path; names of fields are none."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from strings(value[name], step(path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from strings(item, f"{path}[{number}]")


def _mismatches(value: Any, wanted: Any, path: str) -> Iterator[Fault]:
    """Every value that has another type than its field, each by its own path."""
    inside = _without_none(wanted)
    if isinstance(inside, type) and issubclass(inside, Struct) and isinstance(value, dict):
        for name, type_ in _fields(inside):
            if name in value and (path, name) != ("$", "schema_version"):
                yield from _mismatches(value[name], type_, step(path, name))
        return
    if typing.get_origin(inside) is list and isinstance(value, list):
        (item,) = typing.get_args(inside)
        for number, one in enumerate(value):
            yield from _mismatches(one, item, f"{path}[{number}]")
        return
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at ")[0]
        yield fault("decode", path, problem[:1].lower() + problem[1:])


@functools.cache
def _fields(shape: type[Struct]) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(shape, include_extras=True)
    return tuple((info.encode_name, hints[info.name]) for info in msgspec.structs.fields(shape))


def _without_none(wanted: Any) -> Any:
    """The one type beside None and UNSET in a union; other types as they are."""
    if not isinstance(wanted, types.UnionType) and typing.get_origin(wanted) is not typing.Union:
        return wanted
    left = [one for one in typing.get_args(wanted) if one not in (type(None), UnsetType)]
    return left[0] if len(left) == 1 else wanted
