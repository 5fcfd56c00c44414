"""`validate_bundle`: reports all faults of a bundle at once, with their paths.

A fault never contains a value of the bundle. Each part is read once, in pieces, in a thread; memory
does not grow with the parts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from ..log.codec import LIMITS, check_name
from ..log.state import State
from . import format as f
from .archive import Bundle, Parts
from .contents import Contents
from .faults import Faults
from .json_values import JsonObject
from .liveness import is_quiet
from .parse import NAMES, RawBundle, open_source, opened
from .type_check import mismatches

Source: TypeAlias = Bundle | bytes | str | os.PathLike[str]


class Checked(Struct, frozen=True):
    """A valid bundle and the states of its threads."""

    bundle: Bundle
    states: dict[str, State]

    @property
    def quiet(self) -> bool:
        return all(is_quiet(state) for state in self.states.values())


async def validate_bundle(
    source: Source,
    *,
    allow_secrets: bool = False,
    limits: f.BundleLimits = f.BUNDLE_LIMITS,
) -> Bundle:
    """Read a bundle from a path or from bytes, and validate it.

    Raises `InvalidBundle` with all faults, such as missing fields, wrong types, unsupported
    versions, exceeded limits, hash mismatches, truncated parts, unsafe names and contradictions.
    Text that the sanitizing rules would redact is a fault too, in every mode, unless
    `allow_secrets` is set.

    See [bundles](../bundles.md).
    """
    checked = await check_bundle(source, allow_secrets=allow_secrets, limits=limits)
    return checked.bundle


async def open_bundle(source: Source) -> Bundle:
    """Return the bundle itself, or read and validate it from a path or bytes. Secrets are
    allowed.
    """
    if isinstance(source, Bundle):
        return source
    return await validate_bundle(source, allow_secrets=True)


async def check_bundle(
    source: Source,
    *,
    allow_secrets: bool | None,
    limits: f.BundleLimits = f.BUNDLE_LIMITS,
) -> Checked:
    """Like `validate_bundle`, but `allow_secrets=None` allows secrets only in `local` bundles."""
    if not isinstance(source, (Bundle, bytes, str, os.PathLike)):
        raise InvalidValue(
            field="source", problem=f"is a {type(source).__name__}", remedy="pass a path or bytes"
        )
    return await asyncio.to_thread(_check, source, allow_secrets, limits)


def _check(source: Source, allow_secrets: bool | None, limits: f.BundleLimits) -> Checked:
    faults = Faults(limits.faults)
    if isinstance(source, Bundle):
        found = RawBundle(source.raw, source.parts, None)
    else:
        file = open_source(source, faults)
        try:
            found = opened(file, faults, limits)
        except BaseException:
            file.close()
            raise
        if found.archive is None:
            file.close()
    document = _document(found.raw, faults)
    raw = f.upcast(found.raw)
    _check_parts(document, found.parts, faults, limits)
    _check_threads(document, faults, limits)
    if faults:
        raise faults.error()
    if allow_secrets is None:
        allow_secrets = document.mode == "local"
    contents = Contents(document, found.parts, faults, limits, secrets=not allow_secrets)
    states = contents.check(raw)
    if faults:
        raise faults.error()
    return Checked(Bundle(raw, found.parts), states)


# The document


def _document(raw: JsonObject, faults: Faults) -> f.Document:
    """Return the typed document. Raises `InvalidBundle` with all faults if it is invalid."""
    if raw.get("_type") != f.TYPE:
        raise faults.stop("wrong_type", "$._type", f"is not {f.TYPE!r}")
    try:
        made = f.upcast(raw)
    except InvalidValue as error:
        problem = f"{error.problem}; {error.remedy}"
        raise faults.stop("unknown_version", error.field, problem) from error
    for found in mismatches(made, f.Document, "$"):
        faults.add("missing" if found.missing else "wrong_type", found.path, found.problem)
    if "bundle_id" in raw and raw["bundle_id"] != _id(raw):
        faults.add("tampered", "$.bundle_id", "is not the hash of the document")
    if faults:
        raise faults.error()
    document = msgspec.convert(made, f.Document)
    if document.mode != document.redaction.mode:
        faults.add("mismatch", "$.redaction.mode", "is not the mode of the bundle")
    for name, value in _names(document):
        try:
            limit = LIMITS.claim_bytes if ".claims" in name else LIMITS.name_bytes
            check_name(name, value, limit=limit)
        except InvalidValue as error:
            faults.add("wrong_type", name, error.problem)
    return document


def _id(raw: JsonObject) -> str | None:
    try:
        return f.id_of(raw)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError):
        return None  # JSON numbers that cannot be encoded again


def _names(document: f.Document) -> Iterator[tuple[str, str]]:
    yield "$.session.tenant", document.session.tenant
    yield "$.session.session", document.session.session
    for n, claim in enumerate(document.session.claims):
        yield f"$.session.claims[{n}]", claim
    for n, thread in enumerate(document.threads):
        yield f"$.threads[{n}].thread", thread.thread


# Parts


def _check_parts(
    document: f.Document, parts: Parts, faults: Faults, limits: f.BundleLimits
) -> None:
    """Check the list of parts: each name is safe and unique, each part exists, and each is used
    once.
    """
    if len(document.parts) > limits.parts:
        raise faults.stop("too_many_parts", "$.parts", f"has more than {limits.parts} entries")
    named: set[str] = set()
    for n, part in enumerate(document.parts):
        if not NAMES.fullmatch(part.name):
            faults.add("bad_path", f"$.parts[{n}].name", "is not a valid part name")
        elif part.name in named:
            faults.add("duplicate", f"$.parts[{n}].name", "is used more than once")
        if part.size < 0 or part.size > limits.total_bytes:
            faults.add("too_large", f"$.parts[{n}].size", "is negative or too large")
        named.add(part.name)
    if sum(part.size for part in document.parts) > limits.total_bytes:
        faults.add("too_large", "$.parts", f"contain more than {limits.total_bytes} bytes")
    there = set(parts.names())
    for n, part in enumerate(document.parts):
        if part.name not in there:
            faults.add("missing", f"$.parts[{n}]", "is not in the bundle")
    if there - named:
        faults.add("mismatch", "$.parts", f"does not list {len(there - named)} existing parts")
    used: set[str] = set()
    for path, name in _used(document):
        if name in used:
            faults.add("duplicate", path, "is used more than once")
        elif name not in named:
            faults.add("missing", path, "is not listed in $.parts")
        used.add(name)
    if named - used:
        faults.add("mismatch", "$.parts", f"lists {len(named - used)} unused parts")


def _used(document: f.Document) -> Iterator[tuple[str, str]]:
    for n, thread in enumerate(document.threads):
        yield f"$.threads[{n}].part", thread.part
    for n, section in enumerate(document.transcript.sections):
        if section.part is not None:
            yield f"$.transcript.sections[{n}].part", section.part
    for n, blob in enumerate(document.blobs):
        if blob.part is not None:
            yield f"$.blobs[{n}].part", blob.part


def _check_threads(document: f.Document, faults: Faults, limits: f.BundleLimits) -> None:
    """Check that thread names are unique, and that their parents form no cycle."""
    if len(document.threads) > limits.threads:
        raise faults.stop("too_many_parts", "$.threads", f"has more than {limits.threads} entries")
    if not document.threads:
        faults.add("missing", "$.threads", "is empty")
    by_name = {thread.thread: thread for thread in document.threads}
    if len(by_name) < len(document.threads):
        faults.add("duplicate", "$.threads", "has a duplicate name")
        return
    for n, thread in enumerate(document.threads):
        _check_thread(f"$.threads[{n}]", thread, by_name, faults)
    if len(order(document.threads)) < len(document.threads):
        faults.add("mismatch", "$.threads", "has threads that are their own ancestors")


def _check_thread(
    path: str, thread: f.Thread, by_name: dict[str, f.Thread], faults: Faults
) -> None:
    if thread.head < 1 or not 0 <= thread.shared < thread.head:
        faults.add("mismatch", f"{path}.shared", "must be at least 0 and less than the head")
    if thread.parent is None:
        return
    parent = by_name.get(thread.parent.thread)
    if parent is None:
        faults.add("mismatch", f"{path}.parent.thread", "is not a thread of the bundle")
    elif not 1 <= thread.parent.at <= parent.head - parent.added:
        faults.add("mismatch", f"{path}.parent.at", "is not an event of the parent")
    if thread.parent.at != thread.shared:
        faults.add("mismatch", f"{path}.shared", "differs from parent.at")


def order(threads: list[f.Thread]) -> list[f.Thread]:
    """Return the threads, parents first. Threads in a cycle are omitted."""
    done: dict[str, f.Thread] = {}
    left = list(threads)
    while True:
        ready = [t for t in left if t.parent is None or t.parent.thread in done]
        if not ready:
            return list(done.values())
        done |= {thread.thread: thread for thread in ready}
        left = [thread for thread in left if thread.thread not in done]
