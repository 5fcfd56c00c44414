"""Claude Code's transcripts as sessions of ours, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, Harness
from holdfast.bundle import Bundle, export_bundle, import_bundle, validate_bundle
from holdfast.bundle.claude import ClaudeFiles, read_claude, save_claude, write_claude
from holdfast.errors import InvalidBundle, InvalidValue
from holdfast.events import Event, Key, Scope, to_json
from holdfast.log.codec import typed
from holdfast.models import ScriptedModel
from holdfast.stores.memory import MemoryStore
from holdfast.transcript import Message, transcript
from tests.bundle.claude.lines import PNG, SESSION, Lines, clerk, session


def files(main: Lines | None = None) -> ClaudeFiles:
    return ClaudeFiles(
        session=SESSION,
        main=(main or session()).text(),
        agents={"subagents/agent-a1": clerk().text()},
        about={"subagents/agent-a1": {"agentType": "clerk", "description": "Finds things"}},
    )


def said(bundle: Bundle, thread: str = "main") -> list[Message]:
    return transcript(bundle.events(thread))


async def test_a_transcript_is_a_session_of_ours() -> None:
    bundle, _ = await read_claude(files())
    assert (await validate_bundle(bundle)).id == bundle.id
    facts = bundle.document.session
    assert (facts.session, facts.workspace) == (SESSION, "/srv/shop")
    messages = said(bundle)
    assert [(m.role, m.text) for m in messages] == [
        ("user", "What is this?"),
        ("assistant", "I look."),
        ("assistant", "It is a receipt."),
        ("user", "Ask a clerk."),
        ("assistant", ""),
        ("assistant", "The clerk found it."),
    ]
    assert messages[1].thought == "A receipt."
    assert messages[1].model == "anthropic/claude-x-4"
    assert messages[1].parts[0]["signature"] == "c2ln"
    assert messages[0].at == 1_772_359_203_500
    part = messages[0].parts[0]
    assert (part["type"], part["media_type"], part["size"]) == ("blob", "image/png", len(PNG))
    assert bundle.blob(part["sha256"]) == PNG


async def test_calls_have_their_results_also_when_several_were_made_at_once() -> None:
    bundle, _ = await read_claude(files())
    read, bash = said(bundle)[1].calls
    assert (read.id, read.name, read.arguments) == ("toolu_1", "Read", {"path": "a"})
    assert read.outcome is not None
    assert (read.outcome.outcome, read.outcome.content) == ("ok", "text of a")
    assert read.outcome.result == {"file": {"path": "a"}}
    assert bash.outcome is not None
    assert (bash.outcome.outcome, bash.outcome.error) == ("failed", "no such command")
    (task,) = said(bundle)[4].calls
    assert task.outcome is not None
    assert task.outcome.refs[0]["media_type"] == "image/png"


async def test_a_sub_agent_is_a_thread_of_the_call_that_began_it() -> None:
    bundle, _ = await read_claude(files())
    assert [t.thread for t in bundle.document.threads] == ["main", "subagents/agent-a1"]
    created = next(bundle.events("subagents/agent-a1")).json()
    assert (created["agent"], created["call"], created["parent"]) == ("clerk", "toolu_3", "main")
    assert [m.text for m in said(bundle, "subagents/agent-a1")] == ["look it up", "found"]


async def test_lines_that_are_no_messages_are_kept_and_reported() -> None:
    bundle, report = await read_claude(files())
    kept = [event.json() for event in bundle.events() if event.kind == "claude.entry"]
    assert [entry["type"] for entry in kept] == ["summary", "file-history-snapshot"]
    assert kept[0] == {"type": "summary", "summary": "A refund", "leafUuid": "x"}
    told = {loss.what for loss in report}
    assert "a line of type 'summary'" in told
    assert "a field of a line" in told  # the id of the request
    assert "a usage value" in told  # the tier


async def test_the_conversation_is_the_branch_that_went_on() -> None:
    lines = session()
    asked = next(e for e in lines.entries if e.get("message", {}).get("content") == "Ask a clerk.")
    lines.user("Never mind.", parent=asked["parentUuid"])
    lines.said("msg_5", "Fine.")
    bundle, report = await read_claude(files(lines))
    assert [m.text for m in said(bundle)][-3:] == ["It is a receipt.", "Never mind.", "Fine."]
    assert [loss.count for loss in report if "branch" in loss.what] == [4]
    others = [e for e in bundle.events() if e.kind == "claude.entry"]
    assert len(others) == 2 + 4


async def test_a_compaction_is_one_here_too() -> None:
    lines = session()
    before = lines.entries[-1]["uuid"]
    mark = {"subtype": "compact_boundary", "content": "Conversation compacted"}
    lines.add("system", parent=None, logicalParentUuid=before, **mark)
    lines.user("It was about a receipt.", isCompactSummary=True)
    lines.user("And now?")
    bundle, _ = await read_claude(files(lines))
    assert [m.text for m in said(bundle)][-2:] == ["The clerk found it.", "And now?"]
    store = MemoryStore()
    await import_bundle(store, bundle)
    model = ScriptedModel(["Done."], per_turn=True)
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=model, store=store) as harness:
        await (await harness.get_or_create(SESSION)).wait()
    (asked,) = model.calls[0].messages
    assert "It was about a receipt." in str(asked)
    assert "And now?" in str(asked)
    assert "What is this?" not in str(asked)
    written, _ = write_claude(bundle)
    again, _ = await read_claude(written)
    kinds = [e.kind for e in bundle.events()]
    assert [e.kind for e in again.events()] == kinds
    assert [m.text for m in said(again)] == [m.text for m in said(bundle)]


async def test_a_compaction_of_ours_is_one_in_claude_code() -> None:
    told: list[tuple[str, Any]] = [
        ("session.created", {}),
        ("message.received", {"text": "Hi."}),
        ("message.completed", {"text": "Hello."}),
        ("compaction.made", {"upto": 3, "summary": "They greeted."}),
        ("message.received", {"text": "Bye."}),
        ("compaction.made", {"upto": 5}),
    ]
    written, report = write_claude(await bundle_of(told))
    lines = [json.loads(line) for line in written.main.splitlines()]
    assert [line["type"] for line in lines] == ["user", "assistant", "system", "user", "user"]
    assert (lines[2]["parentUuid"], lines[2]["logicalParentUuid"]) == (None, lines[1]["uuid"])
    assert lines[3]["isCompactSummary"]
    assert [loss.what for loss in report if "compaction" in loss.what] == ["a compaction"]
    back, _ = await read_claude(written)
    assert [m.text for m in said(back)] == ["Hi.", "Hello.", "Bye."]


async def test_sub_agents_among_the_lines_of_a_session_are_threads_too() -> None:
    lines = session()
    spoken = [entry for entry in clerk().entries if entry.pop("agentId")]
    lines.entries[7:7] = spoken
    bundle, _ = await read_claude(lines.text())
    assert len(said(bundle)) == 6
    (thread,) = [t.thread for t in bundle.document.threads if t.thread != "main"]
    assert [m.text for m in said(bundle, thread)] == ["look it up", "found"]


async def test_a_line_that_is_there_twice_counts_once() -> None:
    text = session().text()
    once, _ = await read_claude(text)
    bundle, report = await read_claude(text + text)
    assert [m.text for m in said(bundle)] == [m.text for m in said(once)]
    assert [loss.count for loss in report if "uuid" in loss.why] == [13]


async def test_lines_that_cannot_be_read_are_reported_and_the_rest_is_read() -> None:
    lines = session()
    half = '{"type":"user","message":{"role":"user","content":"\\ud83d half"},"uuid":"u9"}\n'
    text = lines.text() + b"[1]\n" + b"not json\n" + half.encode() + b'{"type":"assis'
    deep = b'{"type":"x","a":' + b"[" * 4000 + b"]" * 4000 + b"}\n"
    bundle, report = await read_claude(ClaudeFiles(session="s", main=deep + text))
    bad = [loss for loss in report if loss.what == "a line"]
    assert sum(loss.count for loss in bad) == 4
    assert [loss.path for loss in report if "Unicode" in loss.why] == ["main[18]"]
    assert said(bundle)[-1].text == "? half"


@pytest.mark.parametrize("text", [b"", b"{}\n", b'{"type":"summary"}\n', b"\xff\n"])
async def test_without_a_conversation_there_is_no_session(text: bytes) -> None:
    with pytest.raises(InvalidBundle):
        await read_claude(text, session="s")


async def test_the_session_is_named_by_its_lines_or_by_the_caller() -> None:
    bundle, _ = await read_claude(session().text())
    assert bundle.document.session.session == SESSION
    bundle, _ = await read_claude(session().text(), session="mine", tenant="t")
    assert (bundle.document.session.session, bundle.document.session.tenant) == ("mine", "t")
    with pytest.raises(InvalidBundle):
        await read_claude(b'{"type":"user","message":{"content":"hi"}}\n')


async def test_a_transcript_goes_on_here() -> None:
    lines = session()
    lines.user("And now?")
    bundle, _ = await read_claude(files(lines))
    store = MemoryStore()
    await import_bundle(store, bundle)
    model = ScriptedModel(["Now it is done."], per_turn=True)
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=model, store=store) as harness:
        session_ = await harness.get_or_create(SESSION)
        result = await session_.wait()
    assert result.text == "Now it is done."
    assert len(model.calls[0].messages) == 9


async def test_an_open_call_is_asked_about_and_never_made_again() -> None:
    lines = session()
    lines.user("Pay.")
    lines.use("msg_6", "toolu_6", "Pay", cents=5)
    bundle, report = await read_claude(files(lines))
    assert any("'toolu_6'" in loss.what for loss in report)
    assert said(bundle)[-1].calls[0].started
    lines.user("Stop!")
    lines.said("msg_7", "I stopped.")
    bundle, report = await read_claude(files(lines))
    (call,) = said(bundle)[-3].calls
    assert call.outcome is not None
    assert call.outcome.outcome == "unknown"
    assert any("'toolu_6'" in loss.what for loss in report)


async def test_a_rejected_call_was_denied() -> None:
    lines = Lines()
    lines.user("Pay.", parent=None)
    lines.use("msg_1", "toolu_1", "Pay")
    lines.result("toolu_1", "The user said no", error=True, toolUseResult="User rejected tool use")
    bundle, _ = await read_claude(lines.text())
    (call,) = said(bundle)[1].calls
    assert call.outcome is not None
    assert call.outcome.outcome == "denied"


@pytest.mark.parity("user-demand", 58)
async def test_written_again_it_says_the_same_line_by_line() -> None:
    bundle, _ = await read_claude(files())
    written, _ = write_claude(bundle)
    again, report = await read_claude(written)
    assert [_plain(m) for m in said(again)] == [_plain(m) for m in said(bundle)]
    assert written.session == SESSION
    assert list(written.agents) == ["subagents/agent-a1"]
    assert written.about["subagents/agent-a1"]["agentType"] == "clerk"
    before = [line for line in session().entries if line["type"] in ("user", "assistant")]
    after = [json.loads(line) for line in written.main.splitlines()]
    spoken = [line for line in after if line["type"] in ("user", "assistant")]
    assert [line["type"] for line in spoken] == [line["type"] for line in before]
    assert [_content(line) for line in spoken] == [_content(line) for line in before]
    for line, parent in zip(spoken[1:], spoken, strict=False):
        assert line["parentUuid"] == parent["uuid"]
    assert {line["sessionId"] for line in spoken} == {SESSION}
    assert {line["version"] for line in spoken} == {"2.1.0"}
    assert [line for line in after if line["type"] == "summary"]
    assert not [loss for loss in report if "result" in loss.what]
    assert write_claude(again)[0] == write_claude(again)[0]


def _content(line: dict[str, Any]) -> Any:
    content = line["message"]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        {n: v for n, v in block.items() if n not in ("is_error", "content")}
        for block in blocks
        if isinstance(block, dict)
    ]


def _plain(message: Message) -> Any:
    calls = [
        (
            c.name,
            c.arguments,
            c.outcome and (c.outcome.outcome, c.outcome.result, c.outcome.content),
        )
        for c in message.calls
    ]
    return message.role, message.text, message.thought, message.model, message.parts, calls


async def test_files_are_read_and_written_where_claude_code_has_them(tmp_path: Path) -> None:
    bundle, _ = await read_claude(files())
    written, _ = write_claude(bundle)
    paths = await save_claude(written, tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in paths) == [
        f"{SESSION}.jsonl",
        f"{SESSION}/subagents/agent-a1.jsonl",
        f"{SESSION}/subagents/agent-a1.meta.json",
    ]
    again, _ = await read_claude(tmp_path / f"{SESSION}.jsonl")
    assert [t.thread for t in again.document.threads] == ["main", "subagents/agent-a1"]
    assert [m.text for m in said(again)] == [m.text for m in said(bundle)]
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(InvalidValue):
        await save_claude(written, tmp_path)
    assert {path: path.read_bytes() for path in paths} == before
    for name in ("../x", "a/../../x", "/x", ""):
        with pytest.raises(InvalidValue):
            await save_claude(ClaudeFiles(session=name, main=b""), tmp_path / "new")
    with pytest.raises(InvalidBundle):
        await read_claude(tmp_path / "absent.jsonl")


@pytest.mark.parity("user-demand", 58)
async def test_what_claude_code_has_no_word_for_is_named() -> None:
    told: list[tuple[str, Any]] = [
        ("session.created", {"agent": "shop"}),
        ("message.received", {"text": "Hi.", "how": "steer", "parts": [{"odd": 1}]}),
        ("run.started", {}),
        ("message.completed", {"text": "Yes.", "thought": "Hm.", "parts": [{"x": 1}], "cost": 0.5}),
        ("message.interrupted", {"text": "and th"}),
        ("task.changed", {"tasks": []}),
    ]
    bundle = await bundle_of(told)
    written, report = write_claude(bundle)
    named = {loss.what for loss in report}
    assert named >= {
        "the session's id",
        "options of a message for its run",
        "a part of a message",
        "a thought",
        "a part of an answer",
        "the interruption of a message",
        "an event run.started",
        "an event task.changed",
    }
    again, _ = await read_claude(written)
    received, answer, _ = said(again)
    assert received.parts == [{"odd": 1}]
    assert (answer.thought, answer.parts) == ("Hm.", [{"x": 1}])


async def bundle_of(told: list[tuple[str, Any]]) -> Bundle:
    async def each() -> Any:
        for seq, (kind, data) in enumerate(told, 1):
            at = 1_772_000_000_000 + seq
            yield Event(kind=kind, data=to_json(data), id=f"e{seq}", seq=seq, at=at)

    store = MemoryStore()
    await store.restore(Key("main", "s", "main"), each())
    return await export_bundle((store, Scope("main", "s")), "local", purpose="move")


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OUTCOMES = st.fixed_dictionaries(
    {},
    optional={
        "outcome": st.sampled_from(["ok", "failed", "denied", "cancelled", "unknown"]),
        "result": JSON,
        "error": TEXT,
        "content": TEXT,
        "code": st.just("tool_failed"),
    },
)
IDS = st.sampled_from(["toolu_1", "call/ö", "x" * 90, ""])
CALLS = st.lists(st.tuples(IDS, st.sampled_from(["find", "pay"]), JSON, OUTCOMES), max_size=3)
ANSWERS = st.fixed_dictionaries(
    {"text": TEXT},
    optional={
        "thought": TEXT,
        "model": st.sampled_from(["anthropic/claude-x", "openai/gpt-x"]),
        "reason": st.sampled_from(["stop", "calls", "length", "other"]),
        "usage": st.dictionaries(
            st.sampled_from(["input_tokens", "output_tokens", "cache_read_tokens"]),
            st.integers(0, 1 << 40),
        ),
        "parts": st.lists(
            st.sampled_from(
                [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "eA=="},
                    {"bound": "to another"},
                ]
            ),
            max_size=2,
        ),
    },
)
QUESTIONS = st.fixed_dictionaries(
    {"text": TEXT},
    optional={
        "metadata": st.dictionaries(TEXT, JSON, max_size=2),
        "parts": st.lists(JSON, max_size=2),
    },
)


@given(turns=st.lists(st.tuples(QUESTIONS, ANSWERS, CALLS), min_size=1, max_size=4))
async def test_any_conversation_survives_the_way_to_claude_code_and_back(turns: Any) -> None:
    told: list[tuple[str, Any]] = [("session.created", {})]
    number = 0
    for question, answer, calls in turns:
        told.append(("message.received", question))
        named = []
        for provider, name, arguments, _ in calls:
            number += 1
            call = {"id": f"c{number}", "name": name, "arguments": arguments}
            named.append({**call, "provider_id": provider} if provider else call)
        told.append(("message.completed", {**answer, "calls": named}))
        for call, (_, _, _, outcome) in zip(named, calls, strict=True):
            told.append(("tool.finished", {"call": call["id"], **outcome}))
    bundle = await bundle_of(told)
    written, _ = write_claude(bundle)
    back, _ = await read_claude(written)
    assert [_kept(e) for e in back.events()][1:] == [_kept(e) for e in bundle.events()][1:]
    for line in map(json.loads, written.main.splitlines()):
        assert line["type"] in ("user", "assistant")
        assert line["message"]["content"]


def _kept(event: Event) -> Any:
    return event.kind, event.at, typed(event)
