"""`replay_only` keeps the structure: what pairs still pairs, numbers count, hashes compare."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.bundle.redaction.fields import listed
from holdfast.bundle.redaction.scrub import Scrub
from holdfast.events import KINDS, NewEvent
from holdfast.log.codec import typed

from .places import UUID, stored

SHA = "ab" * 32


def kept(kind: str, data: Any, scrub: Scrub | None = None, **more: Any) -> Any:
    event = stored(NewEvent.of(kind, data, **{"id": UUID, **more}))
    found = (scrub or Scrub("replay_only")).event(event, "$")
    assert (typed(found) is None) == (typed(event) is None)
    return found.json()


def test_every_field_of_every_kind_is_on_the_list_for_what_it_is() -> None:
    texts = {"text", "value", "person", "driver", "numbered", "parts", "refs", "shape"}
    for kind, payload in KINDS.items():
        for name, what in listed(payload).items():
            assert isinstance(what, type) or what in {*texts, "keep", "id", "hash", "name", "names"}
            assert name not in ("text", "title", "content", "error", "summary") or what == "text", (
                kind
            )


@pytest.mark.parity("harn-bundle", 52)
def test_ids_kinds_numbers_and_hashes_stay() -> None:
    call = {
        **{"id": UUID, "name": "sql.query", "provider_id": "toolu_01A", "fingerprint": SHA},
        "arguments": {"q": "secret plan", "limit": 5},
    }
    scrub = Scrub("replay_only")
    said = kept(
        "message.completed",
        {"text": "hi", "calls": [call], "model": "openai:gpt-4.1-2025-04-14", "reason": "tool_use"}
        | {"usage": {"input_tokens": 5}, "cost": 0.5},
        scrub,
    )
    assert said["usage"] == {"input_tokens": 5}
    assert (said["model"], said["reason"], said["cost"]) == (
        "openai:gpt-4.1-2025-04-14",
        "tool_use",
        0.5,
    )
    assert said["calls"][0]["id"] == UUID
    assert said["calls"][0]["name"] == "sql.query"
    assert said["calls"][0]["fingerprint"] == SHA
    assert list(said["calls"][0]["arguments"].values())[1] == 0
    done = kept("tool.finished", {"call": UUID, "outcome": "failed", "code": "tool_failed"}, scrub)
    assert done == {"call": UUID, "outcome": "failed", "code": "tool_failed"}


@pytest.mark.parity("harn-bundle", 51)
def test_nulls_booleans_and_emptiness_stay() -> None:
    data: dict[str, Any] = {
        "call": UUID,
        "result": {"a": None, "b": True, "c": [], "d": "", "e": 0},
        "error": None,
    }
    assert list(kept("tool.finished", data)["result"].values()) == [None, True, [], "", 0]
    assert kept("tool.finished", data)["error"] is None


def test_ids_that_a_person_chose_are_replaced_and_still_pair() -> None:
    scrub = Scrub("replay_only")
    opened = kept("pending.opened", {"id": "ask-ann", "what": "question", "call": "c1"}, scrub)
    settled = scrub.event(
        stored(
            NewEvent.of(
                "pending.settled",
                {"id": "ask-ann", "outcome": "answered", "answer": "yes"},
                id="settle:ask-ann",
            )
        ),
        "$",
    )
    assert settled.id == f"settle:{opened['id']}"
    assert settled.json()["id"] == opened["id"] != "ask-ann"
    assert scrub.id("c1!sub", "$") == f"{opened['call']}!sub"
    assert scrub.id("main", "$") == "main"
    assert scrub.id(f"in:{UUID}", "$") == f"in:{UUID}"


def test_equal_texts_can_be_compared_and_others_told_apart() -> None:
    scrub = Scrub("replay_only")
    first, second, third = (
        kept("message.received", {"text": text}, scrub)["text"] for text in ("a", "b", "a")
    )
    assert first == third == "[withheld:1]"
    assert second == "[withheld:2]"


def test_parts_refs_and_shapes_keep_what_they_point_at() -> None:
    part = {"type": "blob", "sha256": SHA, "size": 5, "media_type": "image/png", "name": "me.png"}
    schema = {
        "type": "object",
        "title": "A plan",
        "properties": {"city": {"type": "string", "description": "of birth", "enum": ["Rome"]}},
        "required": ["city"],
        "$defs": {"X": {"$ref": "#/$defs/Y", "minimum": 3}},
    }
    found = kept(
        "message.received",
        {"parts": [part, "a text"], "output": {"name": "Plan", "schema": schema}},
    )
    assert found["parts"][0] == {**part, "name": found["parts"][0]["name"]}
    assert found["parts"][0]["name"].startswith("[withheld:")
    kept_schema = found["output"]["schema"]
    assert found["output"]["name"] == "Plan"
    assert (kept_schema["type"], kept_schema["required"]) == ("object", ["city"])
    assert kept_schema["properties"]["city"]["type"] == "string"
    assert kept_schema["$defs"] == {"X": {"$ref": "#/$defs/Y", "minimum": 3}}
    assert not any(word in str(found) for word in ("me.png", "plan", "birth", "Rome", "a text"))
    refs = [
        {"kind": "file", "value": "/a/b", "role": "modified"},
        {"kind": "command", "exit_code": 1},
    ]
    ref = kept("tool.finished", {"call": UUID, "refs": refs})["refs"]
    assert ref[0]["kind"] == "file"
    assert ref[0]["role"] == "modified"
    assert ref[1] == refs[1]


def test_a_blob_is_left_out() -> None:
    scrub = Scrub("replay_only")
    assert scrub.blob(b"anything", "$.blobs[0]") is None
    assert scrub.manifest().totals == {"withheld": 1}


@pytest.mark.parity("harn-bundle", 49)
def test_a_second_pass_changes_nothing() -> None:
    data = {"text": "x", "metadata": {"a b": [1, "y"]}, "parts": [{"type": "text", "text": "z"}]}
    event = stored(NewEvent.of("message.received", data, id="mine", actor="ann", run="r-1"))
    once = Scrub("replay_only").event(event, "$")
    assert Scrub("replay_only").event(once, "$") == once
