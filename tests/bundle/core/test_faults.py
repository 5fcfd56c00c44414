"""Every fault of a bundle is found, all at once, with its place and without its content; and
nothing is written of a bundle that has one."""

from __future__ import annotations

import base64
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import InvalidBundle, InvalidValue, export_bundle, import_bundle, key, validate_bundle
from holdfast.bundle import BundleLimits
from holdfast.bundle.format import DOCUMENT
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import SHOP, content, said, shop

from .scene import changed, codes, unzipped, zipped

Raw = dict[str, Any]


@pytest.fixture
async def data() -> bytes:
    store = MemoryStore()
    await shop(store)
    return (await export_bundle((store, SHOP), "local")).to_json()


@pytest.fixture
async def files(tmp_path: Path) -> dict[str, bytes]:
    store = MemoryStore()
    await shop(store)
    await export_bundle((store, SHOP), "local", to=tmp_path / "whole.zip")
    return unzipped(tmp_path / "whole.zip")


async def refused(source: Any, **options: Any) -> InvalidBundle:
    """Why a bundle is refused; nothing of it is written."""
    store = MemoryStore()
    with pytest.raises(InvalidBundle) as found:
        await import_bundle(store, source, purpose="read", **options)
    assert await content(store) == await content(MemoryStore())
    with pytest.raises(InvalidBundle) as again:
        await validate_bundle(source, allow_secrets=True, **options)
    assert again.value.faults == found.value.faults
    return found.value


def paths(error: InvalidBundle) -> dict[str, str]:
    return {fault.path: fault.code for fault in error.faults}


# The document


@pytest.mark.parity("harn-bundle", 61, 71)
async def test_every_field_that_is_missing_is_named(data: bytes) -> None:
    needed = (
        *("bundle_id", "created_at", "mode", "purpose", "liveness", "producer", "source"),
        *("runtime", "session", "threads", "blobs", "pending", "queue", "transcript", "tools"),
        *("permissions", "replay", "redaction", "parts"),
    )
    raw = msgspec.json.decode(data)
    for name in needed:
        del raw[name]
    found = paths(await refused(msgspec.json.encode(raw)))
    assert {f"$.{name}": "missing" for name in needed}.items() <= found.items()


@pytest.mark.parity("harn-bundle", 62)
async def test_nested_fields_that_are_missing_are_named(data: bytes) -> None:
    def less(raw: Raw) -> None:
        del raw["threads"][1]["head"]
        del raw["session"]["tenant"]
        del raw["parts"][2]["sha256"]
        del raw["pending"]

    found = paths(await refused(changed(data, less)))
    assert found == {
        "$.threads[1].head": "missing",
        "$.session.tenant": "missing",
        "$.parts[2].sha256": "missing",
        "$.pending": "missing",
    }


async def test_null_is_no_value_where_one_is_needed(data: bytes) -> None:
    def null(raw: Raw) -> None:
        raw["source"] = None
        raw["workspace"] = None
        raw["threads"][0]["head"] = None

    assert paths(await refused(changed(data, null))) == {
        "$.source": "wrong_type",
        "$.threads[0].head": "wrong_type",
    }


@pytest.mark.parity("harn-bundle", 64)
async def test_another_kind_of_document_is_refused(data: bytes) -> None:
    for name in ("harn_session_bundle", None, 7):
        found = await refused(changed(data, lambda raw, name=name: raw.update(_type=name)))  # type: ignore[misc]
        assert paths(found) == {"$._type": "wrong_type"}


@pytest.mark.parity("harn-bundle", 65)
@pytest.mark.parametrize("version", [0, 2, 999, -1, "1", 1.5, None, True])
async def test_other_versions_are_refused(data: bytes, version: Any) -> None:
    found = await refused(changed(data, lambda raw: raw.update(version=version)))
    assert paths(found) == {"$.version": "unknown_version"}


@pytest.mark.parity("harn-bundle", 71)
async def test_faults_of_all_sorts_come_together(data: bytes) -> None:
    def spoil(raw: Raw) -> None:
        raw["mode"] = "secretive"
        raw["threads"][0]["head"] = "seven"
        raw["threads"][2]["parent"] = 5
        del raw["tools"]["calls"]
        raw["tools"]["total"] = []
        raw["source"]["runs"] = 1.5
        raw["permissions"] = {}

    error = await refused(changed(data, spoil))
    assert paths(error) == {
        "$.mode": "wrong_type",
        "$.threads[0].head": "wrong_type",
        "$.threads[2].parent": "wrong_type",
        "$.tools.total": "wrong_type",
        "$.source.runs": "wrong_type",
        "$.permissions": "wrong_type",
    }
    assert "secretive" not in str(error)


async def test_only_so_many_faults_are_listed(data: bytes) -> None:
    def spoil(raw: Raw) -> None:
        raw["permissions"] = ["x"] * 500

    error = await refused(changed(data, spoil))
    assert (len(error.faults), error.more) == (100, 400)


@pytest.mark.parity("harn-bundle", 79)
@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        (lambda raw: raw["threads"][1].update(thread="main"), "$.threads", "duplicate"),
        (lambda raw: raw["threads"][1].update(thread=""), "$.threads[1].thread", "wrong_type"),
        (lambda raw: raw["session"].update(session="a\0b"), "$.session.session", "wrong_type"),
        (
            lambda raw: raw["threads"][1].update(parent={"thread": "nobody", "at": 4}),
            "$.threads[1].parent.thread",
            "mismatch",
        ),
        (
            lambda raw: raw["threads"][1].update(parent={"thread": "main", "at": 400}),
            "$.threads[1].parent.at",
            "mismatch",
        ),
        (
            lambda raw: raw["threads"][1].update(parent={"thread": "deeper", "at": 4}),
            "$.threads",
            "mismatch",
        ),
        (lambda raw: raw["threads"][0].update(head=6), "$.threads[0].head", "mismatch"),
        (lambda raw: raw["threads"][0].update(shared=7), "$.threads[0].shared", "mismatch"),
        (lambda raw: raw.update(liveness="closed"), "$.liveness", "mismatch"),
        (
            lambda raw: raw["pending"].append(
                {"thread": "main", "id": "p", "what": "approval", "seq": 1, "at": 1}
            ),
            "$.pending",
            "mismatch",
        ),
        (
            lambda raw: raw["queue"].append({"thread": "main", "seq": 3, "how": "queue"}),
            "$.queue",
            "mismatch",
        ),
        (lambda raw: raw.update(mode="sanitized"), "$.redaction.mode", "mismatch"),
        (
            lambda raw: raw["threads"][1].update(part="threads/0000.jsonl"),
            "$.threads[1].part",
            "duplicate",
        ),
        (lambda raw: raw["blobs"][0].update(size=3), "$.blobs[0]", "mismatch"),
        (
            lambda raw: raw["transcript"]["sections"][0].update(count=99),
            "$.transcript.sections[0].count",
            "mismatch",
        ),
        (lambda raw: raw["threads"].clear(), "$.threads", "missing"),
        (lambda raw: raw["parts"][1].update(size=-1), "$.parts[1].size", "too_large"),
        (lambda raw: raw["parts"][1].update(size=1 << 60), "$.parts[1].size", "too_large"),
        (lambda raw: raw["parts"].append(raw["parts"][0]), "$.parts[13].name", "duplicate"),
        (
            lambda raw: raw["parts"].append({"name": "blobs/../x", "size": 1, "sha256": ""}),
            "$.parts[13].name",
            "bad_path",
        ),
        (
            lambda raw: raw["blobs"][0].update(data="%%%"),
            "$.blobs[0].data",
            "wrong_type",
        ),
    ],
)
async def test_a_document_that_contradicts_itself_is_refused(
    data: bytes, change: Callable[[Raw], Any], path: str, code: str
) -> None:
    def apply(raw: Raw) -> None:
        change(raw)

    error = await refused(changed(data, apply))
    assert (path, code) in paths(error).items(), error.faults


# Content that was altered


@pytest.mark.parity("harn-bundle", 112)
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda raw: raw["threads"][0]["events"][3].update(at=1), "$.threads[0]"),
        (lambda raw: raw["threads"][0]["events"][3].update(data={"text": "no"}), "$.threads[0]"),
        (lambda raw: raw["threads"][0]["events"].pop(), "$.threads[0]"),
        (lambda raw: raw["threads"][0]["events"].reverse(), "$.threads[0]"),
        (
            lambda raw: raw["transcript"]["sections"][0]["messages"][0].update(text="other"),
            "$.transcript.sections[0]",
        ),
        (
            lambda raw: raw["blobs"][0].update(data=base64.b64encode(b"other").decode()),
            "$.blobs[0]",
        ),
    ],
)
async def test_what_was_altered_is_found(
    data: bytes, change: Callable[[Raw], Any], path: str
) -> None:
    def apply(raw: Raw) -> None:
        change(raw)

    found = paths(await refused(changed(data, apply)))
    assert found.get(path) in ("tampered", "truncated"), found


async def test_a_document_that_was_altered_is_found(data: bytes) -> None:
    def other(raw: Raw) -> None:
        raw["source"]["task"] = "something else"

    assert paths(await refused(changed(data, other, sign=False))) == {"$.bundle_id": "tampered"}


async def test_every_byte_of_an_archive_counts(files: dict[str, bytes]) -> None:
    for name, whole in files.items():
        if name == DOCUMENT or not whole:
            continue
        data = bytearray(whole)
        data[len(data) // 2] ^= 1
        altered = {**files, name: bytes(data)}
        assert codes(await refused(zipped([*altered.items()]))) & {"tampered", "bad_event"}


@pytest.mark.parity("harn-bundle", 72)
async def test_what_is_no_bundle_is_refused(tmp_path: Path, data: bytes) -> None:
    for other in (b"", b"{", b"[]", b"null", b"PK", b"\xff\xfe", b'{"a":1}', b"x" * 100, b'"\xff"'):
        assert await refused(other)
    assert codes(await refused(data[: len(data) // 2])) == {"truncated"}
    assert codes(await refused(tmp_path)) == {"unreadable"}
    assert codes(await refused(tmp_path / "missing")) == {"unreadable"}
    for odd in (None, 3, ["a"]):
        with pytest.raises(InvalidValue):
            await validate_bundle(odd)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        await import_bundle(MemoryStore(), data, purpose="steal")  # type: ignore[arg-type]


# Archives


async def test_an_archive_that_is_cut_anywhere_is_refused(files: dict[str, bytes]) -> None:
    whole = zipped([*files.items()])
    await validate_bundle(whole, allow_secrets=True)
    for cut in [*range(0, len(whole), 97), len(whole) - 1]:
        assert await refused(whole[:cut])


@pytest.mark.parametrize(
    "name",
    [
        *("../evil", "/etc/passwd", "blobs/../../evil", "C:\\evil", "..\\evil", "blobs/", "a/b"),
        *("threads/0000.JSONL", "Threads/0000.jsonl", "threads/0000.jsonl\u0301", "./bundle.json"),
        *("threads/\u0660\u0660\u0660\u0660.jsonl", "BUNDLE.JSON", "blobs/" + "A" * 64, "~/x"),
    ],
)
async def test_names_that_lead_elsewhere_are_refused(files: dict[str, bytes], name: str) -> None:
    error = await refused(zipped([*files.items(), (name, b"evil")]))
    assert codes(error) == {"bad_path"}


async def test_links_and_other_odd_files_are_refused(files: dict[str, bytes]) -> None:
    part = next(name for name in files if name.startswith("blobs/"))
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFCHR):
        link = zipfile.ZipInfo(part)
        link.create_system = 3
        link.external_attr = (kind | 0o777) << 16
        rest = [(name, data) for name, data in files.items() if name != part]
        assert codes(await refused(zipped([*rest, (link, b"/etc/passwd")]))) == {"bad_path"}
    others = [(name, data) for name, data in files.items() if name != part]
    odd = zipfile.ZipInfo(part)
    odd.compress_type = zipfile.ZIP_BZIP2
    assert codes(await refused(zipped([*others, (odd, files[part])]))) == {"unreadable"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
async def test_a_name_that_is_there_twice_is_refused(files: dict[str, bytes]) -> None:
    for name in (DOCUMENT, "threads/0000.jsonl"):
        error = await refused(zipped([*files.items(), (name, files[name])]))
        assert paths(error) == {name: "duplicate"}


async def test_parts_that_are_missing_or_not_spoken_of_are_refused(
    files: dict[str, bytes],
) -> None:
    for name in files:
        rest = [(other, data) for other, data in files.items() if other != name]
        assert codes(await refused(zipped(rest))) == {"missing"}
    more = zipped([*files.items(), ("blobs/" + "0" * 64, b"more")])
    assert paths(await refused(more)) == {"$.parts": "mismatch"}


async def test_the_document_comes_first(files: dict[str, bytes]) -> None:
    error = await refused(zipped(sorted(files.items(), reverse=True)))
    assert paths(error) == {DOCUMENT: "missing"}
    junk = zipped([*files.items()])
    assert await refused(b"PK\3\4junk" + junk)
    assert await refused(junk + b"junk")


async def test_an_encrypted_part_is_refused(files: dict[str, bytes]) -> None:
    whole = bytearray(zipped([*files.items()]))
    entry = whole.index(b"PK\1\2", whole.index(b"PK\1\2") + 4)
    whole[entry + 8] |= 1
    assert codes(await refused(bytes(whole))) == {"unreadable"}


# Limits


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (BundleLimits(json_bytes=1_000), "too_large"),
        (BundleLimits(archive_bytes=1_000), "too_large"),
        (BundleLimits(total_bytes=100_000), "too_large"),
        (BundleLimits(parts=3), "too_many_parts"),
        (BundleLimits(threads=2), "too_many_parts"),
        (BundleLimits(event_bytes=1_000), "too_large"),
        (BundleLimits(blob_bytes=1_000), "too_large"),
        (BundleLimits(values=50), "too_large"),
        (BundleLimits(depth=3), "too_deep"),
    ],
)
async def test_what_is_over_a_limit_is_refused(
    files: dict[str, bytes], limits: BundleLimits, code: str
) -> None:
    assert code in codes(await refused(zipped([*files.items()]), limits=limits))


# Secrets


@pytest.mark.parity("harn-bundle", 66, 67)
async def test_a_bundle_with_secrets_is_not_valid_unless_that_is_said() -> None:
    secret = "ghp_" + "A1b2C3d4" * 4 + "E5f6"
    store = MemoryStore()
    await shop(store)
    await store.append(key(SHOP.session), [said(f"use {secret}")])
    made = (await export_bundle((store, SHOP), "local")).to_json()
    with pytest.raises(InvalidBundle) as found:
        await validate_bundle(made)
    assert paths(found.value) == {
        "$.source": "secret",  # its task
        "$.threads[0].events[7]": "secret",
        "$.transcript.sections[0].messages[4]": "secret",
    }
    assert secret not in str(found.value) + repr(found.value)
    await validate_bundle(made, allow_secrets=True)
    assert (
        await import_bundle(MemoryStore(), made, purpose="read")
    ).fresh  # as it says, it is local
    with pytest.raises(InvalidBundle):
        await import_bundle(MemoryStore(), made, purpose="read", allow_secrets=False)


@pytest.mark.parity("harn-bundle", 68)
async def test_what_was_sanitised_passes() -> None:
    store = MemoryStore()
    await shop(store)
    await store.append(key(SHOP.session), [said("password=hunter2hunter2 in /home/ann/x")])
    for mode in ("sanitized", "replay_only"):
        made = await export_bundle((store, SHOP), mode)
        await validate_bundle(made.to_json())
        assert b"hunter2" not in made.to_json()


async def test_what_is_said_to_be_sanitised_and_is_not_is_refused() -> None:
    store = MemoryStore()
    await shop(store)
    await store.append(key(SHOP.session), [said("ghp_" + "A1b2C3d4" * 4 + "E5f6")])
    made = (await export_bundle((store, SHOP), "local")).to_json()

    def lie(raw: Raw) -> None:
        raw["mode"] = raw["redaction"]["mode"] = "sanitized"

    with pytest.raises(InvalidBundle) as found:
        await import_bundle(MemoryStore(), changed(made, lie), purpose="read")
    assert codes(found.value) == {"secret"}
