"""The types of Harn's session bundle, version 1, and its constants.

A missing field has its default. The types ignore unknown fields. `HarnDocument` also keeps the
JSON, so that nothing is lost when it is written.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from ..format import Shape
from ..json_values import JsonObject

TYPE = "harn_session_bundle"
VERSION = 1
SCHEMA_ID = "https://harnlang.com/schemas/session-bundle.v1.json"
WITHHELD = "[withheld]"
REDACTED = "[redacted]"
SUSPENDED, COMPLETED, CLOSED = "suspended", "completed", "closed"
LIVENESS = "session_liveness"
WORKSPACE_POLICY = "safe_identity_only"
ANCHOR = "workspace_anchor"
OBSERVABILITY_VERSION = 4
MODES = ("local", "sanitized", "replay_only")

Count = Annotated[int, Meta(ge=0)]
Objects = list[JsonObject]


class HarnShape(Shape):
    """Base class of all types of Harn. Missing values are written as null."""


class HarnProducer(HarnShape):
    name: str = ""
    version: str = ""
    schema_id: str = ""


class HarnSource(HarnShape):
    kind: str = ""
    run_record_id: str = ""
    workflow_id: str = ""
    workflow_name: str | None = None
    task: str = ""
    status: str = ""
    started_at: str = ""
    finished_at: str | None = None
    persisted_path: str | None = None
    root_run_id: str | None = None
    parent_run_id: str | None = None
    child_run_count: Count = 0


class HarnUsage(HarnShape):
    input_tokens: int = 0
    output_tokens: int = 0
    call_count: int = 0
    total_duration_ms: int = 0
    total_cost: float = 0.0
    models: list[str] = []


class HarnRuntime(HarnShape):
    harn_version: str = ""
    provider_models: list[str] = []
    usage: HarnUsage | None = None
    metadata: JsonObject = {}


class HarnMountedRoot(HarnShape):
    path: str = ""
    mount_mode: str = "read_only"
    mounted_at: str = ""


class HarnWorkspace(HarnShape):
    primary: str | None = None
    additional_roots: list[HarnMountedRoot] = []
    anchored_at: str | None = None
    policy: str = ""


class HarnSection(HarnShape):
    id: str = ""
    label: str = ""
    scope: str = ""
    location: str = ""
    summary: str | None = None
    messages: list[Any] = []
    events: list[Any] = []
    assets: list[Any] = []
    metadata: JsonObject = {}


class HarnTranscript(HarnShape):
    sections: list[HarnSection] = []


class JsonEntry(HarnShape):
    source: str = ""
    index: Count = 0
    value: Any = None


class HarnToolCall(HarnShape):
    """A recorded call, with only a hash of its arguments."""

    tool_name: str = ""
    tool_use_id: str = ""
    args_hash: str = ""
    result: str = ""
    is_rejected: bool = False
    duration_ms: Count = 0
    iteration: Count = 0
    timestamp: str = ""


class HarnTools(HarnShape):
    schemas: list[JsonEntry] = []
    calls: list[HarnToolCall] = []


class HarnPermission(HarnShape):
    kind: str = ""
    source: str = ""
    request_id: str | None = None
    agent: str | None = None
    payload: Any = None


class StageAssertion(HarnShape):
    node_id: str = ""
    expected_status: str = ""
    expected_outcome: str = ""
    expected_branch: str | None = None
    required_artifact_kinds: list[str] = []
    visible_text_contains: str | None = None


class ReplayFixture(HarnShape):
    type: str = field(default="replay_fixture", name="_type")
    id: str = ""
    source_run_id: str = ""
    workflow_id: str = ""
    workflow_name: str | None = None
    created_at: str = ""
    eval_kind: str | None = None
    clarifying_question: JsonObject | None = None
    expected_status: str = ""
    stage_assertions: list[StageAssertion] = []


class HarnTransition(HarnShape):
    id: str = ""
    from_stage_id: str | None = None
    from_node_id: str | None = None
    to_node_id: str = ""
    branch: str | None = None
    timestamp: str = ""
    consumed_artifact_ids: list[str] = []
    produced_artifact_ids: list[str] = []


class HarnCheckpoint(HarnShape):
    id: str = ""
    ready_nodes: list[str] = []
    completed_nodes: list[str] = []
    last_stage_id: str | None = None
    persisted_at: str = ""
    reason: str = ""


class TraceSpan(HarnShape):
    """A span; older files have `parent_id` instead of `parent_span_id`."""

    trace_id: str = ""
    span_id: Any = ""
    parent_span_id: Any = None
    kind: str = ""
    name: str = ""
    start_ms: Count = 0
    duration_ms: Count = 0
    ttft_ms: int | UnsetType | None = UNSET
    metadata: JsonObject = {}
    links: list[Any] = []
    cost_usd: float | UnsetType | None = UNSET


class Verification(HarnShape):
    stage_id: str = ""
    node_id: str = ""
    status: str = ""
    passed: bool | None = None
    summary: str | None = None


class WorkerLineage(HarnShape):
    worker_id: str = ""
    worker_name: str = ""
    parent_stage_id: str | None = None
    task: str = ""
    status: str = ""
    session_id: str | None = None
    parent_session_id: str | None = None
    run_id: str | None = None
    run_path: str | None = None
    snapshot_path: str | None = None


class TranscriptPointer(HarnShape):
    id: str = ""
    label: str = ""
    kind: str = ""
    location: str = ""
    path: str | None = None
    available: bool = False


class Observability(HarnShape):
    schema_version: Count = 0
    planner_rounds: Objects = []
    research_fact_count: Count = 0
    action_graph_nodes: Objects = []
    action_graph_edges: Objects = []
    worker_lineage: list[WorkerLineage] = []
    verification_outcomes: list[Verification] = []
    transcript_pointers: list[TranscriptPointer] = []
    compaction_events: Objects = []
    daemon_events: Objects = []


class WorkerSnapshot(HarnShape):
    worker_id: str = ""
    worker_name: str = ""
    status: str = ""
    snapshot_ref: str = ""
    source_path: str | None = None
    value: Any = None


class EventLogPointer(HarnShape):
    kind: str = ""
    topic: str | None = None
    path: str | None = None
    location: str = ""
    available: bool = False


class HarnReplay(HarnShape):
    replay_fixture: ReplayFixture | None = None
    run_record: Any = None
    observability: Observability | UnsetType | None = UNSET
    verification_outcomes: list[Verification] = []
    worker_snapshots: list[WorkerSnapshot] | UnsetType = UNSET
    event_log_pointers: list[EventLogPointer] = []
    transitions: list[HarnTransition] = []
    checkpoints: list[HarnCheckpoint] = []
    trace_spans: list[TraceSpan] = []
    deterministic_events: list[JsonEntry] = []


class RedactionEntry(HarnShape):
    path: str = ""
    kind: str = field(default="", name="class")
    action: str = ""
    replacement: str | None = None


class RedactionManifest(HarnShape):
    mode: str = ""
    policy: str = ""
    placeholder: str = ""
    entries: list[RedactionEntry] = []
    unsafe_secret_markers_rejected: bool = False


class HarnAttachment(HarnShape):
    id: str = ""
    kind: str = ""
    title: str | None = None
    stage: str | None = None
    text: str | None = None
    data: Any = None
    metadata: JsonObject = {}


class HarnBundle(HarnShape):
    """The root type of a document.

    See [other formats](../interchange.md).
    """

    type: str = field(default=TYPE, name="_type")
    schema_version: Count = VERSION
    bundle_id: str = ""
    created_at: str = ""
    producer: HarnProducer = HarnProducer()
    source: HarnSource = HarnSource()
    runtime: HarnRuntime = HarnRuntime()
    workspace: HarnWorkspace | None = None
    transcript: HarnTranscript = HarnTranscript()
    tools: HarnTools = HarnTools()
    permissions: list[HarnPermission] = []
    replay: HarnReplay = HarnReplay()
    redaction: RedactionManifest = RedactionManifest()
    attachments: list[HarnAttachment] = []
    metadata: JsonObject = {}


class HarnDocument(Struct, frozen=True):
    """A bundle of Harn: its typed view, and its JSON including unknown fields.

    See [other formats](../interchange.md).
    """

    view: HarnBundle
    raw: JsonObject

    @classmethod
    def of(cls, raw: JsonObject) -> HarnDocument:
        """Create a document from a tree; missing fields get their defaults. Raises msgspec's
        `ValidationError` if a value has a wrong type.
        """
        view = msgspec.convert(raw, HarnBundle)
        return cls(view, overlaid(raw, msgspec.to_builtins(view)))

    @property
    def snapshots(self) -> list[JsonObject]:
        """The worker snapshots with all their fields."""
        return (self.raw.get("replay") or {}).get("worker_snapshots") or []

    def encode(self) -> bytes:
        """Encode the file: indented JSON with a final line ending. The same document yields the
        same bytes.
        """
        return msgspec.json.format(msgspec.json.encode(self.raw), indent=2) + b"\n"


def overlaid(raw: Any, typed: Any) -> Any:
    """Return `typed` with the additional fields of `raw`, at every level."""
    if isinstance(raw, dict) and isinstance(typed, dict):
        known = {
            name: overlaid(raw[name], value) if name in raw else value
            for name, value in typed.items()
        }
        return known | {name: value for name, value in raw.items() if name not in known}
    if isinstance(raw, list) and isinstance(typed, list) and len(raw) == len(typed):
        return [overlaid(one, other) for one, other in zip(raw, typed, strict=True)]
    return raw if type(raw) is not type(typed) and raw == typed else typed
