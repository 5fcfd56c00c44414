"""Sessions between Harn's format and ours, and what is said of what could not be carried."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, Harness, tool
from holdfast.bundle import Bundle, ScrubConfig, export_bundle, import_bundle, validate_bundle
from holdfast.bundle.conversion_loss import LossReport
from holdfast.bundle.harn import (
    AgentEvent,
    HarnDocument,
    bundle_of_events,
    checkpoint_bundle,
    harn_schema,
    harn_schema_text,
    materialise,
    read_document,
    read_harn,
    record_bundle,
    schema_is_stale,
    write_harn,
)
from holdfast.errors import InvalidBundle, InvalidValue, NotContinuable
from holdfast.events import Event, Key, Scope, to_json
from holdfast.models import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.transcript import transcript
from tests.bundle.harn.records import SECRET, record
from tests.bundle.harn.records import transcript as harn_transcript
from tests.bundle.harn.session import PICTURE, SCOPE, store_with_session
from tests.bundle.harn.test_stream import closed, event, said

jsonschema: Any = import_module("jsonschema")  # it has no types
SCHEMA = Path(__file__).parents[3] / "docs/formats/harn-bundle.schema.json"


def lifted(told: dict[str, Any], mode: Any = "sanitized") -> tuple[HarnDocument, LossReport]:
    """As it is without a look at what is installed, which would block the loop."""
    return record_bundle(told, mode, version="1", scrub=ScrubConfig(detector=False))


def kinds(bundle: Bundle, thread: str = "main") -> list[str]:
    return [event.kind for event in bundle.events(thread)]


def words(bundle: Bundle, thread: str = "main") -> list[tuple[Any, ...]]:
    """What was said and done, whatever it is called."""
    return [
        (
            message.role,
            message.text,
            [(c.name, c.arguments, c.outcome and c.outcome.outcome == "ok") for c in message.calls],
        )
        for message in transcript(bundle.events(thread))
    ]


async def test_a_run_record_becomes_a_session_of_ours() -> None:
    document, _ = lifted(record(), "local")
    bundle, report = await read_harn(document)
    assert (await validate_bundle(bundle, allow_secrets=True)).id == bundle.id
    assert bundle.document.session.session == "run_1"
    assert bundle.document.session.title == "Refund order 42"
    assert bundle.document.liveness == "closed"
    assert words(bundle) == [
        ("user", f"Refund 42 with {SECRET}", []),
        ("assistant", "I look it up.", [("find", {"order": 42}, True)]),
        ("assistant", "Done.", []),
    ]
    (call,) = [c for m in transcript(bundle.events()) for c in m.calls]
    assert call.outcome is not None
    assert call.outcome.result == "42: 10 EUR"
    threads = [thread.thread for thread in bundle.document.threads]
    assert threads == ["main", "section:1:stage_0", "section:2:stage_2"]
    assert report.gone == ()
    assert any(loss.path == "$.replay.run_record" for loss in report)


async def test_a_session_that_did_not_go_on_is_written_as_the_document_it_was() -> None:
    document, _ = lifted(record(), "local")
    more = {**copy.deepcopy(document.raw), "x_unknown": {"kept": True}}
    text = json.dumps(more).encode()
    bundle, _ = await read_harn(text, allow_secrets=True)
    store = MemoryStore()
    await import_bundle(store, bundle)
    exported = await export_bundle((store, Scope("main", "run_1")), "local")
    again, report = write_harn(exported)
    assert again.raw == more
    assert not report


async def test_records_snapshots_and_files_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(record()))
    bundle, _ = await read_harn(tmp_path / "r.json", allow_secrets=True, session="mine", tenant="t")
    assert (bundle.document.session.session, bundle.document.session.tenant) == ("mine", "t")
    snapshot = {
        "_type": "worker_snapshot",
        "id": "w1",
        "name": "helper",
        "task": "look",
        "status": "suspended",
        "config": {},
        "suspension": {},
        "transcript": harn_transcript({"role": "user", "content": "look"}),
    }
    bundle, _ = await read_harn(snapshot)
    assert words(bundle) == [("user", "look", [])]
    assert bundle.document.liveness == "continuable"
    assert words(bundle, "worker:0:w1") == [("user", "look", [])]
    with pytest.raises(InvalidBundle):
        await read_harn(tmp_path / "absent.json")
    with pytest.raises(InvalidBundle):
        await read_harn(b'{"_type": "run_record", "id": ""}')


async def test_events_of_an_agent_session_become_messages_calls_and_questions() -> None:
    events = [
        said(1, "Refund 42"),
        event(2, "iteration_start", iteration=1, provider="anthropic", model="claude-x"),
        event(3, "agent_thought_chunk", content="Hm"),
        event(4, "agent_message_chunk", content="I "),
        event(5, "agent_message_chunk", content="look."),
        event(6, "tool_call", tool_call_id="a", tool_name="find", raw_input={"n": 1}),
        event(7, "tool_call", tool_call_id="b", tool_name="pay", raw_input={}),
        event(8, "tool_call_update", tool_call_id="a", status="in_progress"),
        event(9, "tool_call_update", tool_call_id="a", status="completed", raw_output=[42]),
        event(10, "plan", plan={}),
        event(11, "tool_call_update", tool_call_id="b", status="failed", error="broke"),
        event(12, "agent_message_chunk", content="Sorry."),
        event(13, "hitl_requested", request_id="q", kind="question", payload={"prompt": "Ok?"}),
        event(14, "hitl_resolved", request_id="q", kind="question", outcome="timeout"),
    ]
    bundle, report = await read_harn(bundle_of_events("s/1", events, version="1"))
    assert bundle.document.liveness == "continuable"
    assert words(bundle) == [
        ("user", "Refund 42", []),
        ("assistant", "I look.", [("find", {"n": 1}, True), ("pay", {}, False)]),
        ("assistant", "Sorry.", []),
    ]
    answer = transcript(bundle.events())[1]
    assert (answer.thought, answer.model) == ("Hm", "anthropic/claude-x")
    assert answer.calls[0].outcome is not None
    assert answer.calls[0].outcome.result == [42]
    assert kinds(bundle)[-2:] == ["pending.opened", "pending.settled"]
    assert [loss.what for loss in report if "plan" in loss.what] == ["an event 'plan'"]
    over, _ = await read_harn(bundle_of_events("s/1", [*events, closed(15)], version="1"))
    assert over.document.liveness == "closed"


def suspended(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {
        **record(),
        "status": "suspended",
        "finished_at": None,
        "stages": [],
        "transcript": harn_transcript(*messages),
        "tool_recordings": [],
        **changes,
    }


async def test_a_suspended_session_goes_on_here() -> None:
    told = suspended({"role": "user", "content": "Refund 42"})
    bundle, _ = await read_harn(lifted(told, "local")[0])
    assert bundle.document.liveness == "continuable"
    store = MemoryStore()
    imported = await import_bundle(store, bundle)
    model = ScriptedModel(["It is refunded."])
    async with Harness(
        Agent("shop", instructions="Help."), default_model=model, store=store
    ) as harness:
        session = await harness.get_or_create(imported.session)
        result = await session.wait()
    assert result.text == "It is refunded."


async def test_a_call_that_may_have_acted_is_never_made_again() -> None:
    ran: list[int] = []

    @tool
    async def refund(order: int) -> str:
        """Refund an order."""
        ran.append(order)
        return "refunded"

    asked = {"id": "c", "name": "refund", "arguments": {"order": 42}}
    told = suspended(
        {"role": "user", "content": "Refund 42"},
        {"role": "assistant", "content": "", "tool_calls": [asked]},
    )
    bundle, _ = await read_harn(lifted(told, "local")[0])
    store = MemoryStore()
    await import_bundle(store, bundle)
    agent = Agent("shop", instructions="Help.", tools=[refund])
    async with Harness(agent, default_model=ScriptedModel(["?"]), store=store) as harness:
        session = await harness.get_or_create("run_1")
        result = await session.wait()
        assert result.status == "waiting"
        assert [(item.what, item.call) for item in result.pending] == [("external", "c")]
    assert ran == []


@pytest.mark.parity("harn-bundle", 80)
@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
async def test_what_harn_redacted_is_redacted_here(mode: Any) -> None:
    document, _ = lifted(record(), mode)
    bundle, _ = await read_harn(document.encode())
    assert bundle.document.mode == bundle.document.redaction.mode == mode
    assert SECRET not in bundle.to_json().decode()
    with pytest.raises(NotContinuable):
        await import_bundle(MemoryStore(), bundle)
    imported = await import_bundle(MemoryStore(), bundle, purpose="read")
    assert imported.session == "run_1"
    with pytest.raises(InvalidValue):
        write_harn(bundle, "local")


async def test_a_bundle_with_another_runs_record_is_refused() -> None:
    raw = copy.deepcopy(lifted(record(), "local")[0].raw)
    raw["replay"]["run_record"]["id"] = "run_2"
    with pytest.raises(InvalidBundle) as raised:
        await read_harn(raw, allow_secrets=True)
    assert [fault.code for fault in raised.value.faults] == ["id_mismatch"]


async def test_our_session_is_written_in_harns_format() -> None:
    store = await store_with_session()
    bundle = await export_bundle((store, SCOPE), "local")
    document, report = write_harn(bundle)
    view = document.view
    assert (view.source.run_record_id, view.source.status) == ("customer-42", "suspended")
    assert view.source.finished_at is None
    assert view.metadata["session_liveness"] == "suspended"
    assert view.source.task == "Refund order 42."
    assert view.workspace is not None
    assert view.workspace.primary == "/home/ann/shop"
    assert view.runtime.usage is not None
    assert view.runtime.usage.input_tokens == 10
    assert view.runtime.provider_models == ["anthropic/claude-x"]
    calls = [(c.tool_name, c.result, c.is_rejected) for c in view.tools.calls]
    assert calls == [
        ("find", '{"order":42,"eur":10}', False),
        ("subagent", "no such clerk", False),
        ("refund", "not today", True),
    ]
    assert all(len(c.args_hash) == 16 for c in view.tools.calls)
    assert [section.id for section in view.transcript.sections] == ["run", "sub/c2"]
    roles = [m["role"] for m in view.transcript.sections[0].messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert view.replay.worker_snapshots
    worker = view.replay.worker_snapshots[0]
    assert (worker.worker_id, worker.worker_name, worker.status) == ("sub/c2", "clerk", "suspended")
    assert worker.value["transcript"]["messages"][0]["content"] == [
        {"type": "text", "text": "check"}
    ]
    assert read_document(document.encode()).raw == document.raw
    assert any("thought" in loss.what or "pending" in loss.what for loss in report)
    over = await export_bundle((await store_with_session(closed=True), SCOPE), "local")
    ended = write_harn(over)[0].view
    assert (ended.source.status, ended.metadata["session_liveness"]) == ("completed", "closed")
    assert ended.source.finished_at == over.document.created_at


async def test_every_event_of_ours_is_in_harns_document_or_named() -> None:
    bundle = await export_bundle((await store_with_session(), SCOPE), "local")
    document, report = write_harn(bundle)
    carried = [e["type"] for s in document.view.transcript.sections for e in s.events]
    named = "".join(loss.what for loss in report)
    for thread in ("main", "sub/c2"):
        for kind in kinds(bundle, thread):
            assert kind in carried or kind.startswith(("message.", "tool.finished"))
            assert kind in named or kind.startswith(("message.", "tool.finished"))
    assert [loss.what for loss in report if loss.path == "$.blobs"] == ["bytes of a blob"]


async def test_a_sub_agent_of_ours_goes_on_from_a_snapshot_in_a_file(tmp_path: Path) -> None:
    bundle = await export_bundle((await store_with_session(), SCOPE), "local")
    document, _ = write_harn(bundle)
    (done,) = await asyncio.to_thread(materialise, document, tmp_path)
    assert done.worker_id == "sub/c2"
    alone, _ = await asyncio.to_thread(checkpoint_bundle, Path(done.path))
    assert alone.view.source.status == "suspended"
    back, _ = await read_harn(Path(done.path))
    assert words(back) == words(bundle, "sub/c2") == [("user", "check", [])]
    store = MemoryStore()
    imported = await import_bundle(store, back)
    agent, model = Agent("clerk", instructions="Check."), ScriptedModel(["Checked."])
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create(imported.session)
        assert (await session.wait()).text == "Checked."


async def test_blobs_are_attachments_where_they_are_asked_for() -> None:
    bundle = await export_bundle((await store_with_session(), SCOPE), "local")
    document, report = write_harn(bundle, attachments=True)
    (attachment,) = document.view.attachments
    assert attachment.data == base64.b64encode(PICTURE).decode()
    assert [loss for loss in report if loss.path == "$.blobs"] == []
    assert write_harn(bundle)[0].view.attachments == []


@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
async def test_redaction_holds_on_the_way_to_harn_early_or_late(mode: Any) -> None:
    store = await store_with_session(secret=SECRET)
    local = await export_bundle((store, SCOPE), "local")
    early = write_harn(await export_bundle((store, SCOPE), mode))[0]
    late = (await asyncio.to_thread(write_harn, local, mode))[0]
    for document in (early, late):
        text = document.encode().decode()
        assert SECRET not in text
        assert "/home/ann" not in text
        assert document.view.redaction.mode == mode
        assert document.view.redaction.unsafe_secret_markers_rejected
        assert all(entry.replacement is None for entry in document.view.redaction.entries)
        if mode == "replay_only":
            assert "Refund order" not in text
            assert "Which order?" not in text
            assert "not today" not in text
        read_document(document.encode())


async def test_there_and_back_keeps_what_was_said_and_done() -> None:
    bundle = await export_bundle((await store_with_session(), SCOPE), "local")
    back, _ = await read_harn(write_harn(bundle)[0])
    assert words(back) == words(bundle)
    assert words(back, "section:1:sub/c2") == words(bundle, "sub/c2")
    assert back.document.liveness == bundle.document.liveness


@pytest.mark.parity("harn-bundle", 107)
async def test_the_schema_fits_every_export() -> None:
    schema = harn_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "https://harnlang.com/schemas/session-bundle.v1.json"
    root = schema["$defs"]["HarnBundle"]
    assert len(root["required"]) == 13
    assert root["properties"]["_type"] == {"const": "harn_session_bundle"}
    assert root["properties"]["schema_version"]["maximum"] == 1
    manifest = schema["$defs"]["RedactionManifest"]
    assert manifest["properties"]["mode"] == {"enum": ["local", "sanitized", "replay_only"]}
    assert schema["$defs"]["JsonEntry"]["required"] == ["source", "index", "value"]
    assert "summary" not in schema["$defs"]["Section"]["required"]
    check = jsonschema.Draft202012Validator(schema)
    store = await store_with_session()
    for mode in ("local", "sanitized", "replay_only"):
        told: Any = mode
        check.validate(lifted(record(), told)[0].raw)
        check.validate(write_harn(await export_bundle((store, SCOPE), told))[0].raw)
    check.validate(bundle_of_events("s", [said(1)], version="1").raw)
    bad = copy.deepcopy(lifted(record())[0].raw)
    del bad["source"]["task"]
    bad["redaction"]["mode"] = "other"
    assert len(list(check.iter_errors(bad))) == 2


@pytest.mark.parity("harn-bundle", 108)
def test_the_published_schema_is_this_one() -> None:
    text = SCHEMA.read_text()
    assert text == harn_schema_text()
    assert not schema_is_stale(text)
    assert not schema_is_stale(text.replace("\n", "\r\n"))
    assert schema_is_stale(text.replace("integer", "number"))
    assert schema_is_stale(None)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(st.tuples(st.sampled_from(["find", "pay"]), JSON, st.booleans()), max_size=3)
TURNS = st.lists(st.tuples(TEXT, TEXT, CALLS), min_size=1, max_size=4)


def conversation(turns: list[tuple[str, str, list[Any]]]) -> list[Event]:
    told: list[tuple[str, dict[str, Any]]] = [("session.created", {})]
    for number, (question, answer, calls) in enumerate(turns):
        told.append(("message.received", {"text": question}))
        named = [
            {"id": f"{number}-{n}", "name": name, "arguments": arguments}
            for n, (name, arguments, _) in enumerate(calls)
        ]
        told.append(("message.completed", {"text": answer, "calls": named}))
        for call, (_, result, ok) in zip(named, calls, strict=True):
            ended = {"result": result} if ok else {"outcome": "failed", "error": "broke"}
            told.append(("tool.finished", {"call": call["id"], **ended}))
        if calls:
            told.append(("message.completed", {"text": "Done."}))
    return [
        Event(kind=kind, data=to_json(data), id=f"e{seq}", seq=seq, at=1_772_000_000_000 + seq)
        for seq, (kind, data) in enumerate(told, 1)
    ]


async def bundle_of(events: list[Event]) -> Bundle:
    async def each() -> Any:
        for one in events:
            yield one

    store = MemoryStore()
    await store.restore(Key("main", "s", "main"), each())
    return await export_bundle((store, Scope("main", "s")), "local", purpose="move")


@given(turns=TURNS)
async def test_any_conversation_survives_the_way_to_harn_and_back(turns: Any) -> None:
    bundle = await bundle_of(conversation(turns))
    document, _ = write_harn(bundle)
    back, report = await read_harn(document, allow_secrets=True)
    assert words(back) == words(bundle)
    again, _ = write_harn(back)
    assert again.raw == document.raw
    assert report.gone == ()


def test_an_agent_event_without_a_type_has_that_of_its_kind() -> None:
    assert AgentEvent(event_id=1, kind="plan").type == "plan"
