"""Redacts a Harn bundle for each mode. Pure.

`local` keeps everything. `sanitized` redacts secrets and personal data, and replaces all fields
with local paths. `replay_only` keeps the names of known fields, numbers, and the strings of listed
fields if they look like ids; everything else is withheld. All values keep their types.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from ...redact.names import word_set
from ..json_values import JsonObject, as_dict
from ..redaction.scrub import Mode, Redaction, Scrub, ScrubConfig
from . import format as f
from .format import REDACTED, WITHHELD
from .names import field_path

PATHS = word_set(
    """
persisted_path primary run_path snapshot_ref snapshot_path source_path child_run_path
worker_snapshot_path cwd project_root source_dir repo_path worktree_path
"""
)
POINTERS = (".event_log_pointers[", ".transcript_pointers[", ".additional_roots[")

# Texts that describe the course of a run, not its content.
KEPT = word_set(
    """
_type type kind role status outcome mode policy scope source id created_at started_at
finished_at suspended_at timestamp asked_at persisted_at anchored_at mounted_at mount_mode
schema_id version harn_version placeholder class action args_hash tool_name eval_kind bundle_id
run_record_id workflow_id root_run_id parent_run_id run_id tool_use_id tool_call_id request_id
worker_id session_id stage_id node_id parent_stage_id parent_session_id source_run_id
from_stage_id from_node_id to_node_id last_stage_id trace_id span_id parent_span_id
expected_status models provider_models model session_liveness ready_nodes completed_nodes
message_id sha256 checkpoint_kind location
"""
)
# Free content: always withheld completely.
CONTENT = word_set(
    """
args arguments blocks content data private_reasoning prompt raw_input raw_output result
response_text summary system system_prompt task text thinking visible_text payload input output
message parts env
"""
)
MORE = word_set(
    """
stages child_runs pending_nodes handoffs artifacts execution evidence transcript
tool_recordings hitl_questions persona_runtime tool_calls name is_error seq at event event_id
occurred_at_ms config suspension spec usage verification attempts node holdfast format_note
thought
"""
)
_SAFE = re.compile(r"[$A-Za-z0-9_.:+/\[\]-]{1,200}", re.ASCII)


@functools.cache
def _known() -> frozenset[str]:
    """Return the field names that reveal nothing about a conversation."""
    names = {*KEPT, *CONTENT, *MORE, *PATHS}
    for shape in vars(f).values():
        if isinstance(shape, type) and issubclass(shape, f.HarnShape):
            names.update(shape.__struct_encode_fields__)
    return frozenset(names)


def in_mode(
    tree: JsonObject,
    mode: Mode,
    config: ScrubConfig | None = None,
    *,
    attachments: bool = False,
) -> JsonObject:
    """Return the tree redacted for `mode`, with the manifest of the redaction. Without
    `attachments`, the artifacts of the embedded record have no content either, except in local
    mode.
    """
    entries: list[JsonObject] = []
    if mode == "local":
        return {**tree, "redaction": _manifest(Redaction(), entries)}
    scrub = Scrub("sanitized", config)
    if not attachments:
        tree = _without_artifacts(tree, entries)
    identity = ("_type", "schema_version", "producer")
    content = {name: value for name, value in tree.items() if name not in identity}
    scrubbed = scrub.value(_without_paths(content, "$", entries), "$")
    if mode == "replay_only":
        scrubbed = _skeleton(scrubbed, "", "$", entries)
    done = msgspec.structs.replace(scrub.manifest(), mode=mode)
    ours = {name: tree[name] for name in identity}
    return {**ours, **scrubbed, "redaction": _manifest(done, entries)}


def _manifest(done: Redaction, more: list[JsonObject]) -> JsonObject:
    """Return the manifest in Harn's format. It never contains any part of a replaced string."""
    hits = [{"path": e.path, "class": e.kind, "action": "replaced"} for e in done.entries]
    entries = [{**entry, "replacement": None} for entry in (*hits, *more)]
    return {
        "mode": done.mode,
        "policy": done.policy if done.mode == "local" else f"{done.policy}/{done.version}",
        "placeholder": done.placeholder,
        "entries": sorted(entries, key=lambda e: (e["path"], e["class"])),
        "unsafe_secret_markers_rejected": done.mode != "local",
    }


def manifest_of(done: Redaction) -> JsonObject:
    """Return the manifest of a bundle that was redacted before it was converted."""
    return _manifest(done, [])


def _without_artifacts(tree: JsonObject, entries: list[JsonObject]) -> JsonObject:
    record = as_dict(tree["replay"].get("run_record"))
    artifacts = record.get("artifacts")
    if not isinstance(artifacts, list):
        return tree
    kept = []
    for number, artifact in enumerate(artifacts):
        about = dict(as_dict(artifact))
        for name in ("text", "data"):
            if about.get(name) is not None:
                about[name] = WITHHELD
                path = f"$.replay.run_record.artifacts[{number}].{name}"
                entries.append({"path": path, "class": "attachment", "action": "withheld"})
        kept.append(about)
    replay = {**tree["replay"], "run_record": {**record, "artifacts": kept}}
    return {**tree, "replay": replay}


def _without_paths(value: Any, path: str, entries: list[JsonObject]) -> Any:
    if isinstance(value, list):
        return [_without_paths(v, f"{path}[{n}]", entries) for n, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        at = field_path(path, name)
        pointer = name == "path" and any(mark in at for mark in POINTERS)
        if isinstance(inner, str) and inner and (name in PATHS or pointer):
            found[name] = REDACTED
            what = "local_pointer_path" if pointer else "sensitive_field"
            entries.append({"path": at, "class": what, "action": "replaced"})
        else:
            found[name] = _without_paths(inner, at, entries)
    return found


def _skeleton(value: Any, key: str, path: str, entries: list[JsonObject]) -> Any:
    if isinstance(value, dict):
        return {
            name if name in _known() else f"{WITHHELD}{number}": _withheld(at, entries, inner)
            if name in CONTENT or name not in _known()
            else _skeleton(inner, name, at, entries)
            for number, (name, inner) in enumerate(value.items())
            for at in [field_path(path, name) if name in _known() else f"{path}.{WITHHELD}{number}"]
        }
    if isinstance(value, list):
        return [_skeleton(v, key, f"{path}[{n}]", entries) for n, v in enumerate(value)]
    if isinstance(value, str) and not (key in KEPT and _SAFE.fullmatch(value)):
        return _withheld(path, entries, value)
    return value


def _withheld(path: str, entries: list[JsonObject], value: Any) -> Any:
    if value is None:
        return None
    entries.append({"path": path, "class": "prompt_or_tool_payload", "action": "withheld"})
    return WITHHELD
