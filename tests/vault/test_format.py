"""What an earlier version encrypted is read by this one: `format-1.json` is as it was written."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from msgspec import Raw

from holdfast import BlobRef, Event, Scope, Vault, key
from holdfast.stores.memory import MemoryStore
from holdfast.stores.vault.store import VaultStore

KEPT: dict[str, Any] = json.loads((Path(__file__).parent / "format-1.json").read_text())
LOG = key(KEPT["session"])


async def kept_events() -> AsyncGenerator[Event, None]:
    for fields, data in zip(KEPT["events"], KEPT["raw"], strict=True):
        yield Event(**fields, data=Raw(data.encode()))


async def test_what_format_1_wrote_is_read() -> None:
    inner = MemoryStore()
    for claim in KEPT["claims"]:
        await inner.claim("main", claim, Scope("main", "holdfast.vault"))
    await inner.restore(LOG, kept_events())
    picture = bytes.fromhex(KEPT["blob"]["data"])
    await inner.put_blob(LOG.scope, picture, sha256=KEPT["blob"]["sha256"])
    store = VaultStore(inner, Vault([KEPT["master"]]))
    events = [event async for event in store.read(LOG)]
    assert [(event.id, event.v, event.json()) for event in events] == [
        ("e1", 1, {"title": "Lamp, broken ☂", "user": "ann", "labels": ["vip"]}),
        ("e2", 1, {"text": "Where is my order?"}),
        ("e3", 7, {"erased": "asked for"}),
        ("e4", 1, {"id": "p", "what": "approval", "title": "refund(42)"}),
    ]
    row = await store.row(LOG)
    assert row is not None
    assert (row.title, row.first_message) == ("Lamp, broken ☂", "Where is my order?")
    assert row.pending["p"]["title"] == "refund(42)"
    assert row.bytes == sum(len(event.data) for event in events)
    ref = BlobRef(KEPT["blob"]["sha256"], len(b"a picture"))
    assert await store.get_blob(LOG.scope, ref) == b"a picture"
    assert [damage async for damage in store.verify()] == []
