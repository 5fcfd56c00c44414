"""The same through `export_bundle`: a session with something in every place of its log, its
blobs and its names; nothing of it is in the file."""

from __future__ import annotations

import json
import logging
import re
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import (
    Agent,
    Harness,
    InvalidBundle,
    NewEvent,
    Scope,
    Store,
    ToolError,
    connect,
    key,
    new_id,
    tool,
)
from holdfast.bundle import (
    ScrubConfig,
    export_bundle,
    import_bundle,
    review_bundle,
    validate_bundle,
)
from holdfast.bundle.redaction.manifest import Mode
from holdfast.events import Event
from holdfast.log.codec import LIMITS
from holdfast.models.scripted import Say, ScriptedModel, Use

from .canaries import KNOWN, LOCAL, PERSON, PERSONAL_TEXTS, SECRETS, Canary
from .places import every_place
from .test_canaries import shows

ALL = (*SECRETS, *LOCAL, *PERSONAL_TEXTS)
CONFIG = ScrubConfig(secrets=(KNOWN,), people=(PERSON,), personal=("all",))


async def planted(store: Store, session: str, canaries: tuple[Canary, ...]) -> Scope:
    """A session with each canary in every place, and in blobs."""
    where = key(session)
    await store.append(
        where, [NewEvent.of("session.created", {"title": canaries[0].text})], create=True
    )
    for canary in canaries:
        events = [fresh(event) for event in every_place(canary.text)]
        await store.append(where, [event for event in events if event is not None])
        await store.put_blob(where.scope, f"a note: {canary.text}\n".encode())
        await store.put_blob(where.scope, b"\x89PNG\0\xff" + canary.text.encode())
        await store.put_blob(where.scope, json.dumps({"a": [canary.text]}).encode("utf-16"))
    return where.scope


def fresh(event: Event) -> NewEvent | None:
    """The event as one to append; those that end a log or do not fit into a row are left out."""
    if event.kind in ("session.moved", "thread.forked") or len(event.data) > LIMITS.map_bytes:
        return None
    kept = {name: getattr(event, name) for name in ("kind", "data", "v", "run", "actor", "cause")}
    return NewEvent(id=f"{event.id[:300]} {new_id()}", **kept)


def content(path: Path) -> str:
    """All that is in a file, unpacked, and blobs decoded."""
    if path.suffix != ".json":
        with zipfile.ZipFile(path) as archive:
            parts = [archive.read(name) for name in archive.namelist()]
        return "\n".join(_any(part) for part in (*parts, path.name.encode()))
    document = json.loads(path.read_bytes())
    blobs = [msgspec.convert(b["data"], bytes) for b in document["blobs"] if b.get("data")]
    return "\n".join([path.read_text(), *map(_any, blobs)])


def _any(data: bytes) -> str:
    return data.decode("utf-16" if data.startswith(b"\xff\xfe") else "utf-8")


@pytest.mark.parity("user-demand", 57)
@pytest.mark.parametrize("name", ["b.json", "b.zip"])
@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
async def test_nothing_is_in_the_file(
    mode: Mode, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    some = ALL[::18] if name == "b.json" else ALL[4::18]
    async with connect("memory:") as store:
        scope = await planted(store, "s", some)
        written = await export_bundle(
            (store, scope), mode, to=tmp_path / name, attachments=True, scrub=CONFIG
        )
    text = content(Path(written.path))
    logged = "\n".join(record.getMessage() for record in caplog.records)
    for canary in some:
        assert not shows(canary, text), canary.kind
        assert not shows(canary, logged), canary.kind
    bundle = await validate_bundle(written.path)
    assert bundle.document.redaction.mode == mode
    if mode == "sanitized":
        assert any(blob.part for blob in bundle.document.blobs)
    else:
        assert not any(blob.part for blob in bundle.document.blobs)


@pytest.mark.parity("user-demand", 57)
@pytest.mark.parity("harn-bundle", 55, 56)
@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
async def test_nothing_of_a_run_is_in_the_file(mode: Mode, tmp_path: Path) -> None:
    key_, url, jwt = SECRETS[0], SECRETS[48], SECRETS[41]

    @tool
    def connect_to(address: str) -> dict[str, str]:
        """Connect."""
        return {"said": f"{address} in /home/wilma/shop/db.py", "session_token": "opaque-1"}

    @tool
    def fail(why: str) -> str:
        """Fail."""
        raise ToolError(problem=f"no: {why}")

    model = ScriptedModel(
        [
            Say(f"I try {jwt.text}", calls=[Use("connect_to", address=url.text)]),
            Say(calls=[Use("fail", why=jwt.text)]),
            f"Done with {key_.text}.",
        ]
    )
    agent = Agent("shop", instructions=f"Use {key_.text}.", tools=[connect_to, fail])
    path = tmp_path / "b.json"
    async with (
        connect("memory:") as store,
        Harness(agent, store=store, default_model=model) as harness,
    ):
        session = await harness.get_or_create("wilma@example.org")
        result = await session.send(f"Go: {key_.text}", metadata={"Authorization": "abc 1"})
        assert result.status == "done"
        await session.state.update({"note": url.text})
        await export_bundle(session, mode, to=path, scrub=ScrubConfig(personal=("email",)))
    text = content(path)
    for canary in (key_, url, jwt):
        assert not shows(canary, text)
    for private in ("wilma", "opaque-1", "abc 1"):
        assert private not in text
    bundle = await validate_bundle(path)
    assert [(call.name, call.outcome) for call in bundle.document.tools.calls] == [
        ("connect_to", "ok"),
        ("fail", "failed"),
    ]
    assert bundle.document.replay.fixtures[0].expected_status == "done"
    if mode == "replay_only":
        assert not any(word in text for word in ("Go:", "Done with", "I try", "in db.py"))


@pytest.mark.parity("harn-bundle", 44, 58)
async def test_the_workspace_is_told_without_its_folders(tmp_path: Path) -> None:
    about = {
        "workspace": "/home/wilma/shop",
        "metadata": {"roots": ["/tmp/wilma/a", "/mnt/disk/b"]},
    }
    async with connect("memory:") as store:
        await store.append(key("s"), [NewEvent.of("session.created", about)], create=True)
        sanitized = (await export_bundle((store, Scope("main", "s")))).document
        replayed = (await export_bundle((store, Scope("main", "s")), "replay_only")).document
    assert sanitized.workspace is not None
    assert sanitized.workspace.primary == sanitized.session.workspace == "[redacted:path:1]/shop"
    assert sanitized.session.metadata["roots"] == ["[redacted:path:2]/a", "[redacted:path:3]/b"]
    assert replayed.workspace is not None
    assert replayed.workspace.primary == "[withheld:2]"


@pytest.mark.parity("harn-bundle", 32)
async def test_a_local_bundle_keeps_all_of_it_and_says_so(tmp_path: Path) -> None:
    async with connect("memory:") as store:
        scope = await planted(store, "s", ALL[::20])
        bundle = await export_bundle((store, scope), "local")
        before = [event async for event in store.read(key("s"))]
    assert list(bundle.events("main")) == before
    assert bundle.document.redaction == msgspec.convert({}, type(bundle.document.redaction))


@pytest.mark.parity("harn-bundle", 67, 68)
async def test_what_was_scrubbed_passes_the_gate_and_what_was_not_does_not(tmp_path: Path) -> None:
    canary = SECRETS[3]
    async with connect("memory:") as store:
        scope = await planted(store, "s", (canary,))
        await (await export_bundle((store, scope), "local")).save(tmp_path / "raw.json")
        await (await export_bundle((store, scope), "sanitized")).save(tmp_path / "ok.json")
    await validate_bundle(tmp_path / "ok.json")
    await validate_bundle(tmp_path / "raw.json", allow_secrets=True)
    with pytest.raises(InvalidBundle) as caught:
        await validate_bundle(tmp_path / "raw.json")
    assert not shows(canary, str(caught.value))
    assert not shows(canary, repr(caught.value))


async def test_a_sanitised_session_can_be_taken_in_again_and_still_pairs(tmp_path: Path) -> None:
    secret = SECRETS[0].text
    call = {"id": f"call-{secret}", "name": "pay", "arguments": {"token": secret}}
    events: list[tuple[str, Any]] = [
        ("session.created", {"title": secret}),
        ("message.received", {"text": secret}),
        ("message.completed", {"text": "", "calls": [call]}),
        ("tool.started", {"call": call["id"], "name": "pay"}),
        ("tool.finished", {"call": call["id"], "result": {"was": secret}}),
        ("message.completed", {"text": secret}),
    ]
    async with connect("memory:") as store, connect("memory:") as other:
        await store.append(
            key("s"), [NewEvent.of(kind, data) for kind, data in events], create=True
        )
        bundle = await export_bundle((store, Scope("main", "s")))
        found = await import_bundle(other, bundle, accept_redacted=True)
        kept = [event.json() async for event in other.read(key(found.scope.session))]
    assert kept[2]["calls"][0]["id"] == kept[3]["call"] == kept[4]["call"] != call["id"]
    assert kept[1]["text"] == kept[4]["result"]["was"] == kept[5]["text"]
    assert bundle.document.tools.calls[0].outcome == "ok"


@pytest.mark.parametrize("halves", ["message", "parts", "tool"])
async def test_a_secret_that_is_split_over_two_texts_is_in_no_bundle(
    halves: str, tmp_path: Path
) -> None:
    first, second = "gh" + "p_16C7e42F292c6912", "E7710c838347Ae178B4a99"
    store = await connect("memory:")
    where = key("split")
    between = NewEvent.of("message.added", {"role": "assistant", "parts": [text("Go on.")]})
    events = {
        "message": [message(f"It is {first}"), between, message(f"{second} and no more")],
        "parts": [message(f"It is {first}", f"{second} and no more")],
        "tool": [finished(f"TOKEN={first}"), between, finished(f"{second}\n")],
    }[halves]
    await store.append(where, [NewEvent.of("session.created", {}), *events], create=True)
    file = tmp_path / "split.holdfast"
    await export_bundle((store, where.scope), "sanitized", to=file)
    found = content(file)
    assert first not in found
    assert second not in found
    assert len(set(re.findall(r"\[redacted:(?:api_key|secret):\d\]", found))) == 2
    await store.aclose()


async def test_words_that_follow_each_other_in_two_texts_stay(tmp_path: Path) -> None:
    store = await connect("memory:")
    where = key("words")
    said = [message("the release is 2026-11-16-nightly"), message("build-4711-of-yesterday")]
    await store.append(where, [NewEvent.of("session.created", {}), *said], create=True)
    file = tmp_path / "words.holdfast"
    await export_bundle((store, where.scope), "sanitized", to=file)
    assert "2026-11-16-nightly" in content(file)
    assert "build-4711-of-yesterday" in content(file)
    await store.aclose()


@pytest.mark.parametrize("word", ["Authentication", "customer-42", "20241102", "2d71164"])
async def test_the_first_word_behind_a_secret_stays(word: str) -> None:
    store = await connect("memory:")
    where = key("next")
    said = [message("password=Zk29xLmQ8vR4tY7uWpA1"), message(f"{word} works now")]
    await store.append(where, [NewEvent.of("session.created", {}), *said], create=True)
    bundle = await export_bundle((store, where.scope))
    found = [json.dumps(event.json()) for event in bundle.events("main")]
    assert "Zk29xLmQ8vR4tY7uWpA1" not in "".join(found)
    assert f"{word} works now" in "".join(found)
    await store.aclose()


async def test_what_is_found_is_found_in_other_codes_and_keeps_its_rule() -> None:
    store = await connect("memory:")
    where = key("codes")
    secret = "S3cr3t-Pw99x"
    said = [message(f"use postgres://ann:{secret}@db/x"), message(f"no luck with {secret} then")]
    await store.append(where, [NewEvent.of("session.created", {}), *said], create=True)
    await store.put_blob(where.scope, f"line {secret} and more".encode("utf-16"))
    bundle = await export_bundle((store, where.scope), attachments=True)
    (blob,) = bundle.document.blobs
    assert secret not in bundle.blob(blob.sha256).decode("utf-16")
    rules = {(entry.rule, entry.kind) for entry in bundle.document.redaction.entries}
    assert rules == {("url", "password")}
    await store.aclose()


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def message(*said: str) -> NewEvent:
    return NewEvent.of("message.added", {"role": "user", "parts": [text(one) for one in said]})


def finished(result: str) -> NewEvent:
    return NewEvent.of("tool.finished", {"call": new_id(), "result": result})


@pytest.mark.parametrize("first", ["named", "bare"])
async def test_a_value_that_is_a_secret_in_one_place_is_one_in_all(
    first: str, tmp_path: Path
) -> None:
    secret = "Blue-Hunter2!x"
    named, bare = message(f"password: {secret}"), message(f"I typed {secret}, and it failed")
    store = await connect("memory:")
    where = key("everywhere")
    said = [named, bare] if first == "named" else [bare, named]
    created = NewEvent.of("session.created", {"title": f"try {secret}"})
    await store.append(where, [created, *said], create=True)
    await store.put_blob(where.scope, f"notes\n{secret}\n".encode())
    file = tmp_path / "everywhere.holdfast"
    seen: list[int] = []
    await export_bundle(
        (store, where.scope), "sanitized", to=file, attachments=True, progress=seen.append
    )
    assert secret not in content(file)
    assert "I typed [redacted:secret:1], and it failed" in content(file)
    assert sum(seen) == 3
    review = await review_bundle((store, where.scope))
    assert len([one for one in review.entries if one.what == "replaced"]) == 3
    await store.aclose()
