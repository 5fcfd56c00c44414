"""Tools from a JSON Schema: everything that the schema says is enforced, all faults at once."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from holdfast.errors import InvalidValue, MissingExtra
from holdfast.harness.tools import BadArguments, Tool, ToolContext

from .context import Context

TABLE = "harness-kernel"

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10, "multipleOf": 2},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "mail": {"type": "string", "format": "email"},
        "place": {"$ref": "#/$defs/place"},
    },
    "patternProperties": {"^x-": {"type": "string"}},
    "required": ["name", "count"],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"street": {"type": "string"}},
            "required": ["street"],
            "additionalProperties": False,
        }
    },
}


def made(schema: dict[str, Any], **options: Any) -> Tool:
    return Tool.from_schema("order", "Place an order.", schema, lambda a: a, **options)


def places(subject: Tool, arguments: Any) -> list[str]:
    with pytest.raises(BadArguments) as refused:
        subject.parse(arguments)
    return [issue.path for issue in refused.value.issues]


@pytest.mark.parity(TABLE, 144, 145)
@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"name": "a"}, ["name"]),
        ({"name": "abcde"}, ["name"]),
        ({"name": "A1"}, ["name"]),
        ({"name": None}, ["name"]),
        ({"count": 0}, ["count"]),
        ({"count": 10}, ["count"]),
        ({"count": 3}, ["count"]),
        ({"count": 1.5}, ["count", "count"]),
        ({"count": "2"}, ["count"]),
        ({"tags": ["a", "c", "d"]}, ["tags", "tags.1", "tags.2"]),
        ({"mail": "nobody"}, ["mail"]),
        ({"place": {"town": 1}}, ["place.street", "place.town"]),
        ({"hurry": 1, "slow": 2}, ["hurry", "slow"]),
        ({"x-note": 1}, ["x-note"]),
    ],
)
def test_everything_that_a_schema_says_is_enforced(
    changes: dict[str, Any], where: list[str]
) -> None:
    assert sorted(places(made(ORDER), {"name": "ab", "count": 2, **changes})) == sorted(where)


@pytest.mark.parity(TABLE, 19, 145)
def test_all_faults_are_listed_at_once() -> None:
    found = places(made(ORDER), {"count": 11, "hurry": 1, "tags": [3], "place": {}})
    assert sorted(found) == ["count", "count", "hurry", "name", "place.street", "tags.0"]


def test_good_arguments_are_given_as_they_are() -> None:
    arguments = {"name": "ab", "count": 2, "x-note": "a", "place": {"street": "b"}}
    assert made(ORDER).parse(arguments) == arguments
    assert made(ORDER).spec.schema == ORDER


async def test_the_function_gets_a_dict_and_a_context_if_it_wants_one() -> None:
    async def told(arguments: dict[str, Any], context: ToolContext) -> str:
        return f"{arguments['name']} {context.key}"

    subject = Tool.from_schema("told", "Tell.", ORDER, told, approval="ask", category="shop")
    assert (subject.approval, subject.category) == ("ask", "shop")
    result = await subject.call(subject.parse({"name": "ab", "count": 2}), Context())
    assert result.content == "ab key-1"
    alone = await made(ORDER).call({"name": "ab"}, Context())
    assert alone.data == {"name": "ab"}


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "text"}}}, [], True],
)
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        made(schema)
    assert refused.value.field == "order.schema"


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b, c: 1, lambda a, *, b: 1])
def test_a_function_of_another_form_is_refused(function: Any) -> None:
    with pytest.raises(InvalidValue, match="arguments"):
        Tool.from_schema("order", "", ORDER, function)


def test_nothing_is_fetched_that_a_schema_refers_to() -> None:
    subject = made({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}})
    assert places(subject, {"a": 1}) == ["(root)"]
    assert subject.parse({"b": 1}) == {"b": 1}


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra) as missing:
        made(ORDER)
    assert missing.value.extra == "mcp"


def test_an_older_draft_is_read_as_it_says() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "string"}], "additionalItems": False}},
    }
    assert places(made(schema), {"pair": [1, 2]}) == ["pair", "pair.0"]
