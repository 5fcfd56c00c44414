"""Compares two bundles: their events, thread by thread, and their documents.

Both are streamed in parallel, so memory does not grow with their size.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..log.events import Event
from .archive import Bundle, EventStream
from .check import Source, open_bundle
from .json_values import JsonObject

Status: TypeAlias = Literal["same", "differs", "longer", "shorter", "only_left", "only_right"]

ENVELOPE = ("seq", "id", "kind", "v", "run", "actor", "cause", "at")
# Fields that are derived from other fields, or that describe the file.
DERIVED = ("bundle_id", "parts", "threads", "blobs", "transcript")
MOST = 20  # differences that are reported per field


class Difference(Struct, frozen=True, kw_only=True):
    """One difference between two bundles. `seq` is the number of the event, `path` the path of the
    value.
    """

    path: str
    left: Any
    right: Any
    seq: int | None = None


class ThreadDiff(Struct, frozen=True, kw_only=True):
    """The comparison of one thread. The first `same` events are equal; `first` is the first
    difference. The status `longer` means that the left thread has all events of the right thread,
    and more.
    """

    thread: str
    status: Status
    same: int
    left: int
    right: int
    first: Difference | None = None


class BundleDiff(Struct, frozen=True, kw_only=True):
    """The result of a comparison. `same` means identical content. `facts` are differences between
    the documents, apart from the events. Blobs are compared by their hashes.

    See [bundles](../bundles.md).
    """

    same: bool
    left: str
    right: str
    threads: list[ThreadDiff]
    facts: list[Difference] = []
    blobs_left: list[str] = []
    blobs_right: list[str] = []


async def diff(left: Source, right: Source) -> BundleDiff:
    """Compare two bundles. Both are validated first.

    See [bundles](../bundles.md).
    """
    a, b = await open_bundle(left), await open_bundle(right)
    ours = {thread.thread: thread.head for thread in a.document.threads}
    theirs = {thread.thread: thread.head for thread in b.document.threads}
    threads = []
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in theirs:
            threads.append(_only(name, "only_left", ours[name], 0))
        elif name not in ours:
            threads.append(_only(name, "only_right", 0, theirs[name]))
        else:
            threads.append(await _thread(a, b, name, ours[name], theirs[name]))
    mine = {blob.sha256 for blob in a.document.blobs}
    other = {blob.sha256 for blob in b.document.blobs}
    return BundleDiff(
        same=a.id == b.id,
        left=a.id,
        right=b.id,
        threads=threads,
        facts=[*_facts(a.raw, b.raw)],
        blobs_left=sorted(mine - other),
        blobs_right=sorted(other - mine),
    )


def _only(name: str, status: Status, left: int, right: int) -> ThreadDiff:
    return ThreadDiff(thread=name, status=status, same=0, left=left, right=right)


async def _thread(a: Bundle, b: Bundle, name: str, left: int, right: int) -> ThreadDiff:
    same, first = 0, None
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(aclosing(a.read(name)))
        theirs = await stack.enter_async_context(aclosing(b.read(name)))
        async for mine, other in _pairs(ours, theirs):
            first = next(_events(mine, other), None)
            if first is not None:
                break
            same += 1
    status: Status = "same"
    if first is not None:
        status = "differs"
    elif left != right:
        status = "longer" if left > right else "shorter"
    return ThreadDiff(thread=name, status=status, same=same, left=left, right=right, first=first)


async def _pairs(
    ours: EventStream, theirs: EventStream
) -> AsyncGenerator[tuple[Event, Event], None]:
    while True:
        mine, other = await anext(ours, None), await anext(theirs, None)
        if mine is None or other is None:
            return
        yield mine, other


def _events(mine: Event, other: Event) -> Iterator[Difference]:
    for name in ENVELOPE:
        if getattr(mine, name) != getattr(other, name):
            was, now = getattr(mine, name), getattr(other, name)
            yield Difference(seq=mine.seq, path=name, left=was, right=now)
    if bytes(mine.data) != bytes(other.data):
        left, right = msgspec.json.decode(mine.data), msgspec.json.decode(other.data)
        found = next(_values(left, right, "data"), None)
        # The same values in another notation.
        path, was, now = found or ("data", bytes(mine.data).decode(), bytes(other.data).decode())
        yield Difference(seq=mine.seq, path=path, left=was, right=now)


def _facts(left: JsonObject, right: JsonObject) -> Iterator[Difference]:
    for name in dict.fromkeys([*left, *right]):
        if name in DERIVED:
            continue
        places = _values(left.get(name), right.get(name), f"$.{name}")
        for _, (path, mine, other) in zip(range(MOST), places, strict=False):
            yield Difference(path=path, left=mine, right=other)


def _values(left: Any, right: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in dict.fromkeys([*left, *right]):
            yield from _values(left.get(name), right.get(name), f"{path}.{name}")
    elif isinstance(left, list) and isinstance(right, list):
        for n, (mine, other) in enumerate(zip(left, right, strict=False)):
            yield from _values(mine, other, f"{path}[{n}]")
        if len(left) != len(right):
            yield f"{path}.length", len(left), len(right)
    elif type(left) is not type(right) or left != right:
        yield path, left, right
