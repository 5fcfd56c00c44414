"""The format of a bundle: the types of its document, its parts, its limits and its schema.

A bundle is one document and named parts: the events and the messages of each thread, and blobs. In
a single JSON file the parts are inside the document; in an archive they are separate files. Both
forms have the same id. Pure: uses no store and no file. The docstrings of the types are published
in the schema.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, dataclass_transform

import msgspec
from msgspec import Struct, field

from ..errors import InvalidValue
from ..log.catalog import Parent
from ..log.codec import LIMITS
from ..log.events import Event
from ..values.records import Liveness
from .json_values import JsonObject
from .redaction.manifest import Mode, Redaction

TYPE = "holdfast_bundle"
VERSION = 1
SCHEMA_ID = "urn:holdfast:schemas:bundle:1"
PRODUCER = "holdfast"
DOCUMENT = "bundle.json"  # its name in an archive, where it comes first

Purpose: TypeAlias = Literal["share", "copy", "move"]

SECTION_BYTES = 4 << 20  # size of messages above which a thread gets no transcript section
LISTED = 2_000  # maximum length of a list of calls, permissions etc.; the events have all


class BundleLimits(Struct, frozen=True, kw_only=True):
    """The limits of a bundle. A bundle that exceeds a limit is rejected before anything is written.

    `json_bytes` limits a bundle in a single JSON file, and the document of an archive. `ratio`
    limits the compression: the size of the content divided by the size of the archive, checked if
    the content exceeds 64 MiB. `values` limits the JSON values in one event, and in the document
    without its events. At most `faults` faults are listed.

    See [bundles](../bundles.md).
    """

    json_bytes: int = 16 << 20
    archive_bytes: int = 16 << 30
    total_bytes: int = 16 << 30
    ratio: int = 250
    parts: int = 20_000
    threads: int = 5_000
    event_bytes: int = 16 << 20
    blob_bytes: int = LIMITS.blob_bytes
    values: int = 500_000
    depth: int = LIMITS.depth + 8
    faults: int = 100


BUNDLE_LIMITS = BundleLimits()


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Shape(Struct, frozen=True):
    """Base class of the types in a document: frozen, keyword-only. All fields are written,
    including fields with default values.
    """


class Producer(Shape):
    """The software that wrote the bundle. `version` is the version of the format, not of the
    software.
    """

    name: str = PRODUCER
    version: str = str(VERSION)
    schema_id: str = SCHEMA_ID


class BundleSource(Shape):
    """The exported session. `task` is the beginning of its first message. `status` is the status of
    its last run, or `idle`. `upto` is the last exported event if only a part of the log was
    exported.
    """

    kind: str = "session"
    tenant: str = "main"
    session: str = ""
    agent: str | None = None
    name: str | None = None
    task: str | None = None
    status: str = "idle"
    started_at: str = ""
    finished_at: str | None = None
    first_run: str | None = None
    last_run: str | None = None
    runs: int = 0
    children: int = 0
    upto: int | None = None


class BundleUsage(Shape):
    """Model usage and its cost. `counts` has all counters that the providers reported."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    duration_ms: int = 0
    cost: float | None = None
    models: list[str] = []
    counts: dict[str, int] = {}


class Runtime(Shape):
    models: list[str] = []
    usage: BundleUsage | None = None
    metadata: JsonObject = {}


class MountedRoot(Shape):
    path: str
    mode: str = "read_only"
    mounted_at: str | None = None


class Workspace(Shape):
    """The workspace of the session, as recorded in its log."""

    primary: str | None = None
    roots: list[MountedRoot] = []
    anchored_at: str | None = None


class SessionFacts(Shape):
    """The metadata of a session, as shown in session lists, and the names it has claimed."""

    tenant: str
    session: str
    agent: str | None = None
    title: str | None = None
    user: str | None = None
    workspace: str | None = None
    phase: str = "created"
    labels: list[str] = []
    metadata: JsonObject = {}
    surfaces: JsonObject = {}
    pinned: bool = False
    hold: str | None = None
    ttl: int | None = None
    expiry: int | None = None
    created_at: str = ""
    claims: list[str] = []


class Thread(Shape, kw_only=True):
    """The log of one thread. Its part `part` contains the events after `parent.at`, or all events
    if the parent is not in the bundle; in a single JSON file they are here, in `events`. The events
    up to `shared` belong to the log that it was forked from. The last `added` events were added by
    the export to close open items and runs.
    """

    thread: str
    part: str
    parent: Parent | None = None
    shared: int = 0
    head: int
    added: int = 0
    agent: str | None = None
    title: str | None = None
    created_at: str = ""
    events: list[Any] | msgspec.UnsetType = msgspec.UNSET


class Blob(Shape):
    """A blob of the session, stored in part `part`; `part` is null if the blob was omitted. In a
    single JSON file the bytes are here, in `data`, as base64.
    """

    sha256: str
    size: int
    part: str | None = None
    media_type: str | None = None
    data: str | msgspec.UnsetType = msgspec.UNSET


class PendingItem(Shape):
    """An item that is waiting for an approval, an answer or an external result. Event `seq`
    contains the request.
    """

    thread: str
    id: str
    what: str
    seq: int
    at: int
    call: str | None = None
    expires: int | None = None


class BundleQueuedInput(Shape):
    """A queued message, event `seq`, that no run has handled yet."""

    thread: str
    seq: int
    how: str = "queue"


class Section(Shape, kw_only=True):
    """The messages of a thread for display, one JSON value per line of part `part`; `part` is null
    if they are too large. In a single JSON file they are here, in `messages`. `summary` is the
    number of the event with the summary, if there is one. `assets` lists the hashes of blobs.
    """

    id: str
    label: str
    scope: str = "thread"
    location: str
    part: str | None = None
    count: int = 0
    events: int = 0
    summary: int | None = None
    assets: list[str] = []
    metadata: JsonObject = {}
    messages: list[Any] | msgspec.UnsetType = msgspec.UNSET


class BundleTranscript(Shape):
    sections: list[Section] = []


class Entry(Shape):
    """A JSON value from a thread. `source` is the name of the thread, and `index` the position in
    the list.
    """

    source: str
    index: int
    value: Any = None


class Called(Shape, kw_only=True):
    """One tool call, with the SHA-256 hashes of its arguments and result. The values are in the
    events.
    """

    thread: str
    seq: int
    id: str
    name: str
    provider_id: str | None = None
    arguments_hash: str
    result_hash: str | None = None
    outcome: str | None = None
    rejected: bool = False
    duration_ms: int | None = None
    step: int = 0
    at: str = ""


class Tools(Shape):
    """The called tools, and their calls. `schemas` are the fingerprints of the called tools at the
    time of the call. `total` counts all calls, including calls that are not listed.
    """

    schemas: list[Entry] = []
    calls: list[Called] = []
    total: int = 0


class BundlePermission(Shape):
    """A pending item, or a change of a permission rule or a grant, recorded in event `seq`.
    `settled` is the event that decided the item, if there is one.
    """

    kind: str
    source: str
    seq: int
    request_id: str | None = None
    agent: str | None = None
    payload: Any = None
    settled: int | None = None
    outcome: str | None = None
    by: str | None = None


class Fixture(Shape):
    """The recorded result of one run, which a replay is expected to reproduce."""

    thread: str
    run: str | None
    expected_status: str
    steps: int = 0
    answer_hash: str | None = None


class Child(Shape):
    """A sub-agent. The bundle contains its thread and everything needed to continue it."""

    thread: str
    agent: str
    parent: str
    item: str | None = None
    call: str | None = None
    status: str = "idle"
    reported: bool = False


class Pointer(Shape):
    kind: str
    thread: str
    location: str
    available: bool = True


class Mark(Shape):
    """A position in a log: a checkpoint or a change of mode."""

    thread: str
    seq: int
    id: str
    label: str | None = None
    at: str = ""


class BundleSpan(Shape):
    """One run, with the numbers of its first and last event."""

    thread: str
    run: str | None
    start: int
    end: int | None = None
    started_at: str = ""
    finished_at: str | None = None
    status: str = "running"


class Replay(Shape):
    fixtures: list[Fixture] = []
    children: list[Child] = []
    pointers: list[Pointer] = []
    transitions: list[Mark] = []
    checkpoints: list[Mark] = []
    spans: list[BundleSpan] = []


class Attachment(Shape, kw_only=True):
    """A blob that an event refers to."""

    id: str
    kind: str
    title: str | None = None
    thread: str
    seq: int
    sha256: str
    metadata: JsonObject = {}


class Part(Shape):
    name: str
    size: int
    sha256: str


class Document(Shape, kw_only=True, rename={"type": "_type"}):
    """The document of a bundle. `type`, `version`, `bundle_id` and `parts` are used to verify that
    it is complete and unchanged. `created_at` is the time of its last event. Unknown fields are
    kept.
    """

    type: str
    version: int
    bundle_id: str
    created_at: str
    mode: Mode
    purpose: Purpose
    liveness: Liveness
    producer: Producer
    source: BundleSource
    runtime: Runtime
    workspace: Workspace | None = None
    session: SessionFacts
    threads: list[Thread]
    blobs: list[Blob]
    pending: list[PendingItem]
    queue: list[BundleQueuedInput]
    transcript: BundleTranscript
    tools: Tools
    permissions: list[BundlePermission]
    replay: Replay
    redaction: Redaction
    attachments: list[Attachment] = []
    metadata: JsonObject = {}
    parts: list[Part]


class EventLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as a line of a part. `data` keeps its original bytes."""

    seq: int
    at: int
    id: str
    kind: str
    v: int = 1
    run: str | None = None
    actor: str | None = None
    cause: str | None = None
    data: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"{}"))


_LINES = msgspec.json.Decoder(EventLine)


def line_of(event: Event) -> bytes:
    """Encode an event as a line of JSON, including the line ending."""
    names = ("seq", "at", "id", "kind", "v", "run", "actor", "cause", "data")
    return msgspec.json.encode(EventLine(**{name: getattr(event, name) for name in names})) + b"\n"


def event_of(line: bytes) -> Event:
    """Decode the event in a line. Raises msgspec's errors if it is invalid; limits are not
    checked.
    """
    found = _LINES.decode(line)
    rest = {name: getattr(found, name) for name in EventLine.__struct_fields__ if name != "data"}
    # A copy: the decoded data would keep the whole line in memory.
    return Event(data=msgspec.Raw(bytes(found.data)), **rest)


def id_of(raw: JsonObject) -> str:
    """Compute the id of a document: a hash of all its fields except the id, with sorted keys. It
    covers the parts too, because the document contains their hashes.
    """
    content = {name: value for name, value in raw.items() if name != "bundle_id"}
    text = msgspec.json.encode(content, order="deterministic")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def schema_of(type: type[msgspec.Struct], *, prefix: str) -> JsonObject:
    """Return the JSON Schema of a type. The `prefix` of class names is removed."""
    text = msgspec.json.encode(msgspec.json.schema(type)).decode()
    for name in re.findall(rf'"#/\$defs/({prefix}\w+)"', text):
        if name != type.__name__:
            published = name.removeprefix(prefix)
            for place in ('"#/$defs/{}"', '"title":"{}"', '"{}":{{"title"'):
                text = text.replace(place.format(name), place.format(published))
    schema: JsonObject = msgspec.json.decode(text)
    for one in schema["$defs"].values():
        if "description" in one:
            one["description"] = plain_description(one["description"])
    return schema


def plain_description(docstring: str) -> str:
    """Return a docstring for readers of a schema: without indentation, examples and links of the
    documentation, which follow the text."""
    text = inspect.cleandoc(docstring)
    return re.split(r"\n\n(?:```|[A-Z][\w ]*:? (?:and )?\[[^\n]*\]\()", text)[0]


def bundle_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of a document, generated from the types.

    See [bundles](../bundles.md).
    """
    schema = schema_of(Document, prefix="Bundle")
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Holdfast bundle, version 1",
    }
    schema["$defs"]["Document"]["properties"]["_type"] = {"const": TYPE}
    schema["$defs"]["Document"]["properties"]["version"] = {"const": VERSION}
    return {**about, **schema}


# Converts each old version of a document to the next. Only fields are added or renamed.
UPCASTS: dict[int, Callable[[JsonObject], JsonObject]] = {}


def upcast(raw: JsonObject) -> JsonObject:
    """Convert a document to the current version. Raises `InvalidValue` if its version is newer, or
    too old to be read.
    """
    version = raw.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidValue(field="$.version", problem="is not an integer", remedy="use 1")
    while version != VERSION:
        if version > VERSION:
            remedy = f"upgrade Holdfast; this release reads versions up to {VERSION}"
            raise InvalidValue(field="$.version", problem=f"is {version}", remedy=remedy)
        if version not in UPCASTS:
            remedy = "export it again with the release that wrote it"
            raise InvalidValue(field="$.version", problem=f"is {version}", remedy=remedy)
        version += 1
        raw = {**UPCASTS[version - 1](raw), "version": version}
    return raw
