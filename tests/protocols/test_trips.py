"""Every kind of event, translated and read by the clients themselves: what the client has at the
end of the stream, and what it has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from holdfast.events import KINDS, Event
from holdfast.server.protocols import ag_ui_stream, ai_sdk_stream
from holdfast.server.protocols.ag_ui_stream import AgUiStream
from holdfast.server.protocols.ai_sdk_stream import UiMessageStream
from holdfast.values.pending import Ask
from holdfast.values.result import Result
from holdfast.wire import End

from .clients import running
from .test_translations import event, examples

Chunks: TypeAlias = Callable[[list[Any]], list[dict[str, Any]]]
CALL = "call-of-the-message"
# What a client has of each kind: fields of the event's data, by the names of the log.
KEPT: dict[str, tuple[str, ...]] = {
    "run.started": (),  # the id of the run, see below
    "run.resumed": (),
    "model.called": (),  # the borders of a step
    "message.completed": ("text", "thought", "calls"),
    "message.interrupted": ("text",),
    "tool.started": (),  # arguments that an approver has changed, see below
    "tool.nested": ("call",),
    "tool.finished": ("call", "result"),
    "progress.reported": ("call", "data"),
    "pending.opened": ("id", "what", "title", "call"),
    "pending.voted": ("id", "reason"),
    "pending.settled": ("id", "outcome"),
    "pending.warned": ("id",),
    "pending.extended": ("id", "expires"),
    "state.changed": ("set",),
    "task.changed": ("tasks",),
    "thread.rewound": ("to",),
}


def chat(version: Any) -> Chunks:
    def chunks(parts: list[Any]) -> list[dict[str, Any]]:
        stream = UiMessageStream(version)
        return [chunk for part in parts for chunk in stream.chunks(part, "log.9")]

    return chunks


def run(parts: list[Any]) -> list[dict[str, Any]]:
    stream = AgUiStream("t", "r", {})
    return [chunk for part in parts for chunk in stream.chunks(part, "log.9")]


CLIENTS = {
    "ai": (chat("v7"), ai_sdk_stream),
    "ai-5": (chat("v5"), ai_sdk_stream),
    "@ag-ui/client": (run, ag_ui_stream),
    "@ag-ui/client-0": (run, ag_ui_stream),
}


def told(*given: Event, call: str = CALL, end: End | None = None) -> list[Any]:
    """The items of a run with a message, a call, and these events."""
    calls = [{"id": call, "name": "lookup", "arguments": {}}]
    before = [
        event("run.started", {}, 101),
        event("model.called", {"model": "m"}, 102),
        event("message.completed", {"text": "Before.", "calls": calls}, 103, "m-before"),
    ]
    done = Result(session="s", thread="main", run="r1", status="done")
    return [*before, *given, end or End(reason="finished", result=done)]


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif value not in (None, "", False):
        yield value


def test_every_kind_is_read_or_lost() -> None:
    for module in (ai_sdk_stream, ag_ui_stream):
        assert {*KEPT, *module.ENDING} | module.LOST == {*KINDS}


@pytest.mark.parametrize("package", CLIENTS)
async def test_a_client_has_of_every_kind_what_the_table_says(package: str, tmp_path: Path) -> None:
    chunks, module = CLIENTS[package]
    async with running("trip.mjs", package, folder=tmp_path) as client:

        async def read(parts: list[Any]) -> Any:
            found = await client.do("read", chunks(parts))
            assert found["problems"] == [], parts
            return found["has"]

        for one in examples():
            if one.kind in module.ENDING:
                continue
            payload = msgspec.json.decode(one.data)
            call = str(payload.get("call") or CALL)
            has = await read(told(one, call=call))
            if one.kind in module.LOST:
                assert has == await read(told(call=call)), one.kind
                continue
            text = msgspec.json.encode(has).decode()
            ended = payload.get("outcome", "ok") == "ok" or one.kind != "tool.finished"
            for name in KEPT[one.kind] if ended else ("call", "outcome"):
                for leaf in leaves(payload.get(name)):
                    assert str(leaf) in text, (one.kind, name, leaf)


@pytest.mark.parametrize("package", CLIENTS)
async def test_a_client_knows_how_the_run_ended(package: str, tmp_path: Path) -> None:
    chunks, _ = CLIENTS[package]
    ask = Ask(id=f"{CALL}~ask", what="approval", title="lookup()", call=CALL, tool="lookup")
    wait = Result(session="s", thread="main", run="r1", status="waiting", pending=(ask,))
    failed = Result(session="s", thread="main", run="r1", status="failed", code="model_failed")
    async with running("trip.mjs", package, folder=tmp_path) as client:
        found = await client.do("read", chunks(told(end=End(reason="waiting", result=wait))))
        assert found["problems"] == []
        assert ask.id in msgspec.json.encode(found["has"]).decode()
        found = await client.do("read", chunks(told(end=End(reason="finished", result=failed))))
        said = msgspec.json.encode(found).decode()
        assert "model_failed" in said
        assert "Before." in said
