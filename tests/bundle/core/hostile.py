"""Bundles that were made to hurt whoever reads them. Run as a program, it reads files, one after
the other, and says how each was refused and how much memory that took at most."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast import InvalidBundle, export_bundle, import_bundle, key
from holdfast.bundle.format import id_of
from holdfast.stores.memory import MemoryStore
from tests.bundle.core.large import peak
from tests.bundle.core.scene import OURS, new, unzipped, zipped

MEGA = 1 << 20


def pressed(total: int) -> bytes:
    """So many zero bytes, deflated, without making them all."""
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = press.compress(bytes(MEGA)) + press.flush(zlib.Z_FULL_FLUSH)
    one = zlib.compressobj(9, zlib.DEFLATED, -15)
    more = one.compress(bytes(MEGA)) + one.flush(zlib.Z_FULL_FLUSH)
    return begin + more * (total // MEGA - 1) + zlib.compressobj(9, 8, -15).flush()


def archive(files: list[tuple[str, bytes, int, bytes | None]]) -> bytes:
    """An archive by hand: name, content, the size that it claims, and its bytes if it comes
    deflated already."""
    body, directory = b"", b""
    for name, data, size, deflated in files:
        packed = deflated if deflated is not None else zlib.compress(data)[2:-4]
        path = name.encode()
        crc = zlib.crc32(data)
        fixed = struct.pack("<HHHHHLLLHH", 20, 0, 8, 0, 33, crc, len(packed), size, len(path), 0)
        at = len(body)
        body += b"PK\3\4" + fixed + path + packed
        directory += b"PK\1\2\x14\3" + fixed + struct.pack("<HHHLL", 0, 0, 0, 0o100600 << 16, at)
        directory += path
    end = struct.pack("<4H2LH", 0, 0, len(files), len(files), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


def texts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Hostile JSON, each by its name."""
    raw = json.loads(data)

    def spliced(text: bytes) -> bytes:
        """The single JSON with a text in place of its metadata."""
        return data.replace(b'"metadata":{},"parts"', b'"metadata":%b,"parts"' % text)

    yield "nothing", b""
    yield "deep list", b"[" * 10_000 + b"]" * 10_000
    yield "deep and open", b"[" * (8 * MEGA)
    yield "deep objects", b'{"a":' * 2 * MEGA
    yield "deep inside", spliced(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}")
    yield "many empty", b'{"threads":[' + b"{}," * (5 * MEGA) + b"{}]}"
    yield "many in metadata", spliced(b'{"a":[' + b"[]," * (5 * MEGA) + b"[]]}")
    yield "many flat", b"{" + b'"a":1,' * (2 * MEGA) + b'"b":1}'
    yield "brackets", b"[]" * (7 * MEGA)
    yield "one long text", b'"' + b"x" * (15 * MEGA)
    yield "escapes", b'"' + b"\\" * (15 * MEGA)
    yield "large number", spliced(b'{"a":' + b"9" * (4 * MEGA) + b"}")
    yield "large exponent", spliced(b'{"a":1e999999999}')
    yield "half characters", spliced(b'{"a":"\\ud800"}')
    yield "too large", b'{"a":"' + b"x" * (40 * MEGA) + b'"}'
    many = {**raw, "threads": [{**raw["threads"][0], "events": [0] * 2_500_000}]}
    yield "many numbers", json.dumps(many, separators=(",", ":")).encode()
    yield "many keys", b"{" + b",".join(b'"%d":1' % n for n in range(1_300_000)) + b"}"
    some = b",".join(b'"%d":1' % n for n in range(490_000))
    yield "some keys", data.replace(b'"metadata":{},"parts"', b'"metadata":{%b},"parts"' % some)
    many = {**raw, "threads": [{"a": 1}] * 390_000}
    yield "many threads", json.dumps(many).encode()
    many = {**raw, "threads": [{**raw["threads"][0], "events": [{}] * 300_000}]}
    yield "many events", json.dumps(many).encode()


def archives(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Hostile archives, each by its name."""
    zeros = pressed(1024 * MEGA)
    rest = [(name, content, len(content), None) for name, content in files.items()]
    part = next(name for name in files if name.startswith("blobs/"))
    others = [file for file in rest if file[0] != part]
    yield "bomb", archive([*others, (part, b"", 1024 * MEGA, zeros)])
    yield "bomb in disguise", archive([*others, (part, b"", 10, zeros)])
    yield "bomb as document", archive([("bundle.json", b"", 1024 * MEGA, zeros)])
    yield "bomb as document in disguise", archive([("bundle.json", b"", 1000, zeros)])
    yield "claim of 4 GB", archive([*others, (part, b"x", 0xFFFFFFFE, None)])
    yield "a line without end", around(files, bytes(60 * MEGA))
    yield "many files", zipped([(f"blobs/{n:064x}", b"") for n in range(30_000)])
    count = struct.pack("<4H2LH", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    yield "claim of many files", zipped([*files.items()])[:-22] + b"PK\5\6" + count
    yield "no directory", b"PK\3\4" + bytes(5 * MEGA)
    made = json.loads(files["bundle.json"])
    made["parts"] = [{"name": "a", "size": 1, "sha256": ""}] * 25_000
    made["bundle_id"] = id_of(made)
    yield "many parts", zipped([("bundle.json", msgspec.json.encode(made))])
    wide = "\U0001f4a3" + "x" * (14 * MEGA)
    yield "wide text", around(files, _line(msgspec.json.encode({"text": wide})))
    values = msgspec.json.encode({"a": [{"b": 1}] * 1_200_000})
    yield "many values", around(files, _line(values))
    yield "deep event", around(files, _line(b"[" * 10_000 + b"]" * 10_000))


def _line(payload: bytes) -> bytes:
    return b'{"seq":1,"at":1,"id":"i","kind":"message.received","data":%b}\n' % payload


def around(files: dict[str, bytes], content: bytes) -> bytes:
    """A whole archive, with the right hashes, around this content of its only thread."""
    made = json.loads(files["bundle.json"])
    for part in made["parts"]:
        if part["name"] == "threads/0000.jsonl":
            part["size"], part["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    made["threads"][0]["head"] = 1
    made["bundle_id"] = id_of(made)
    document = msgspec.json.encode(made)
    changed = {**files, "bundle.json": document, "threads/0000.jsonl": content}
    return zipped([*changed.items()])


async def victim(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    store = MemoryStore()
    events = [new("session.created"), new("message.received", {"text": "hello"})]
    await store.append(key("s"), events, create=True)
    await store.put_blob(OURS, b"a blob")
    await export_bundle((store, OURS), "local", to=folder / "victim.zip")
    made = await export_bundle((store, OURS), "local")
    return made.to_json(), unzipped(folder / "victim.zip")


async def read(file: str) -> str:
    """How a bundle is met: the codes of its faults, or that it was taken."""
    store = MemoryStore()
    try:
        await import_bundle(store, file, purpose="read")
    except InvalidBundle as error:
        return ",".join(sorted({fault.code for fault in error.faults}))
    return "accepted"


def main(files: list[str]) -> None:
    """Each in a process of its own, forked from this one, which has nothing but its imports: what
    an allocator keeps of one bundle is not counted with the next."""
    for file in files:
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        print(json.dumps({"how": asyncio.run(read(file)), "peak": peak()}), flush=True)
        os._exit(0)


def write(folder: Path) -> list[str]:
    """All hostile bundles as files; their names in order."""
    data, files = asyncio.run(victim(folder))
    names = []
    for n, (name, content) in enumerate([*texts(data), *archives(files)]):
        (folder / str(n)).write_bytes(content)
        names.append(name)
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
