"""Random sessions, and what the tests of bundles share."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

from holdfast import InvalidBundle, Key, NewEvent, Scope, Store
from holdfast.bundle.format import id_of
from tests.copy.scene import SERVERS, URLS

KINDS = {**URLS, **SERVERS}
OURS = Scope("main", "s")

Plan = list[tuple[Any, ...]]

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
names = texts.filter(bool)
numbers = st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(texts, some, max_size=3),
    max_leaves=8,
)
calls = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["c1", "c2", "c3"]), "name": names, "arguments": values}
    ),
    max_size=2,
)


def _kind(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(kind), st.fixed_dictionaries({}, optional=fields))


ids = st.sampled_from(["c1", "c2", "c3"])
events = st.one_of(
    _kind("message.received", text=texts, metadata=st.dictionaries(texts, values, max_size=2)),
    st.tuples(
        st.just("message.completed"),
        st.fixed_dictionaries(
            {"text": texts, "calls": calls},
            optional={"usage": st.just({"input_tokens": 3}), "cost": st.floats(0, 9)},
        ),
    ),
    _kind("run.started", driver=names),
    _kind("run.finished", status=st.sampled_from(["done", "failed"])),
    _kind("run.waiting"),
    st.tuples(st.just("tool.started"), st.fixed_dictionaries({"call": ids, "name": names})),
    st.tuples(st.just("tool.finished"), st.fixed_dictionaries({"call": ids, "result": values})),
    st.tuples(
        st.just("pending.opened"), st.fixed_dictionaries({"id": ids, "what": st.just("approval")})
    ),
    st.tuples(
        st.just("pending.settled"),
        st.fixed_dictionaries({"id": ids, "outcome": st.just("approved")}),
    ),
    st.tuples(st.just("mode.changed"), st.fixed_dictionaries({"mode": names})),
    st.tuples(st.just("checkpoint.made"), st.fixed_dictionaries({"id": names})),
    st.tuples(st.just("thread.renamed"), st.fixed_dictionaries({"title": texts})),
    st.tuples(st.just("label.added"), st.fixed_dictionaries({"label": names})),
    _kind("session.expired"),
    _kind("session.reopened"),
    st.tuples(st.just("odd.kind"), values),
    st.tuples(st.just("message.later"), values),
    st.tuples(st.just("odd.blanks"), st.just(Raw(b'{"a" :  [1.0, 1e3, "\\u00e9"]}'))),
)
envelopes = st.fixed_dictionaries(
    {}, optional={"run": names, "actor": names, "cause": names, "v": st.integers(1, 3)}
)
places = st.integers(0, 20)
steps = st.one_of(
    st.tuples(
        st.just("append"), places, st.lists(st.tuples(events, envelopes), min_size=1, max_size=5)
    ),
    st.tuples(st.just("fork"), places, places),
    st.tuples(st.just("thread"), names),
    st.tuples(st.just("blob"), st.binary(max_size=30)),
    st.tuples(st.just("claim"), names),
    st.tuples(st.just("erase"), places, places),
    st.tuples(st.just("drop"), places),
)
plans: st.SearchStrategy[Plan] = st.lists(steps, max_size=12)


def made(told: tuple[tuple[str, Any], dict[str, Any]]) -> NewEvent:
    (kind, payload), envelope = told
    if isinstance(payload, Raw):
        return NewEvent(kind=kind, data=payload, **envelope)
    return NewEvent.of(kind, payload, **envelope)


async def play(store: Store, plan: Plan, scope: Scope = OURS) -> None:
    """Make the session of a plan."""
    threads = ["main"]
    number = count(1)

    def at(place: int) -> Key:
        return Key(scope.tenant, scope.session, threads[place % len(threads)])

    begun = NewEvent.of("session.created", {"agent": "shop", "user": "ann", "workspace": "/w"})
    await store.append(at(0), [begun], create=True)
    for step in plan:
        match step:
            case ("append", place, told):
                await store.append(at(place), [made(one) for one in told])
            case ("fork", place, where):
                row = await store.row(at(place))
                assert row is not None
                seq = 1 + where % row.head
                first = {"parent": row.thread, "at": seq}
                threads.append(f"fork-{next(number)}")
                await store.fork(row.key, threads[-1], at=seq, first=new("thread.forked", first))
            case ("thread", name):
                threads.append(f"{name}-{next(number)}")
                await store.append(at(len(threads) - 1), [new("thread.created", {})], create=True)
            case ("blob", data):
                await store.put_blob(scope, data)
            case ("claim", name):
                await store.claim(scope.tenant, f"name:{name}", scope)
            case ("erase", place, where):
                row = await store.row(at(place))
                assert row is not None
                await store.erase(at(place), [1 + where % row.head], reason="asked")
            case ("drop", place) if len(threads) > 1:
                await store.delete(at(place))
                threads.remove(at(place).thread)


def new(kind: str, payload: Any = None, **envelope: Any) -> NewEvent:
    return NewEvent.of(kind, payload, **envelope)


# Bundles by hand


def changed(data: bytes, change: Callable[[dict[str, Any]], Any], *, sign: bool = True) -> bytes:
    """A single JSON with another document: `change` may alter it, or give another one. With
    `sign` it has the id of what it is then."""
    raw = msgspec.json.decode(data)
    raw = change(raw) or raw
    if sign:
        raw["bundle_id"] = signed(raw)
    return msgspec.json.encode(raw)


def signed(raw: dict[str, Any]) -> str:
    """The id that a single JSON must have: that of its document, without what stands inside."""
    bare = msgspec.json.decode(msgspec.json.encode(raw))
    for thread in bare["threads"]:
        thread.pop("events", None)
    for section in bare["transcript"]["sections"]:
        section.pop("messages", None)
    for blob in bare["blobs"]:
        blob.pop("data", None)
    return id_of(bare)


def zipped(files: Iterable[tuple[str | zipfile.ZipInfo, bytes]], **options: Any) -> bytes:
    """An archive with just these files, whatever they are called."""
    held = BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return held.getvalue()


def unzipped(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def codes(error: InvalidBundle) -> set[str]:
    return {fault.code for fault in error.faults}
