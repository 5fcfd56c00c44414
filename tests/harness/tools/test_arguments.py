"""Arguments from a signature: what the schema says, what is read, and every fault at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from holdfast.errors import InvalidValue
from holdfast.harness.tools import BadArguments, Issue, Tool, ToolContext, tool
from holdfast.harness.tools.reading import read

TABLE = "harness-kernel"
jsonschema: Any = import_module("jsonschema")  # it has no types


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(Struct):
    sku: str
    count: Annotated[int, Meta(ge=1, le=9)] = 1


class Cat(Struct, tag="cat"):
    lives: int


class Dog(Struct, tag="dog"):
    tricks: list[str]


class Renamed(Struct, rename="camel"):
    first_name: str


@dataclass
class Place:
    street: str
    tags: list[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    deep: bool


class Point(NamedTuple):
    x: int
    y: int


class Tree(Struct):
    name: str
    under: list[Tree] = []


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    born: date | None = None


@dataclass
class Household:
    who: Person


T = TypeVar("T")


class Box(Struct, Generic[T]):
    inside: T
    next: Box[T] | None = None


OrderId = NewType("OrderId", str)


def takes(kind: Any, **options: Any) -> Tool:
    """A tool with one argument of this type."""

    def taker(value: Any) -> str:
        return repr(value)

    taker.__annotations__["value"] = kind
    return tool(taker, **options)


def faults(subject: Tool, arguments: Any) -> list[tuple[str, str]]:
    with pytest.raises(BadArguments) as refused:
        subject.parse(arguments)
    assert refused.value.tool == subject.name
    return [(issue.path, issue.problem) for issue in refused.value.issues]


READ = [
    (int, 3, 3),
    (float, 3, 3.0),
    (bool, True, True),
    (str, "a", "a"),
    (str | None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (Literal["a", 2], 2, 2),
    (Colour, "red", Colour.RED),
    (date, "2026-02-03", date(2026, 2, 3)),
    (datetime, "2026-02-03T04:05:06Z", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (timedelta, "PT90S", timedelta(seconds=90)),
    (Decimal, "1.20", Decimal("1.20")),
    (UUID, "12345678123456781234567812345678", UUID("12345678123456781234567812345678")),
    (bytes, "aGk=", b"hi"),
    (list[int], [1, 2], [1, 2]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
    (set[str], ["a", "b"], {"a", "b"}),
    (frozenset[int], [1], frozenset({1})),
    (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (Line, {"sku": "a"}, Line("a", 1)),
    (list[Line], [{"sku": "a", "count": 2}], [Line("a", 2)]),
    (Cat | Dog, {"type": "dog", "tricks": ["sit"]}, Dog(["sit"])),
    (Renamed, {"firstName": "a"}, Renamed("a")),
    (Place, {"street": "a"}, Place("a")),
    (Options, {"deep": True}, {"deep": True}),
    (Point, [1, 2], Point(1, 2)),
    (Tree, {"name": "a", "under": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    (Box[int], {"inside": 1}, Box(1)),
    (OrderId, "o1", "o1"),
    (Annotated[str, Meta(max_length=3)], "abc", "abc"),
    (Person, {"name": "Ann", "born": "2000-01-02"}, Person(name="Ann", born=date(2000, 1, 2))),
    (list[Person], [{"name": "Ann"}], [Person(name="Ann")]),
    (dict[str, list[Person]], {"a": [{"name": "Ann"}]}, {"a": [Person(name="Ann")]}),
    (Household, {"who": {"name": "Ann"}}, Household(Person(name="Ann"))),
    (Person | None, None, None),
    (Annotated[int, pydantic.Field(gt=2)], 3, 3),
    (pydantic.PositiveInt, 3, 3),
]


@pytest.mark.parity(TABLE, 144)
@pytest.mark.parametrize(("kind", "given", "value"), READ)
def test_a_value_is_read_as_its_type_and_the_schema_allows_it(
    kind: Any, given: Any, value: Any
) -> None:
    subject = takes(kind)
    found = subject.parse({"value": given})
    assert found == {"value": value}
    assert type(found["value"]) is type(value)
    jsonschema.Draft202012Validator.check_schema(subject.schema)
    jsonschema.validate({"value": given}, subject.schema)


REFUSED: list[tuple[Any, Any, list[str]]] = [
    (int, "3", ["value"]),
    (int, True, ["value"]),
    (int, None, ["value"]),
    (str, 3, ["value"]),
    (bool, 1, ["value"]),
    (bool, "true", ["value"]),
    (float, "1.5", ["value"]),
    (Literal["a", 2], "b", ["value"]),
    (Colour, "green", ["value"]),
    (date, "soon", ["value"]),
    (bytes, "?", ["value"]),
    (list[int], ["a", 1, "b"], ["value.0", "value.2"]),
    (list[int], "a", ["value"]),
    (tuple[int, str], ["a", 1], ["value.0", "value.1"]),
    (tuple[int, str], [1], ["value"]),
    (set[int], ["a", "b"], ["value.0", "value.1"]),
    (dict[str, int], {"a": "x", "b": 1, "c": "y"}, ["value.a", "value.c"]),
    (dict[int, str], {"x": "a", "1": 2}, ["value.x", "value.1"]),
    (Line, {"count": 10}, ["value.sku", "value.count"]),
    (Line, [], ["value"]),
    (list[Line], [{"sku": 1}, {"count": 0}], ["value.0.sku", "value.1.sku", "value.1.count"]),
    (list[Line] | None, [{"sku": 1}, {}], ["value.0.sku", "value.1.sku"]),
    (Cat | Dog, {"type": "dog", "tricks": [1, "a", 2]}, ["value.tricks.0", "value.tricks.2"]),
    (Cat | Dog, {"type": "bird"}, ["value.type"]),
    (Renamed, {"first_name": "a"}, ["value.firstName"]),
    (Place, {"tags": [1]}, ["value.street", "value.tags.0"]),
    (Options, {"deep": "yes"}, ["value.deep"]),
    (Tree, {"under": [{"name": 1}]}, ["value.name", "value.under.0.name"]),
    (Box[int], {"inside": "a"}, ["value.inside"]),
    (OrderId, 1, ["value"]),
    (Annotated[list[int], Meta(max_length=1)], ["a", 2], ["value", "value.0"]),
    (Annotated[str, Meta(pattern="^a")], "b", ["value"]),
    (Person, {"name": "A", "born": "x"}, ["value.name", "value.born"]),
    (list[Person], [{}, {"name": 1}], ["value.0.name", "value.1.name"]),
    (Annotated[int, pydantic.Field(gt=2)], 1, ["value"]),
]


@pytest.mark.parity(TABLE, 144)
@pytest.mark.parametrize(("kind", "given", "places"), REFUSED)
def test_every_fault_is_told_where_it_is(kind: Any, given: Any, places: list[str]) -> None:
    found = faults(takes(kind), {"value": given})
    assert sorted(place for place, _ in found) == sorted(places)
    assert all(problem for _, problem in found)


def order(
    number: int,
    lines: list[Line],
    note: Annotated[str, Meta(max_length=5)] = "",
    colour: Colour | None = None,
) -> str:
    """Place an order.

    It is sent at once.

    Args:
        number: the number
            of the order
        lines (list[Line]): what to send
        note: seen: by the packer

    Returns:
        the receipt
    """
    return f"{number} {lines} {note} {colour}"


@pytest.mark.parity(TABLE, 19, 144)
def test_missing_unknown_and_wrong_arguments_are_refused_together() -> None:
    subject = tool(order)
    with pytest.raises(BadArguments) as refused:
        subject.parse({"lines": [{"sku": 1}], "note": "too long", "hurry": True})
    assert refused.value.issues == [
        Issue("hurry", "is not an argument of this tool"),
        Issue("number", "is missing"),
        Issue("lines.0.sku", "Expected `str`, got `int`"),
        Issue("note", "Expected `str` of length <= 5"),
    ]
    result = refused.value.result()
    assert (result.failed, result.code) == (True, "bad_arguments")
    assert result.data["error"]["issues"][1] == {"path": "number", "problem": "is missing"}
    for issue in refused.value.issues:
        assert f"{issue.path}: {issue.problem}" in result.content


@pytest.mark.parity(TABLE, 144)
def test_the_schema_says_all_that_the_signature_does() -> None:
    subject = tool(order)
    assert subject.name == "order"
    assert subject.description == "Place an order.\n\nIt is sent at once."
    assert subject.spec.schema == subject.schema
    assert subject.schema == {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "description": "the number of the order"},
            "lines": {
                "type": "array",
                "items": {"$ref": "#/$defs/Line"},
                "description": "what to send",
            },
            "note": {
                "type": "string",
                "maxLength": 5,
                "description": "seen: by the packer",
                "default": "",
            },
            "colour": {"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}], "default": None},
        },
        "required": ["number", "lines"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {"title": "Colour", "enum": ["blue", "red"]},
            "Line": {
                "title": "Line",
                "type": "object",
                "properties": {
                    "sku": {"type": "string"},
                    "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
                },
                "required": ["sku"],
            },
        },
    }


@pytest.mark.parity(TABLE, 144)
def test_defaults_are_filled_in_and_null_is_no_default() -> None:
    subject = tool(order)
    assert subject.parse({"number": 1, "lines": []}) == {
        "number": 1,
        "lines": [],
        "note": "",
        "colour": None,
    }
    assert faults(subject, {"number": 1, "lines": [], "note": None}) == [
        ("note", "Expected `str`, got `null`")
    ]


def test_a_default_is_not_shared_between_calls() -> None:
    @tool
    def f(
        a: list[int] = [],  # noqa: B006
        b: list[int] = pydantic.Field(default_factory=list),  # noqa: B008
    ) -> None:
        """Do."""

    first = f.parse({})
    first["a"].append(1)
    first["b"].append(1)
    assert f.parse({}) == {"a": [], "b": []}


def test_sphinx_docstrings_and_notes_describe_parameters() -> None:
    @tool
    def ask(what: str, times: Annotated[int, "how often"], loud: bool = False) -> None:
        """Ask.

        :param str what: the question
            in one line
        :param times: not this
        :param loud: whether to shout
        :returns: nothing
        """

    described = {name: part["description"] for name, part in ask.schema["properties"].items()}
    assert described == {
        "what": "the question in one line",
        "times": "how often",
        "loud": "whether to shout",
    }
    assert ask.description == "Ask."


def test_pydantic_and_msgspec_types_of_one_name_stay_apart() -> None:
    @tool
    def both(ours: Line, theirs: list[Theirs.Line], count: int = pydantic.Field(2, ge=1)) -> None:
        """Take both."""

    schema = both.schema
    assert len(schema["$defs"]) == 2
    good = {"ours": {"sku": "a"}, "theirs": [{"title": "x"}]}
    jsonschema.validate(good, schema)
    assert both.parse(good) == {"ours": Line("a"), "theirs": [Theirs.Line(title="x")], "count": 2}
    assert [place for place, _ in faults(both, {"ours": {}, "theirs": [{}], "count": 0})] == [
        "ours.sku",
        "theirs.0.title",
        "count",
    ]


class Theirs:
    class Line(pydantic.BaseModel):
        title: str


def test_a_pydantic_field_without_a_default_must_be_given() -> None:
    @tool
    def need(count: int = pydantic.Field(ge=1, description="how many")) -> None:
        """Need."""

    assert need.schema["required"] == ["count"]
    assert need.schema["properties"]["count"]["description"] == "how many"
    assert faults(need, {}) == [("count", "is missing")]


def test_types_of_a_function_are_found_where_the_tool_is_made() -> None:
    class Inner(Struct):
        a: int

    @tool
    def local(value: Inner) -> None: ...

    @tool(name="other")
    def named(value: list[Inner]) -> None: ...

    assert local.parse({"value": {"a": 1}}) == {"value": Inner(1)}
    assert named.parse({"value": [{"a": 1}]}) == {"value": [Inner(1)]}


def test_plain_tools_do_not_import_pydantic() -> None:
    child = """
import sys
from dataclasses import dataclass
import msgspec
from holdfast.harness.tools import tool, as_result

class S(msgspec.Struct):
    a: int

@dataclass
class D:
    s: S

@tool
def f(a: int, b: list[S], c: D, d: dict[str, int] | None = None) -> None: ...

f.parse({"a": 1, "b": [{"a": 1}], "c": {"s": {"a": 1}}})
as_result([S(1)])
assert not {"pydantic", "jsonschema", "mcp"} & set(sys.modules)
print("good")
"""
    ended = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=False
    )
    assert (ended.stdout.strip(), ended.stderr) == ("good", "")


@pytest.mark.parametrize(
    "arguments", ["{not json", "", [], [1], 3, True], ids=["text", "empty", "[]", "list", "3", "t"]
)
def test_what_is_no_object_is_refused_as_a_whole(arguments: Any) -> None:
    [(place, problem)] = faults(tool(order), arguments)
    assert place == "(root)"
    assert "pass an object" in problem


def test_no_arguments_are_an_empty_object() -> None:
    @tool
    def now() -> str:
        """Say the time."""
        return "noon"

    assert now.parse(None) == now.parse({}) == {}
    assert now.schema["properties"] == {}


def test_very_many_faults_are_counted_not_listed() -> None:
    found = faults(takes(list[int]), {"value": ["a"] * 1_000})
    assert len(found) == 51
    assert found[-1] == ("(root)", "has 950 more issues")


def test_what_is_nested_too_deeply_is_a_fault() -> None:
    deep: dict[str, Any] = {"name": 1}
    for _ in range(100_000):
        deep = {"name": "a", "under": [deep]}
    assert faults(takes(Tree), {"value": deep}) == [("value", "is nested too deeply")]
    while deep.get("under"):
        deep = deep.pop("under")[0]  # or freeing it would nest as deeply


def test_a_function_with_some_arguments_given_can_be_a_tool() -> None:
    subject = tool(partial(order, 1, colour=None), name="first")
    assert subject.description == "Place an order.\n\nIt is sent at once."
    assert list(subject.schema["properties"]) == ["lines", "note", "colour"]
    assert subject.schema["required"] == ["lines"]


class Plain:
    """No type that JSON knows."""


def wrong_forms() -> list[Any]:
    def untyped(a) -> None: ...  # type: ignore[no-untyped-def]
    def stars(*a: int) -> None: ...
    def names(**a: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def plain(a: Plain) -> None: ...
    def nowhere(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def generator(a: int) -> Any:
        yield a

    class Thing:
        def method(self, a: int) -> None: ...

    return [
        pytest.param(untyped, "untyped.a", "annotate", id="untyped"),
        pytest.param(stars, "stars.a", "list", id="stars"),
        pytest.param(names, "names.a", "dict", id="names"),
        pytest.param(positional, "positional.a", "by name", id="positional"),
        pytest.param(plain, "plain.a", "plain types", id="plain"),
        pytest.param(nowhere, "nowhere", "import", id="nowhere"),
        pytest.param(generator, "generator", "progress", id="generator"),
        pytest.param(Thing.method, "method.self", "bound method", id="method"),
    ]


@pytest.mark.parametrize(("function", "where", "remedy"), wrong_forms())
def test_what_a_model_could_not_call_is_refused_when_it_is_defined(
    function: Callable[..., Any], where: str, remedy: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        tool(function)
    assert refused.value.field == where
    assert remedy in refused.value.remedy


def test_a_context_is_no_argument_whatever_its_name() -> None:
    @tool
    def f(a: int, here: ToolContext, there: ToolContext | None = None) -> None:
        """Do."""

    assert list(f.schema["properties"]) == ["a"]
    assert faults(f, {"a": 1, "here": {}}) == [("here", "is not an argument of this tool")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "under", "sku", "count", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
KINDS = [Tree, list[Line], dict[str, Line], tuple[int, str], Cat | Dog | None, Place, Options]


@given(JSON, st.sampled_from(KINDS))
def test_a_value_has_faults_just_when_it_does_not_convert(value: Any, kind: Any) -> None:
    try:
        expected: Any = msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError:
        found, issues = read(kind, value, "value")
        assert found is None
        assert issues
        assert all(issue.path.split(".")[0] == "value" for issue in issues)
    else:
        assert read(kind, value, "value") == (expected, [])


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_each_wrong_item_is_a_fault_of_its_own(wrong: list[bool]) -> None:
    items = [{"sku": 1} if bad else {"sku": "a"} for bad in wrong]
    _, issues = read(list[Line], items, "items")
    assert [issue.path for issue in issues] == [
        f"items.{n}.sku" for n, bad in enumerate(wrong) if bad
    ]
