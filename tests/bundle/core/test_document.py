"""What a document says of its session, and that it is a function of the log alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from holdfast import (
    Agent,
    Harness,
    Key,
    Media,
    Scope,
    bundle_schema,
    export_bundle,
    import_bundle,
    key,
    tool,
    validate_bundle,
)
from holdfast.bundle import Bundle, Mode
from holdfast.bundle import format as f
from holdfast.bundle.format import SCHEMA_ID, UPCASTS
from holdfast.bundle.timestamps import rfc3339
from holdfast.models.scripted import Say, Use
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import SHOP, answered, said, shop, waiting
from tests.harness.kernel.scene import script

from .scene import OURS, changed, new

ROOT = Path(__file__).parents[3]
USAGE = {"input_tokens": 7, "output_tokens": 2}


async def one(*events: Any, **options: Any) -> Bundle:
    store = MemoryStore()
    await store.append(key("s"), [new("session.created", {"agent": "a"}), *events], create=True)
    made: Bundle = await export_bundle((store, OURS), "local", **options)
    return made


@tool(approval="ask")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def worked() -> tuple[MemoryStore, Scope]:
    """A session in which a person, a model and a tool did something."""
    store = MemoryStore()
    agent = Agent("shop", instructions="Sell.", tools=[pay])
    model = script(
        Say("I pay.", calls=[Use("pay", cents=3)], usage=USAGE),
        Say("Done.", usage=USAGE),
    )
    async with Harness(agent, store=store, default_model=model) as harness:
        session = await harness.get_or_create("s", workspace="/srv/shop", title="A sale")
        await session.send(["Pay this.", Media(b"a picture", "image/png", "a.png")])
        await session.approve(actor="ann")
        assert (await session.wait()).text == "Done."
    return store, Scope("main", "s")


@pytest.mark.parity("harn-bundle", 1, 4, 7, 8)
async def test_a_document_says_what_was_done() -> None:
    store, scope = await worked()
    bundle = await export_bundle((store, scope), "local")
    document = bundle.document
    assert (document.type, document.version, document.producer.name) == (
        "holdfast_bundle",
        1,
        "holdfast",
    )
    assert document.producer.schema_id == SCHEMA_ID
    assert document.bundle_id.startswith("sha256:")
    source = document.source
    assert (source.kind, source.session, source.agent) == ("session", "s", "shop")
    assert (source.name, source.task, source.status) == ("A sale", "Pay this.", "done")
    assert (source.runs, source.children) == (1, 0)
    assert source.finished_at is not None
    assert source.started_at <= source.finished_at <= document.created_at
    assert document.runtime.models == ["scripted/demo"]
    usage = document.runtime.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.calls) == (14, 4, 2)
    (section,) = document.transcript.sections
    assert (section.id, section.scope, section.count) == ("main", "thread", 3)
    messages = bundle.messages()
    assert [message["role"] for message in messages] == ["user", "assistant", "assistant"]
    assert messages[1]["calls"][0]["outcome"]["result"] == "paid 3"
    (called,) = document.tools.calls
    assert (called.name, called.outcome, called.rejected) == ("pay", "ok", False)
    assert called.duration_ms is not None
    (schema,) = document.tools.schemas
    assert (schema.source, schema.index, schema.value["name"]) == ("main", 0, "pay")
    (permission,) = document.permissions
    assert (permission.kind, permission.outcome, permission.by) == ("approval", "approved", "ann")
    (attachment,) = document.attachments
    assert (attachment.kind, attachment.title) == ("image/png", "a.png")
    (blob,) = document.blobs
    assert blob.media_type == "image/png"
    assert bundle.blob(attachment.sha256) == b"a picture"
    assert [span.status for span in document.replay.spans] == ["done"]
    assert [fixture.expected_status for fixture in document.replay.fixtures] == ["done"]
    assert [p.location for p in document.replay.pointers] == ["threads/0000.jsonl"]
    assert [part.name.split("/")[0] for part in document.parts] == [
        "blobs",
        "threads",
        "transcripts",
    ]


async def test_the_workspace_is_where_the_session_says_it_works() -> None:
    store = MemoryStore()
    await store.append(key("s"), [new("session.created", {"workspace": "/w"})], create=True)
    workspace = (await export_bundle((store, OURS), "local")).document.workspace
    assert workspace is not None
    assert workspace.primary == "/w"


@pytest.mark.parity("harn-bundle", 10)
async def test_without_a_workspace_there_is_none() -> None:
    assert (await one()).document.workspace is None


@pytest.mark.parity("user-demand", 78)
async def test_sub_agents_are_there_as_threads_that_can_go_on() -> None:
    store = MemoryStore()
    main, child = key("s"), Key("main", "s", "scout-1")
    calls = [{"id": "c1", "name": "scout", "arguments": {"task": "look"}}]
    await store.append(
        main,
        [
            new("session.created", {"agent": "shop"}),
            said("Look."),
            new("run.started", run="r"),
            new("message.completed", {"calls": calls}, run="r"),
            new("pending.opened", {"id": "c1!sub", "what": "external", "call": "c1"}, run="r"),
            new("run.waiting", run="r"),
        ],
        create=True,
    )
    told = {"agent": "scout", "parent": "main", "item": "c1!sub", "call": "c1"}
    await store.append(child, [new("thread.created", told), said("look")], create=True)
    document = (await export_bundle((store, OURS), "local", purpose="move")).document
    (found,) = document.replay.children
    assert (found.thread, found.agent, found.parent) == ("scout-1", "scout", "main")
    assert (found.call, found.item, found.reported) == ("c1", "c1!sub", False)
    assert document.source.children == 1
    assert ("scout-1", 2) in [(item.thread, item.seq) for item in document.queue]
    target = MemoryStore()
    await import_bundle(target, await export_bundle((store, OURS), "local", purpose="move"))
    assert await target.row(child) is not None


async def test_what_waits_is_listed() -> None:
    store = MemoryStore()
    await waiting(store)
    document = (await export_bundle((store, Scope("main", "waits")), "local")).document
    (item,) = document.pending
    assert (item.thread, item.id, item.what, item.call) == ("main", "p1", "approval", "c1")
    assert document.source.status == "waiting"
    assert [called.outcome for called in document.tools.calls] == [None, None, None]


@pytest.mark.parity("harn-bundle", 31)
async def test_blobs_come_along_in_local_alone_unless_it_is_said() -> None:
    store, scope = await worked()
    cases: list[tuple[Mode, bool | None, bool]] = [
        ("local", None, True),
        ("local", False, False),
        ("sanitized", None, False),
        ("replay_only", True, False),
    ]
    for mode, attachments, carried in cases:
        made = await export_bundle((store, scope), mode, attachments=attachments)
        assert [blob.part is not None for blob in made.document.blobs] == [carried]
        assert bool(made.document.attachments) == carried
        assert any(name.startswith("blobs/") for name in made.parts.names()) == carried
        assert (b"a picture" in made.to_json()) is False


async def test_a_blob_that_is_scrubbed_has_another_name_everywhere() -> None:
    store = MemoryStore()
    secret = "ghp_" + "A1b2C3d4" * 4 + "E5f6"
    ref = await _with_blob(store, f"token: {secret}".encode())
    made = await export_bundle((store, OURS), attachments=True)
    (blob,) = made.document.blobs
    assert blob.sha256 != ref.sha256
    (attachment,) = made.document.attachments
    assert attachment.sha256 == blob.sha256
    assert secret.encode() not in made.blob(blob.sha256)
    part = list(made.events())[1].json()["parts"][0]
    assert (part["sha256"], part["size"]) == (blob.sha256, blob.size)
    assert secret.encode() not in made.to_json()


async def _with_blob(store: MemoryStore, data: bytes) -> Any:
    await store.append(key("s"), [new("session.created")], create=True)
    ref = await store.put_blob(OURS, data)
    part = {"type": "blob", "sha256": ref.sha256, "size": ref.size, "media_type": "text/plain"}
    await store.append(key("s"), [new("message.received", {"text": "see", "parts": [part]})])
    return ref


# Liveness


@pytest.mark.parity("harn-bundle", 93)
async def test_a_session_that_expired_is_closed() -> None:
    made = await one(said("hello"), answered("hello"), new("session.expired"))
    assert made.document.liveness == "closed"


@pytest.mark.parity("harn-bundle", 95)
async def test_a_session_that_did_not_is_continuable() -> None:
    assert (await one(said("hello"), answered("hello"))).document.liveness == "continuable"
    assert (await one()).document.liveness == "continuable"


@pytest.mark.parity("harn-bundle", 96)
async def test_a_prefix_that_was_cut_before_the_close_is_continuable() -> None:
    told = [said("hello"), answered("hello"), new("session.expired"), new("session.held")]
    found = [(await one(*told, upto=cut)).document.liveness for cut in range(1, 6)]
    assert found == ["continuable"] * 3 + ["closed"] * 2


@pytest.mark.parity("harn-bundle", 97)
@pytest.mark.parametrize(
    ("then", "liveness"),
    [
        ("session.reopened", "continuable"),
        ("message.received", "continuable"),
        ("label.added", "closed"),
        ("session.held", "closed"),
    ],
)
async def test_what_happens_after_a_close_opens_it_again(then: str, liveness: str) -> None:
    payload = {"label": "kept"} if then == "label.added" else {}
    made = await one(new("session.expired"), new(then, payload))
    assert made.document.liveness == liveness


async def test_a_sub_agent_that_has_reported_is_closed() -> None:
    store = MemoryStore()
    told = {"agent": "scout", "parent": "main", "item": "i", "call": "c"}
    thread = Key("main", "s", "scout")
    await store.append(thread, [new("thread.created", told)], create=True)
    assert (await export_bundle((store, OURS), "local")).document.liveness == "continuable"
    await store.append(thread, [new("thread.reported", {"item": "i"})])
    assert (await export_bundle((store, OURS), "local")).document.liveness == "closed"


# The format itself


@pytest.mark.parity("harn-bundle", 107, 108)
def test_the_published_schema_is_that_of_the_types() -> None:
    page = ROOT / "docs/formats/bundle.schema.json"
    assert json.loads(page.read_text()) == bundle_schema()
    jsonschema.Draft202012Validator.check_schema(bundle_schema())


@pytest.mark.parity("harn-bundle", 107)
async def test_bundles_fit_the_schema() -> None:
    store = MemoryStore()
    await shop(store)
    validator = jsonschema.Draft202012Validator(bundle_schema())
    for mode in get_args(Mode):
        made = await export_bundle((store, SHOP), mode)
        validator.validate(json.loads(made.to_json()))
        validator.validate(made.raw)
    broken = {**made.raw, "_type": "other"}
    assert not validator.is_valid(broken)


async def test_an_older_version_is_read_as_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def renamed(raw: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in raw.items() if name != "aim"}
        return {**rest, "purpose": raw["aim"]}

    data = (await one(said("hello"), answered("hello"))).to_json()

    def older(raw: dict[str, Any]) -> None:
        raw["version"] = 0
        raw["aim"] = raw.pop("purpose")

    monkeypatch.setitem(UPCASTS, 0, renamed)
    read = await validate_bundle(changed(data, older))
    assert (read.document.version, read.document.purpose) == (1, "share")
    assert "aim" not in read.raw
    assert [event.kind for event in read.events()][-1] == "message.completed"


def test_times_that_no_calendar_has_are_its_end() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert rfc3339((1 << 53) - 1) == "9999-12-31T23:59:59.999Z"


def test_an_event_as_a_line_keeps_its_data_to_the_byte() -> None:
    line = b'{"seq":1,"at":2,"id":"i","kind":"k","data":{"a" : 1.50, "b":"\\u00e9"}}'
    event = f.event_of(line)
    assert bytes(event.data) == b'{"a" : 1.50, "b":"\\u00e9"}'
    assert f.line_of(event) == line + b"\n"
    assert msgspec.json.decode(line)["data"] == event.json()
