"""Whatever stands in a transcript: it becomes a session that can be kept, or is refused."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.bundle import export_bundle, import_bundle
from holdfast.bundle.claude import read_claude, write_claude
from holdfast.errors import InvalidBundle
from holdfast.log.state import fold
from holdfast.stores.memory import MemoryStore
from holdfast.transcript import transcript

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
IDS = st.sampled_from(["a", "b", "c"]) | JSON
BLOCKS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["text", "thinking", "tool_use", "tool_result", "image", "document", "other"]
            )
        },
        optional={
            "text": JSON,
            "thinking": JSON,
            "id": IDS,
            "tool_use_id": IDS,
            "name": st.just("find") | JSON,
            "input": JSON,
            "content": JSON,
            "is_error": JSON,
            "source": JSON
            | st.fixed_dictionaries(
                {"type": st.just("base64"), "data": st.sampled_from(["aGk=", "?", 3])}
            ),
        },
    )
    | JSON,
    max_size=3,
)
OURS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON,
        "actor": JSON,
        "parts": JSON,
        "text": JSON,
        "calls": JSON | st.dictionaries(st.sampled_from(["a", "b"]), JSON),
        "results": JSON | st.dictionaries(st.sampled_from(["a", "b"]), JSON),
        "model": JSON,
        "usage": JSON,
    },
)
LINES = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["user", "assistant", "system", "summary"]),
            "message": st.fixed_dictionaries(
                {"content": JSON | BLOCKS},
                optional={"id": IDS, "usage": JSON, "model": JSON, "stop_reason": JSON},
            )
            | JSON,
        },
        optional={
            "uuid": st.sampled_from(["u1", "u2", "u3", "u4"]) | JSON,
            "parentUuid": st.sampled_from(["u1", "u2", "u3", None]) | JSON,
            "logicalParentUuid": st.sampled_from(["u1", "u4"]),
            "isSidechain": st.booleans(),
            "isCompactSummary": st.booleans(),
            "agentId": IDS,
            "timestamp": st.just("2026-03-01T10:00:00Z") | JSON,
            "toolUseResult": JSON,
            "cwd": JSON,
            "holdfast": OURS | JSON,
        },
    )
    | JSON,
    max_size=8,
)


@given(lines=LINES)
async def test_any_lines_are_a_session_or_refused(lines: list[Any]) -> None:
    text = "\n".join(map(json.dumps, lines)).encode()
    try:
        bundle, _ = await read_claude(text, session="s")
    except InvalidBundle:
        return
    store = MemoryStore()
    imported = await import_bundle(store, bundle)
    again = await export_bundle((store, imported.scope), "local")
    for thread in again.document.threads:
        events = list(again.events(thread.thread))
        assert fold(events).too_new is None
        assert all(message.raw is None for message in transcript(events))
    written, _ = write_claude(again)
    back, _ = await read_claude(written)
    told, before = (transcript(b.events()) for b in (back, again))
    assert [(m.role, m.text) for m in told] == [(m.role, m.text) for m in before]
