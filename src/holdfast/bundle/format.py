"""The format of a bundle: the types of its document, its parts, its limits and its schema.

A bundle is one document and named parts: the events of each thread, the messages of each, blobs.
In a single JSON the parts are inside the document, in an archive they are files; the id is the
same. Pure: uses no store and no file. The docstrings of the types are published in the schema.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from ..errors import InvalidValue
from ..log.catalog import Parent
from ..log.codec import LIMITS
from ..log.events import Event
from ..values.records import Liveness
from .redaction.manifest import Mode, Redaction

TYPE = "holdfast_bundle"
VERSION = 1
SCHEMA_ID = "urn:holdfast:schemas:bundle:1"
PRODUCER = "holdfast"
DOCUMENT = "bundle.json"  # its name in an archive, where it comes first

Purpose: TypeAlias = Literal["share", "copy", "move"]

SECTION_BYTES = 4 << 20  # data of messages above which a thread has no transcript section
LISTED = 2_000  # calls, permissions and the like that are listed; events have them all


class BundleLimits(Struct, frozen=True, kw_only=True):
    """The limits of a bundle; a larger one is rejected before anything is written.

    `json_bytes` is for a bundle in a single JSON, and for the document of an archive. `ratio` is
    the size of the content divided by that of the archive, from 64 MiB on. `values` is the number
    of JSON values in one event, or in the document without its events. `faults` are listed.
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


class _Fields(Struct, frozen=True, kw_only=True):
    """The base of the types of a document: all fields are written, also those with defaults."""


class Producer(_Fields, frozen=True, kw_only=True):
    """What made the bundle: the format it writes, not the release of the day."""

    name: str = PRODUCER
    version: str = str(VERSION)
    schema_id: str = SCHEMA_ID


class Source(_Fields, frozen=True, kw_only=True):
    """What the bundle was made of. `task` is the beginning of the first message, `status` that of
    the last run, or `idle`; `upto` is where a prefix was cut."""

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


class Usage(_Fields, frozen=True, kw_only=True):
    """What models were asked and what it cost; `counts` are all that their vendors counted."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    duration_ms: int = 0
    cost: float | None = None
    models: list[str] = []
    counts: dict[str, int] = {}


class Runtime(_Fields, frozen=True, kw_only=True):
    models: list[str] = []
    usage: Usage | None = None
    metadata: dict[str, Any] = {}


class MountedRoot(_Fields, frozen=True, kw_only=True):
    path: str
    mode: str = "read_only"
    mounted_at: str | None = None


class Workspace(_Fields, frozen=True, kw_only=True):
    """Where the session worked, as its log names it."""

    primary: str | None = None
    roots: list[MountedRoot] = []
    anchored_at: str | None = None


class SessionFacts(_Fields, frozen=True, kw_only=True):
    """What lists show of the session, and the names that it holds."""

    tenant: str
    session: str
    agent: str | None = None
    title: str | None = None
    user: str | None = None
    workspace: str | None = None
    phase: str = "created"
    labels: list[str] = []
    metadata: dict[str, Any] = {}
    surfaces: dict[str, Any] = {}
    pinned: bool = False
    hold: str | None = None
    ttl: int | None = None
    expiry: int | None = None
    created_at: str = ""
    claims: list[str] = []


class Thread(_Fields, frozen=True, kw_only=True):
    """One log. Part `part` has its events after `parent.at`, or all of them where no thread of the
    bundle has the beginning; in a single JSON they stand here, as `events`. Those up to `shared`
    belong to the log that it was forked from, in the bundle or not. The last `added` were made by
    the export, to close what was open."""

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


class Blob(_Fields, frozen=True, kw_only=True):
    """Bytes that belong to the session, in part `part`; none if they were left out. In a single
    JSON they stand here, as `data` in base64."""

    sha256: str
    size: int
    part: str | None = None
    media_type: str | None = None
    data: str | msgspec.UnsetType = msgspec.UNSET


class PendingItem(_Fields, frozen=True, kw_only=True):
    """Something that waits for an answer; its wording is in event `seq`."""

    thread: str
    id: str
    what: str
    seq: int
    at: int
    call: str | None = None
    expires: int | None = None


class QueuedInput(_Fields, frozen=True, kw_only=True):
    """A message that no run has taken up: event `seq`."""

    thread: str
    seq: int
    how: str = "queue"


class Section(_Fields, frozen=True, kw_only=True):
    """The messages of a thread as a person reads them, a line each in part `part`; none where they
    are too large. In a single JSON they stand here, as `messages`. `summary` is the number of the
    event that has one, `assets` are blobs."""

    id: str
    label: str
    scope: str = "thread"
    location: str
    part: str | None = None
    count: int = 0
    events: int = 0
    summary: int | None = None
    assets: list[str] = []
    metadata: dict[str, Any] = {}
    messages: list[Any] | msgspec.UnsetType = msgspec.UNSET


class Transcript(_Fields, frozen=True, kw_only=True):
    sections: list[Section] = []


class Entry(_Fields, frozen=True, kw_only=True):
    """One JSON value and where it is from."""

    source: str
    index: int
    value: Any = None


class Called(_Fields, frozen=True, kw_only=True):
    """One tool call; arguments and results are in the events, here are the SHA-256 of them."""

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


class Tools(_Fields, frozen=True, kw_only=True):
    """`schemas` are the fingerprints of the tools that were called, as they were then; `total`
    counts the calls, also those that are not listed."""

    schemas: list[Entry] = []
    calls: list[Called] = []
    total: int = 0


class Permission(_Fields, frozen=True, kw_only=True):
    """What was asked of a person, or decided for good. `seq` is the event that says so, `settled`
    the one that answers it."""

    kind: str
    source: str
    seq: int
    request_id: str | None = None
    agent: str | None = None
    payload: Any = None
    settled: int | None = None
    outcome: str | None = None
    by: str | None = None


class Fixture(_Fields, frozen=True, kw_only=True):
    """What a replay is to come to, by run."""

    thread: str
    run: str | None
    expected_status: str
    steps: int = 0
    answer_hash: str | None = None


class Child(_Fields, frozen=True, kw_only=True):
    """A sub-agent: its thread is in the bundle, with all that it needs to go on."""

    thread: str
    agent: str
    parent: str
    item: str | None = None
    call: str | None = None
    status: str = "idle"
    reported: bool = False


class Pointer(_Fields, frozen=True, kw_only=True):
    kind: str
    thread: str
    location: str
    available: bool = True


class Mark(_Fields, frozen=True, kw_only=True):
    """A place in a log: a checkpoint, or a change of mode."""

    thread: str
    seq: int
    id: str
    label: str | None = None
    at: str = ""


class Span(_Fields, frozen=True, kw_only=True):
    """One run, from and to which event."""

    thread: str
    run: str | None
    start: int
    end: int | None = None
    started_at: str = ""
    finished_at: str | None = None
    status: str = "running"


class Replay(_Fields, frozen=True, kw_only=True):
    fixtures: list[Fixture] = []
    children: list[Child] = []
    pointers: list[Pointer] = []
    transitions: list[Mark] = []
    checkpoints: list[Mark] = []
    spans: list[Span] = []


class Attachment(_Fields, frozen=True, kw_only=True):
    """A blob that an event speaks of."""

    id: str
    kind: str
    title: str | None = None
    thread: str
    seq: int
    sha256: str
    metadata: dict[str, Any] = {}


class Part(_Fields, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class Document(_Fields, frozen=True, kw_only=True, rename={"type": "_type"}):
    """The document of a bundle. `type`, `version`, `bundle_id` and `parts` say whether it is whole;
    `created_at` is the time of its last event. Fields that this version does not know are kept."""

    type: str
    version: int
    bundle_id: str
    created_at: str
    mode: Mode
    purpose: Purpose
    liveness: Liveness
    producer: Producer
    source: Source
    runtime: Runtime
    workspace: Workspace | None = None
    session: SessionFacts
    threads: list[Thread]
    blobs: list[Blob]
    pending: list[PendingItem]
    queue: list[QueuedInput]
    transcript: Transcript
    tools: Tools
    permissions: list[Permission]
    replay: Replay
    redaction: Redaction
    attachments: list[Attachment] = []
    metadata: dict[str, Any] = {}
    parts: list[Part]


class EventLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as a line of a part; `data` keeps its bytes."""

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
    """An event as a line, with its line end."""
    names = ("seq", "at", "id", "kind", "v", "run", "actor", "cause", "data")
    return msgspec.json.encode(EventLine(**{name: getattr(event, name) for name in names})) + b"\n"


def event_of(line: bytes) -> Event:
    """The event of a line. Raises msgspec's errors if it is invalid; limits are not checked."""
    found = _LINES.decode(line)
    rest = {name: getattr(found, name) for name in EventLine.__struct_fields__ if name != "data"}
    # A copy: the decoded data would keep the whole line in memory.
    return Event(data=msgspec.Raw(bytes(found.data)), **rest)


def id_of(raw: dict[str, Any]) -> str:
    """The id of a document: a hash of all its fields except the id, with sorted keys. The parts
    count through their hashes in the document."""
    content = {name: value for name, value in raw.items() if name != "bundle_id"}
    text = msgspec.json.encode(content, order="deterministic")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def schema_of(type: type[msgspec.Struct], *, prefix: str) -> dict[str, Any]:
    """The JSON Schema of a type. Types are published without the `prefix` of their class names.
    Some versions of Python keep the indentation of docstrings; it is removed."""
    text = msgspec.json.encode(msgspec.json.schema(type)).decode()
    for name in re.findall(rf'"#/\$defs/({prefix}\w+)"', text):
        if name != type.__name__:
            published = name.removeprefix(prefix)
            for place in ('"#/$defs/{}"', '"title":"{}"', '"{}":{{"title"'):
                text = text.replace(place.format(name), place.format(published))
    schema: dict[str, Any] = msgspec.json.decode(text)
    for one in schema["$defs"].values():
        if "description" in one:
            one["description"] = inspect.cleandoc(one["description"])
    return schema


def bundle_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document, generated from the types."""
    schema = schema_of(Document, prefix="Bundle")
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Holdfast bundle, version 1",
    }
    schema["$defs"]["Document"]["properties"]["_type"] = {"const": TYPE}
    schema["$defs"]["Document"]["properties"]["version"] = {"const": VERSION}
    return {**about, **schema}


# From a version of the document to the next. A step may only add and rename; parts do not change.
UPCASTS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def upcast(raw: dict[str, Any]) -> dict[str, Any]:
    """The document in the current version; `InvalidValue` for a newer one, or an old one that can
    no longer be read."""
    version = raw.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidValue(field="$.version", problem="is not an integer", remedy="use 1")
    while version != VERSION:
        if version > VERSION:
            remedy = f"upgrade Holdfast, which reads up to {VERSION}"
            raise InvalidValue(field="$.version", problem=f"is {version}", remedy=remedy)
        if version not in UPCASTS:
            remedy = "export it again with the release that wrote it"
            raise InvalidValue(field="$.version", problem=f"is {version}", remedy=remedy)
        version += 1
        raw = {**UPCASTS[version - 1](raw), "version": version}
    return raw
