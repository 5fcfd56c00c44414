"""What a store takes, it takes behind a vault too, and what it refuses, it refuses in the same
words: nothing is encrypted that cannot be read again, and nothing is refused for its encryption."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast import Appended, Lease, NewEvent, Snapshot, Store, Vault, key
from holdfast.stores.memory import MemoryStore
from holdfast.stores.vault.store import VaultStore
from holdfast.testing.samples import given, past

from .hands import all_of, outcome

pytestmark = pytest.mark.parity("user-demand", 64)

Doing = Callable[[Store, Lease], Awaitable[Any]]


def note(n: object) -> NewEvent:
    return NewEvent.of("note.made", {"n": n}, id=f"note-{n}")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def restore(*events: Any) -> Doing:
    return lambda store, lease: store.restore(key("r"), given(events))


def expecting(expected: Any) -> Doing:
    return lambda store, lease: store.append(key("s"), [note(2)], expected=expected)


def drafting(text: str) -> Doing:
    return lambda store, lease: store.put_draft(key("s"), "m", 0, text, fence=lease)


def saving(state: Any, seq: Any = 1, version: Any = "v") -> Doing:
    return lambda store, lease: store.save_snapshot(
        key("s"), Snapshot(log=lease.log, seq=seq, version=version, state=state), fence=lease
    )


def deep(levels: int) -> Doing:
    event = NewEvent.of("metadata.changed", {"set": {"a": nested(levels)}})
    return lambda store, lease: store.append(key("s"), [event])


DOINGS: dict[str, Doing] = {
    "restore without numbers": restore(note(1)),
    "restore with a text for a number": restore(replace(past(1), seq="1")),
    "restore with a huge number": restore(replace(past(1), seq=1 << 80)),
    "restore with a number below": restore(replace(past(1), seq=-1)),
    "restore with something else": restore("event"),
    "expecting a text": expecting("1"),
    "expecting a huge number": expecting(1 << 80),
    "expecting less than nothing": expecting(-1),
    "fork at a truth": lambda s, lease: s.fork(key("s"), "x", at=True, first=note(2)),
    "fork at a text": lambda s, lease: s.fork(key("s"), "x", at="1", first=note(2)),  # type: ignore[arg-type]
    "fork at a huge number": lambda s, lease: s.fork(key("s"), "x", at=1 << 80, first=note(2)),
    "a draft of signs that JSON escapes": drafting("\x01" * (128 << 10)),
    "a draft as long as may be": drafting("\x01" * (1 << 20)),
    "a draft of large letters": drafting("\U0001f600" * (1 << 18)),
    "a draft of nothing": drafting(""),
    "a draft too long": drafting("x" * ((1 << 20) + 1)),
    "a draft of half a letter": drafting("\ud800"),
    "a snapshot that is no JSON": saving(Raw(b"{no")),
    "a snapshot of nothing": saving(Raw(b"")),
    "a snapshot that is no Raw": saving({"n": 1}),
    "a snapshot of what is to come": saving(Raw(b"{}"), seq=99),
    "a snapshot of no number": saving(Raw(b"{}"), seq="1"),
    "a snapshot of no version": saving(Raw(b"{}"), version=5),
    "data too deep": deep(127),
}


async def done(store: Store, doing: Doing) -> tuple[Any, ...]:
    """What it came to, and what is there then."""
    await store.append(key("s"), [note(1)], create=True)
    lease = await store.acquire(key("s"), "me")
    came = await outcome(doing(store, lease))
    events = [(event.seq, bytes(event.data)) for event in await all_of(store, key("s"))]
    drafts = [draft.text for draft in await store.drafts(key("s"))]
    snapshot = await store.load_snapshot(key("s"), "v")
    return came, events, drafts, snapshot and bytes(snapshot.state)


@pytest.mark.parametrize("name", DOINGS)
async def test_an_encrypted_store_does_what_a_plain_one_does(name: str) -> None:
    plain = await done(MemoryStore(), DOINGS[name])
    behind = await done(VaultStore(MemoryStore(), Vault([Vault.new_key("a")])), DOINGS[name])
    assert behind == plain


@pytest.mark.parametrize("expected", [True, 1.0, "1", b"1"], ids=repr)
async def test_what_was_appended_behind_an_odd_number_is_refused_or_can_be_read(
    expected: Any,
) -> None:
    store = VaultStore(MemoryStore(), Vault([Vault.new_key("a")]))
    came, events, *_ = await done(store, expecting(expected))
    assert isinstance(came, Appended) or came in ("InvalidValue", "HeadMoved")
    assert len(events) == (2 if isinstance(came, Appended) else 1)


async def test_data_may_be_as_deep_as_the_store_says() -> None:
    store = VaultStore(MemoryStore(), Vault([Vault.new_key("a")]))
    came, *_ = await done(store, deep(store.info().limits.depth - 2))
    assert isinstance(came, Appended)
