"""What a bundle must not get past a reader, and what an import that was cut must not come to: names
that stand twice, secrets beside the events, a session of somebody else under the same id."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from pathlib import Path

import pytest

from holdfast import (
    InvalidBundle,
    InvalidValue,
    NewEvent,
    Scope,
    SessionExists,
    export_bundle,
    import_bundle,
    key,
    validate_bundle,
)
from holdfast.bundle import Bundle, Mode
from holdfast.bundle.archive import HeldParts
from holdfast.bundle.format import id_of
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import SHOP, content, events_of, said, shop

from .scene import unzipped, zipped

SECRET = "ghp_" + "A1b2C3d4" * 4 + "E5f6"


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore()
    await shop(made)
    return made


def faults(error: InvalidBundle) -> set[tuple[str, str]]:
    return {(fault.code, fault.path) for fault in error.faults}


# Names that stand twice


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        (b'"mode":"local"', b'"mode":"sanitized","mode":"local"'),
        (b'"metadata":{}', b'"metadata":{"a":"b"},"metadata":{}'),
        (b'"events":[', b'"events":[{"id":"hidden"}],"events":['),
        (b'"sections":[', b'"sections":[],"sections":['),
    ],
)
async def test_a_name_that_stands_twice_is_a_fault(
    store: MemoryStore, tmp_path: Path, found: bytes, instead: bytes
) -> None:
    made = await export_bundle((store, SHOP), "local")
    data = made.to_json()
    assert found in data
    with pytest.raises(InvalidBundle) as refused:
        await validate_bundle(data.replace(found, instead, 1))
    assert ("duplicate", "$") in faults(refused.value)

    await made.save(tmp_path / "a.zip")
    files = unzipped(tmp_path / "a.zip")
    if found not in files["bundle.json"]:
        return
    files["bundle.json"] = files["bundle.json"].replace(found, instead, 1)
    with pytest.raises(InvalidBundle) as refused:
        await validate_bundle(zipped([*files.items()]))
    assert ("duplicate", "$") in faults(refused.value)


async def test_a_document_with_blanks_is_the_same_document(
    store: MemoryStore, tmp_path: Path
) -> None:
    made = await export_bundle((store, SHOP), "local")
    await made.save(tmp_path / "a.zip")
    files = unzipped(tmp_path / "a.zip")
    files["bundle.json"] = json.dumps(json.loads(files["bundle.json"]), indent=2).encode()
    assert (await validate_bundle(zipped([*files.items()]))).id == made.id


# Flags of the container


@pytest.mark.parametrize("flag", [1 << 5, 1 << 6, 1 << 13])
async def test_a_part_that_is_packed_oddly_is_a_fault(
    store: MemoryStore, tmp_path: Path, flag: int
) -> None:
    await export_bundle((store, SHOP), "local", to=tmp_path / "a.zip")
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = data.rindex(b"PK\1\2") + 8  # the flags of the last file in the directory
    data[at : at + 2] = flag.to_bytes(2, "little")
    with pytest.raises(InvalidBundle) as refused:
        await validate_bundle(bytes(data))
    assert {fault.code for fault in refused.value.faults} == {"unreadable"}


async def test_nothing_hides_between_the_files_of_an_archive(
    store: MemoryStore, tmp_path: Path
) -> None:
    await export_bundle((store, SHOP), "local", to=tmp_path / "a.zip")
    files = unzipped(tmp_path / "a.zip")
    for hidden in (b"", b"hidden"):
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
                held.write(hidden)
                archive.start_dir = held.tell()
        if not hidden:
            await validate_bundle(held.getvalue())
            continue
        with pytest.raises(InvalidBundle) as refused:
            await validate_bundle(held.getvalue())
        assert faults(refused.value) == {("mismatch", "$")}


async def test_an_archive_may_be_packed_by_a_program_that_cannot_go_back(
    store: MemoryStore, tmp_path: Path
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

        def seek(self, at: int, whence: int = 0) -> int:
            raise OSError

    made = await export_bundle((store, SHOP), "local", to=tmp_path / "a.zip")
    held = Pipe()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in unzipped(tmp_path / "a.zip").items():
            archive.writestr(name, data)
    assert (await validate_bundle(held.getvalue())).id == made.bundle_id


# Secrets beside the events


def signed(bundle: Bundle, **fields: object) -> bytes:
    raw = {**bundle.raw, **fields}
    raw["bundle_id"] = id_of(raw)
    return Bundle(raw, bundle.parts).to_json()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata", {"note": SECRET}),
        ("metadata", {"password": "hunter2"}),
        ("later", [{"unknown": SECRET}]),
        ("later", {SECRET: 1}),
    ],
)
async def test_a_secret_in_the_document_is_a_fault(
    store: MemoryStore, field: str, value: object
) -> None:
    made = signed(await export_bundle((store, SHOP)), **{field: value})
    with pytest.raises(InvalidBundle) as refused:
        await validate_bundle(made)
    assert faults(refused.value) == {("secret", f"$.{field}")}
    assert SECRET not in str(refused.value)
    await validate_bundle(made, allow_secrets=True)


async def test_a_secret_in_the_facts_of_the_session_is_a_fault(store: MemoryStore) -> None:
    made = await export_bundle((store, SHOP))
    for secret in ({"session": SECRET}, {"password": "hunter2"}, {"metadata": {"token": SECRET}}):
        with pytest.raises(InvalidBundle) as refused:
            await validate_bundle(signed(made, session={**made.raw["session"], **secret}))
        assert ("secret", "$.session") in faults(refused.value)


async def test_session_id_with_words_and_digits_is_no_secret() -> None:
    store = MemoryStore()
    message = NewEvent.of("message.received", {"text": "Where is my order?"})
    await store.append(key("conversation_123"), [message], create=True)
    made = await export_bundle((store, Scope("main", "conversation_123")))
    checked = await validate_bundle(made.to_json())
    assert checked.raw["session"]["session"] == "conversation_123"


async def test_a_secret_in_the_manifest_is_a_fault(store: MemoryStore) -> None:
    made = await export_bundle((store, SHOP))
    entry = {"rule": "key", "class": "secret", "path": SECRET, "count": 1}
    redaction = {**made.raw["redaction"], "entries": [entry]}
    with pytest.raises(InvalidBundle) as refused:
        await validate_bundle(signed(made, redaction=redaction))
    assert faults(refused.value) == {("secret", "$.redaction")}


async def test_a_secret_in_an_attachment_is_a_fault(store: MemoryStore) -> None:
    await store.put_blob(SHOP, f"use {SECRET}".encode())
    made = await export_bundle((store, SHOP), "local")
    with pytest.raises(InvalidBundle) as refused:
        await validate_bundle(made)
    (fault,) = refused.value.faults
    assert fault.code == "secret"
    assert fault.path.startswith("$.blobs[")
    await validate_bundle(made, allow_secrets=True)
    scrubbed = await export_bundle((store, SHOP), attachments=True)
    await validate_bundle(scrubbed)


# Imports that were cut, or meet others


@pytest.mark.parametrize("thread", ["main", "other"])
async def test_a_claim_that_was_left_does_not_give_away_another_session(
    store: MemoryStore, thread: str
) -> None:
    made = await export_bundle((store, SHOP), "local", purpose="move")
    target = MemoryStore()
    await target.append(key(SHOP.session, thread), [said("somebody else")], create=True)
    before = await content(target)
    await target.claim(SHOP.tenant, f"bundle:{made.id}", SHOP)  # where a crash came
    with pytest.raises(SessionExists):
        await import_bundle(target, made)
    assert await content(target) == before
    assert await target.claims(SHOP) == []


async def test_what_was_cut_under_one_id_is_finished_under_it(store: MemoryStore) -> None:
    made = await export_bundle((store, SHOP), "local", purpose="move")
    target = MemoryStore()
    first = Scope("main", "first")
    await target.claim("main", f"bundle:{made.id}", first)  # where a crash came
    done = await import_bundle(target, made, session="second")
    assert (done.session, done.fresh) == ("first", True)
    assert await events_of(target, key("first")) == list(made.events())
    again = await import_bundle(target, made, session="third")
    assert (again.session, again.fresh) == ("first", False)


async def test_two_imports_at_the_same_time_are_one(store: MemoryStore) -> None:
    made = await export_bundle((store, SHOP), "local", purpose="move")
    target = MemoryStore()
    both = await asyncio.gather(*(import_bundle(target, made) for _ in range(4)))
    assert {done.session for done in both} == {SHOP.session}
    assert f"bundle:{made.id}" in await target.claims(SHOP)
    assert await events_of(target, key(SHOP.session)) == list(made.events())


async def test_a_session_that_went_on_is_still_that_of_its_bundle(store: MemoryStore) -> None:
    made = await export_bundle((store, SHOP), "local", purpose="move")
    target = MemoryStore()
    await import_bundle(target, made)
    await target.append(key(SHOP.session), [said("and on")])
    assert not (await import_bundle(target, made)).fresh


async def test_threads_may_be_called_as_they_like(store: MemoryStore) -> None:
    for thread in ("base:place", "base:x"):
        await store.append(key(SHOP.session, thread), [said("mine")], create=True)
    made = await export_bundle((store, SHOP), "local", purpose="move")
    target = MemoryStore()
    await import_bundle(target, made)
    assert not (await import_bundle(target, made)).fresh
    assert await content(target) != await content(MemoryStore())
    for thread in ("base:place", "base:x"):
        assert len(await events_of(target, key(SHOP.session, thread))) == 1


async def test_a_refused_import_removes_no_thread_of_the_session_that_is_there(
    store: MemoryStore,
) -> None:
    made = await export_bundle((store, SHOP), "local", purpose="move")
    target = MemoryStore()
    await target.append(key(SHOP.session, "base:place"), [said("mine")], create=True)
    with pytest.raises(SessionExists):
        await import_bundle(target, made)
    assert len(await events_of(target, key(SHOP.session, "base:place"))) == 1


# Forks of forks


async def test_a_long_line_of_forks_can_be_read() -> None:
    """Made by hand: each fork has one event of its own."""
    store = MemoryStore()
    await store.append(key("s"), [NewEvent.of("session.created")], create=True)
    made = await export_bundle((store, Scope("main", "s")), "local")
    (first,) = made.raw["threads"]
    (line,) = made.lines(first["part"])
    threads, parts = [first], {first["part"]: line}
    for n in range(1, 1500):
        part = f"threads/{n:04d}.jsonl"
        parent = {"thread": threads[-1]["thread"], "at": n}
        fork = {"thread": f"t{n}", "part": part, "parent": parent, "shared": n, "head": n + 1}
        threads.append({**first, **fork})
        parts[part] = line.replace(b'"seq":1,', b'"seq":%d,' % (n + 1))
    deep = Bundle({**made.raw, "threads": threads}, HeldParts(parts))
    assert [event.seq for event in deep.events("t1499")] == list(range(1, 1501))


@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
async def test_what_was_redacted_does_not_become_faithful_by_a_detour(mode: Mode) -> None:
    source, target = MemoryStore(), MemoryStore()
    await shop(source)
    made = await export_bundle((source, SHOP), mode=mode)
    assert isinstance(made, Bundle)
    there = (await import_bundle(target, made, purpose="read")).scope
    with pytest.raises(InvalidValue, match=f"imported from a {mode} bundle"):
        await export_bundle((target, there), mode="local")
    again = await export_bundle((target, there), mode=mode)
    assert isinstance(again, Bundle)
    assert again.document.mode == mode
    await target.delete(there)
    assert await target.claims(there) == []
