"""What only looks like a secret stays: counters, ids, hashes, schemas, prose, code."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from holdfast import new_id
from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.events import NewEvent
from holdfast.log.codec import typed

from .places import UUID, stored

SHA = hashlib.sha256(b"x").hexdigest()
TEXTS = [
    "input_tokens=12 output_tokens: 7 max_tokens=200 token_count: 3, tokens=9",
    "the token budget is 4096 tokens; the secretary keeps the password policy",
    f"commit {SHA[:40]} and {SHA[:7]}, image sha256:{SHA}",
    f"run {UUID} in session {new_id()}, trace 4bf92f3577b34da6a3ce929d0e0e4736",
    f"settle:{UUID} done:{UUID} {UUID}!sub",
    "toolu_01A09q90qw90lq917835lq9 and call_Abc123Def456Ghi789Jkl0 are ids of calls",
    "chatcmpl-9aB3dE5fG7hI9jK1lM3nO5pQ7rS9t, msg_01XFDUDYJgAACzvnptvVoYEL",
    "claude-sonnet-4-5-20250929, openai:gpt-4.1-2025-04-14, anthropic/claude-3-5-haiku-latest",
    "GET https://example.com/home/about?page=2&sort=asc&key=name#top 200 OK",
    "GET /home/:id and PUT /Users/{id}/settings are routes",
    "see https://docs.example.org/a/b.html, ssh://git@github.com/a/b.git, ftp://ftp.example.org",
    "/usr/lib/python3.11/json/decoder.py:355, /etc/hosts, src/app/main.py, ./run.sh, ../x, ~/y",
    "def login(user: str, password: str, token: str | None = None) -> Session:",
    "cookies=cookies, token=self.token, api_key=os.environ[name], secret = load_secret()",
    "UPDATE t SET token = ?, secret = $2 WHERE password = %s",
    "export TOKEN=$GITHUB_TOKEN; password=env:DB_PASSWORD",
    "Bearer token required; Basic information; a bearer of news; WWW-Authenticate: Bearer",
    "2025-11-15T12:40:46Z 1763210446000 10.0.0.1:8080 v1.2.3 +3.5% 12:30:45 555-1234",
    "sk-learn-contrib-is-a-package; AKIA is how they begin; -----BEGIN CERTIFICATE-----",
    "naïve 日本語 text, with: colons = signs & “marks”",
    "A3 paper, AP wire, SG. is a company, AC power, hf_ and npm_ are prefixes",
    base64.b64encode(bytes(range(256))).decode(),
    base64.b64encode(b"just words, in base64, and no more than that").decode(),
    '{"usage": {"input_tokens": 12, "cache_read_input_tokens": 0}, "max_tokens": 200}',
    "<p>an <b>html</b> page</p> | a | table |\n|---|---|",
    "password: null, token: true, secret: ***, api_key: …",
]


@pytest.mark.parity("harn-bundle", 35, 41)
@pytest.mark.parametrize("text", TEXTS)
def test_other_text_stays(text: str) -> None:
    scrub = Scrub("sanitized")
    assert scrub.text(text, "$") == text
    assert scrub.value({"a": [text], "text": text}, "$") == {"a": [text], "text": text}
    assert scrub.manifest().entries == []


@pytest.mark.parity("harn-bundle", 35)
def test_counters_and_ids_that_are_named_like_secrets_stay() -> None:
    value = {
        "usage": {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19, "tokens": 3},
        "max_tokens": 200,
        "token_count": 5,
        "token_limit": "200k",
        "tokens_per_second": 12.5,
        "session_id": UUID,
        "tool_call_id": "call_Abc123Def456Ghi789Jkl0",
        "sha256": SHA,
        "etag": SHA[:32],
        "password_policy": "long",
        "has_password": True,
        "cursor": base64.b64encode(SHA.encode()).decode(),
        "secret": None,
    }
    assert Scrub("sanitized").value(value, "$") == value


SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Login",
    "properties": {
        "password": {"type": "string", "minLength": 8, "description": "what they typed"},
        "token": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "content": {"type": "string"},
        "api_keys": {"type": "array", "items": {"type": "string"}},
        "email": {"type": "string", "format": "email"},
        "secret": {"$ref": "#/$defs/Secret"},
    },
    "required": ["password", "token"],
    "$defs": {"Secret": {"type": "object", "properties": {"private_key": {"type": "string"}}}},
}


@pytest.mark.parity("harn-bundle", 60)
def test_the_schema_of_a_tool_stays_as_it_is() -> None:
    scrub = Scrub("sanitized", ScrubConfig(personal=("all",)))
    for value in (SCHEMA, {"tools": [{"name": "login", "parameters": SCHEMA}]}):
        assert scrub.value(value, "$") == value
    event = stored(
        NewEvent.of("message.received", {"text": "x", "output": {"name": "A", "schema": SCHEMA}})
    )
    assert scrub.event(event, "$").json() == event.json()


def test_but_not_the_samples_of_a_secret_in_it() -> None:
    field = {"type": "string", "default": "hunter2", "examples": ["hunter3"], "enum": ["hunter4"]}
    schema = {"type": "object", "properties": {"password": field, "user": {"default": "ann"}}}
    kept = Scrub("sanitized").value({"schema": schema}, "$")["schema"]["properties"]
    assert kept["user"] == {"default": "ann"}
    assert kept["password"]["type"] == "string"
    assert "hunter" not in str(kept)


def test_a_whole_turn_without_secrets_is_the_same_to_the_byte() -> None:
    call = {"id": UUID, "name": "sql", "arguments": {"q": "select 1"}, "provider_id": "toolu_01A0"}
    turn = [
        ("session.created", {"agent": "shop", "title": "Refund", "labels": ["vip"]}),
        ("message.received", {"text": "refund order 5", "metadata": {"channel": "web"}}),
        ("run.started", {"inputs": [2], "model": "openai:gpt-4.1", "limits": {"tokens": 5.0}}),
        ("model.called", {"model": "openai:gpt-4.1", "step": 1}),
        (
            "message.completed",
            {"calls": [call], "usage": {"input_tokens": 5}, "parts": [{"signature": SHA * 3}]},
        ),
        ("tool.started", {"call": UUID, "name": "sql", "key": f"{UUID}:1"}),
        ("tool.finished", {"call": UUID, "result": [{"n": 1, "paid": 12.5}], "content": "1 row"}),
        ("pending.opened", {"id": UUID, "what": "question", "detail": {"q": "sure?"}}),
        ("pending.settled", {"id": UUID, "outcome": "answered", "answer": {"yes": True}}),
        ("run.finished", {"status": "done"}),
    ]
    scrub = Scrub("sanitized")
    for kind, data in turn:
        event = stored(NewEvent.of(kind, data, actor="ann", cause=UUID, run=UUID))
        assert typed(event) is not None
        assert scrub.event(event, "$") == event
    assert scrub.manifest().entries == []
