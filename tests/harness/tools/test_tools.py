"""A tool: what it declares, how it is called, and what a call comes to."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from contextvars import ContextVar
from datetime import date
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec import Struct

from holdfast.errors import InvalidValue
from holdfast.harness.tools import Permission, Ref, Tool, ToolContext, ToolResult, as_result, tool

from .context import Context

TABLE = "harness-kernel"
whose: ContextVar[str] = ContextVar("whose")


def refund(order: str, amount: float = 1) -> str:
    """Pay back."""
    return f"{order}: {amount:g}"


async def called(subject: Tool, context: ToolContext | None = None, **arguments: Any) -> ToolResult:
    return await subject.call(subject.parse(arguments), context or Context())


async def test_a_plain_function_runs_in_a_thread_with_the_callers_context_variables() -> None:
    @tool
    def where(ctx: ToolContext) -> list[Any]:
        """Say where."""
        return [threading.get_ident(), whose.get(), ctx.key]

    whose.set("mine")
    data = (await called(where)).data
    assert data[1:] == ["mine", "key-1"]
    assert data[0] != threading.get_ident()


async def test_an_async_function_runs_on_the_loop_and_uses_its_context() -> None:
    inner = tool(refund)

    @tool
    async def outer(order: str, context: ToolContext) -> dict[str, Any]:
        """Pay back, and tell of it."""
        await context.progress({"done": 1})
        await context.update_state(last=order)
        await context.emit("refund.begun", order)
        nested = await context.invoke(inner, order=order, amount=2)
        return {"thread": threading.get_ident(), "nested": nested.content}

    context = Context()
    result = await called(outer, context, order="o1")
    assert result.data == {"thread": threading.get_ident(), "nested": "o1: 2"}
    assert (context.told, context.events) == ([{"done": 1}], [("refund.begun", "o1")])
    assert context.state == {"last": "o1"}


async def test_what_a_function_raises_is_raised() -> None:
    @tool
    def broken() -> None:
        """Break."""
        raise KeyError("no such order")

    with pytest.raises(KeyError):
        await called(broken)


async def test_methods_and_callable_objects_can_be_tools() -> None:
    class Shop:
        def __init__(self) -> None:
            self.sold: list[str] = []

        def sell(self, what: str) -> int:
            """Sell something."""
            self.sold.append(what)
            return len(self.sold)

        async def __call__(self, what: str) -> str:
            """Ask for something."""
            return f"{what}?"

    shop = Shop()
    assert (await called(tool(shop.sell), what="tea")).data == 1
    assert shop.sold == ["tea"]
    asked = tool(shop, name="ask")
    assert asked.description == "Ask for something."
    assert (await called(asked, what="tea")).content == "tea?"


def test_a_tool_is_still_its_function() -> None:
    assert tool(refund)("o1", amount=3) == "o1: 3"


def test_a_tool_does_not_change() -> None:
    subject = tool(refund)
    with pytest.raises(dataclasses.FrozenInstanceError):
        subject.approval = "deny"  # type: ignore[misc]
    other = subject.replace(approval="deny")
    assert (subject.approval, other.approval) == ("auto", "deny")


def test_the_fingerprint_is_of_name_version_and_schema_alone() -> None:
    def other(order: str, amount: int = 1) -> str:
        """Pay back."""
        return ""

    first = tool(refund)
    assert len(first.fingerprint) == 16
    assert first.fingerprint == tool(refund, description="x", approval="ask").fingerprint
    different = [
        tool(refund, name="refunds").fingerprint,
        tool(refund, version="2").fingerprint,
        tool(other, name="refund").fingerprint,
    ]
    assert len({first.fingerprint, *different}) == 4


@pytest.mark.parity(TABLE, 27)
def test_a_manifest_lists_everything_declared() -> None:
    permission = Permission(kind="filesystem", access="write", path="/orders")
    subject = tool(
        refund,
        category="payments",
        risk="destructive",
        permissions=[permission],
        approval=lambda amount: amount > 10,
        timeout=5,
        repeat_safe=True,
        on_unknown="tell",
        concurrency=1,
        expires=60,
        version="3",
    )
    assert subject.permissions == (permission,)
    assert subject.manifest == {
        "name": "refund",
        "description": "Pay back.",
        "category": "payments",
        "risk": "destructive",
        "permissions": [{"kind": "filesystem", "access": "write", "path": "/orders"}],
        "approval": "dynamic",
        "approvals": 1,
        "timeout": 5,
        "repeat_safe": True,
        "probe": False,
        "probe_timeout": 30.0,
        "result_limit": None,
        "on_unknown": "tell",
        "concurrency": 1,
        "expires": 60,
        "version": "3",
        "fingerprint": subject.fingerprint,
        "schema": subject.schema,
    }
    assert msgspec.json.decode(msgspec.json.encode(subject.manifest)) == subject.manifest


@pytest.mark.parity(TABLE, 27)
async def test_a_result_carries_what_it_points_at() -> None:
    refs = [
        Ref(kind="file", value="a.txt", role="created"),
        Ref(kind="command", value="make", exit_code=2),
        Ref(kind="url", value="https://example.com", role="evidence"),
    ]

    @tool
    def build() -> ToolResult:
        """Build."""
        return ToolResult(content="built", refs=refs, metadata={"took": 3})

    result = await called(build)
    assert result == ToolResult(content="built", refs=refs, metadata={"took": 3})
    assert msgspec.json.decode(msgspec.json.encode(result), type=ToolResult) == result


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"name": "no spaces"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"risk": "huge"}, "refund.risk"),
        ({"approval": "maybe"}, "refund.approval"),
        ({"approval": lambda price: True}, "refund.approval"),
        ({"on_unknown": "repeat"}, "refund.on_unknown"),
        ({"timeout": 0}, "refund.timeout"),
        ({"expires": -1}, "refund.expires"),
        ({"concurrency": 0}, "refund.concurrency"),
    ],
)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        tool(refund, **changes)
    assert refused.value.field == where


async def late(amount: float) -> bool:
    await asyncio.sleep(0)
    return amount > 10


def by_state(context: ToolContext, **arguments: Any) -> str:
    return "deny" if context.state.get("closed") else "auto"


@pytest.mark.parametrize(
    ("approval", "arguments", "decided"),
    [
        ("ask", {}, "ask"),
        (lambda amount: amount > 10, {"amount": 11}, "ask"),
        (lambda amount: amount > 10, {"amount": 10}, "auto"),
        (lambda **given: "deny" if given == {"order": "o1", "amount": 1} else "ask", {}, "deny"),
        (lambda: "auto", {}, "auto"),
        (late, {"amount": 11}, "ask"),
        (by_state, {}, "deny"),
    ],
)
async def test_approval_is_decided_by_the_arguments(
    approval: Any, arguments: dict[str, Any], decided: str
) -> None:
    subject = tool(refund, approval=approval)
    parsed = subject.parse({"order": "o1", **arguments})
    assert await subject.approval_of(parsed, Context({"closed": True})) == decided


async def test_an_approval_that_is_none_is_refused() -> None:
    def sure() -> Any:
        return "sure"

    subject = tool(refund, approval=sure)
    with pytest.raises(InvalidValue, match="approval"):
        await subject.approval_of({}, Context())


class Receipt(Struct):
    number: int
    day: date


@dataclasses.dataclass
class Box:
    receipts: list[Receipt]


class Card(pydantic.BaseModel):
    owner: str = pydantic.Field(alias="belongsTo")
    since: date


CARD = Card(belongsTo="Ann", since=date(2026, 1, 2))


@pytest.mark.parametrize(
    ("value", "content", "data"),
    [
        (None, "", None),
        ("text", "text", None),
        ("half \ud800", "half \\ud800", None),
        (3, "3", 3),
        (False, "false", False),
        ([1, "a"], '[1,"a"]', [1, "a"]),
        ({"ä": None}, '{"ä":null}', {"ä": None}),
        (
            Receipt(1, date(2026, 1, 2)),
            '{"number":1,"day":"2026-01-02"}',
            {"number": 1, "day": "2026-01-02"},
        ),
        (Box([]), '{"receipts":[]}', {"receipts": []}),
        (
            [CARD],
            '[{"belongsTo":"Ann","since":"2026-01-02"}]',
            [{"belongsTo": "Ann", "since": "2026-01-02"}],
        ),
        ((1, 2), "[1,2]", [1, 2]),
        (b"hi", '"aGk="', "aGk="),
    ],
)
def test_what_a_function_returns_becomes_a_result(value: Any, content: str, data: Any) -> None:
    assert as_result(value) == ToolResult(content=content, data=data)


def test_the_data_of_a_result_is_json_and_told_to_the_model() -> None:
    result = as_result(ToolResult(data=Receipt(1, date(2026, 1, 2))))
    assert result.data == {"number": 1, "day": "2026-01-02"}
    assert result.content == '{"number":1,"day":"2026-01-02"}'


@pytest.mark.parity(TABLE, 21)
@pytest.mark.parametrize(
    ("given", "normal"),
    [
        (
            ToolResult(failed=True),
            ToolResult(
                content="the tool failed",
                data={"error": {"code": "tool_failed", "message": "the tool failed"}},
                failed=True,
                code="tool_failed",
            ),
        ),
        (
            ToolResult(content="no stock", failed=True, code="no_stock"),
            ToolResult(
                content="no stock",
                data={"error": {"code": "no_stock", "message": "no stock"}},
                failed=True,
                code="no_stock",
            ),
        ),
        (
            ToolResult(content="no stock", data={"left": 0}, failed=True),
            ToolResult(content="no stock", data={"left": 0}, failed=True, code="tool_failed"),
        ),
    ],
)
async def test_a_failure_always_has_a_code_words_and_data(
    given: ToolResult, normal: ToolResult
) -> None:
    @tool
    def fails() -> ToolResult:
        """Fail."""
        return given

    assert await called(fails) == normal


@pytest.mark.parametrize("value", [object(), [object()], {"a": {1j}}, ToolResult(data=object())])
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        as_result(value)
    assert refused.value.field == "result"


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidValue):
        as_result(circle)


def test_a_repr_shows_no_function() -> None:
    assert repr(tool(refund)) == "Tool('refund', version='1')"
