"""A session of ours with a bit of everything, the same to the byte at each call."""

from __future__ import annotations

from typing import Any

from holdfast.events import Event, Key, Scope, to_json
from holdfast.stores.memory import MemoryStore

SCOPE = Scope("main", "customer-42")
PICTURE = b"\x89PNG not really"
START = 1_772_000_000_000


def log(thread: str, *told: tuple[str, dict[str, Any]], run: str | None = "r1") -> list[Event]:
    return [
        Event(
            kind=kind,
            data=to_json(data),
            id=f"{thread}-{seq}",
            seq=seq,
            at=START + 1000 * seq,
            run=run if kind.startswith(("run.", "message.completed", "tool.", "model.")) else None,
        )
        for seq, (kind, data) in enumerate(told, 1)
    ]


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments, "provider_id": f"p-{id}"}


async def store_with_session(secret: str = "", *, closed: bool = False) -> MemoryStore:
    store = MemoryStore()

    async def put(thread: str, events: list[Event]) -> None:
        async def each() -> Any:
            for event in events:
                yield event

        await store.restore(Key("main", "customer-42", thread), each())

    main: list[tuple[str, dict[str, Any]]] = [
        (
            "session.created",
            {"agent": "shop", "title": "A refund", "user": "ann", "workspace": "/home/ann/shop"},
        ),
        ("message.received", {"text": f"Refund order 42. {secret}".strip()}),
        ("run.started", {"inputs": [2]}),
        ("model.called", {"model": "anthropic/claude-x", "inputs": [2]}),
        (
            "message.completed",
            {
                "text": "I look.",
                "thought": "Which order?",
                "model": "anthropic/claude-x",
                "usage": {"input_tokens": 10, "output_tokens": 4},
                "calls": [call("c1", "find", order=42), call("c2", "subagent", task="check")],
            },
        ),
        ("tool.started", {"call": "c1", "name": "find"}),
        ("tool.finished", {"call": "c1", "result": {"order": 42, "eur": 10}}),
        ("tool.started", {"call": "c2", "name": "subagent"}),
        ("tool.finished", {"call": "c2", "outcome": "failed", "error": "no such clerk"}),
        (
            "message.completed",
            {"text": "", "model": "anthropic/claude-x", "calls": [call("c3", "refund", order=42)]},
        ),
        ("pending.opened", {"id": "c3", "what": "approval", "call": "c3", "title": "refund(42)"}),
        ("pending.settled", {"id": "c3", "outcome": "denied", "reason": "not today"}),
        ("tool.finished", {"call": "c3", "outcome": "denied", "error": "not today"}),
        ("message.completed", {"text": "It was denied.", "model": "anthropic/claude-x"}),
        ("run.finished", {"status": "done"}),
    ]
    if closed:
        main.append(("session.expired", {"reason": "done"}))
    await put("main", log("main", *main))
    await put(
        "sub/c2",
        log(
            "sub/c2",
            (
                "thread.created",
                {"agent": "clerk", "parent": "main", "item": "c2!sub", "call": "c2"},
            ),
            ("message.received", {"text": "check"}),
        ),
    )
    await store.put_blob(SCOPE, PICTURE)
    return store
