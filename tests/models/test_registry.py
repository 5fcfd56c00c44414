"""Models by reference: which are known, which are allowed, and what is wrong with providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.errors import InvalidValue
from holdfast.models import Models, PydanticAIProvider, ScriptedModel, faults, split_ref
from holdfast.models.port import Model, Provider


class Shop:
    """A provider of scripted models."""

    def __init__(self, namespace: Any = "shop", names: Any = None) -> None:
        self.namespace = namespace
        self.names: Sequence[str] | None = names
        self.made: list[str] = []
        self.closed = 0

    def model(self, name: str) -> Model:
        self.made.append(name)
        return ScriptedModel([name], ref=f"{self.namespace}/{name}")

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parity("harness-kernel", 10)
def test_a_reference_is_split_at_its_first_slash() -> None:
    assert split_ref("a/b") == ("a", "b")
    assert split_ref("a/b/c") == ("a", "b/c")
    assert Models([Shop("a")]).resolve("a/b/c").ref == "a/b/c"


@pytest.mark.parity("harness-kernel", 10)
@pytest.mark.parametrize("ref", ["x", "", "/x", "x/", " /x", "x/ ", None, 3])
def test_what_is_no_reference_is_refused(ref: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        Models([Shop()]).resolve(ref, field="default_model")
    assert caught.value.field == "default_model"
    assert "provider/model" in caught.value.remedy


def test_a_model_is_made_once() -> None:
    shop = Shop()
    models = Models([shop])
    assert shop.made == []
    assert models.resolve("shop/a") is models.resolve("shop/a")
    assert models.resolve("shop/b") is not models.resolve("shop/a")
    assert shop.made == ["a", "b"]


@pytest.mark.parity("harness-kernel", 11)
@pytest.mark.parametrize(
    ("providers", "fault"),
    [
        ([Shop("a"), Shop("b"), Shop("a")], "providers[2]: 'a' is taken by providers[0]"),
        ([Shop("a/b")], "providers[0]: the namespace 'a/b' has a slash"),
        ([Shop(" ")], "providers[0]: the namespace ' ' is blank"),
        ([Shop("")], "providers[0]: the namespace '' is blank"),
        ([Shop(None)], "providers[0]: the namespace None is blank"),
        ([Shop(names="gpt")], "providers[0]: names must be a list or None, got 'gpt'"),
        ([Shop(names=["a", ""])], "providers[0]: names contains a blank name"),
        (["openai"], "providers[0]: 'openai' is neither a provider nor a model"),
    ],
)
def test_a_provider_that_cannot_be_used_is_refused(providers: list[Any], fault: str) -> None:
    assert faults(providers) == [fault]
    with pytest.raises(InvalidValue) as caught:
        Models(providers)
    assert (caught.value.field, caught.value.problem) == ("providers", fault)


@pytest.mark.parity("harness-kernel", 11)
def test_all_faults_are_listed_at_once() -> None:
    odd: list[Any] = [Shop("a/b", names=[" "]), Shop("ok"), Shop("ok"), object()]
    found = faults(odd)
    assert [fault.partition(":")[0] for fault in found] == [
        "providers[0]",
        "providers[0]",
        "providers[2]",
        "providers[3]",
    ]
    with pytest.raises(InvalidValue) as caught:
        Models(odd)
    assert all(fault in caught.value.problem for fault in found)


def test_providers_that_are_well_have_no_faults() -> None:
    fine: list[Provider | Model] = [
        Shop("a"),
        Shop("b", names=[]),
        Shop("c", names=("x",)),
        PydanticAIProvider("openai"),
        ScriptedModel([], ref="s/a"),
        ScriptedModel([], ref="s/a/b"),
    ]
    assert faults(fine) == []
    assert Models(fine).namespaces == ["a", "b", "c", "openai", "s"]


@pytest.mark.parity("harness-kernel", 12)
def test_names_restrict_what_may_be_asked_for() -> None:
    shop = Shop(names=["small", "large"])
    models = Models([shop])
    assert models.resolve("shop/small").ref == "shop/small"
    with pytest.raises(InvalidValue) as caught:
        models.resolve("shop/huge")
    assert "'shop/huge'" in caught.value.problem
    assert caught.value.remedy == "use one of large, small"
    assert shop.made == ["small"]


@pytest.mark.parity("harness-kernel", 12)
@pytest.mark.parametrize("names", [None, [], ()])
def test_no_names_restrict_nothing(names: Any) -> None:
    assert Models([Shop(names=names)]).resolve("shop/any").ref == "shop/any"


def test_a_model_may_stand_alone() -> None:
    one, two = ScriptedModel([], ref="scripted/a"), ScriptedModel([], ref="scripted/b")
    models = Models([one, two])
    assert models.resolve("scripted/a") is one
    assert models.resolve("scripted/b") is two
    with pytest.raises(InvalidValue, match="scripted/a, scripted/b"):
        models.resolve("scripted/c")


@pytest.mark.parametrize(
    "providers",
    [
        [ScriptedModel([], ref="shop/a"), ScriptedModel([], ref="shop/a")],
        [ScriptedModel([], ref="shop/a"), Shop()],
        [Shop(), ScriptedModel([], ref="shop/a")],
    ],
)
def test_a_model_that_stands_alone_takes_no_others_place(providers: list[Any]) -> None:
    assert len(faults(providers)) == 1
    assert "is taken by providers[0]" in faults(providers)[0]


def test_a_ref_of_a_lone_model_is_checked() -> None:
    lone = ScriptedModel([])
    lone.ref = "demo"
    assert faults([lone]) == [
        "providers[0]: the ref is 'demo'; write provider/model, such as openai/gpt-5.1"
    ]


def test_an_unknown_namespace_is_looked_for_elsewhere_or_refused() -> None:
    assert repr(Models().resolve("openai/gpt-5.1")) == "PydanticAIModel(openai/gpt-5.1)"
    with pytest.raises(InvalidValue) as caught:
        Models([Shop("b"), Shop("a")], default=False).resolve("openai/gpt-5.1")
    assert caught.value.remedy == "use one of a, b"


async def test_closing_lets_go_of_every_provider() -> None:
    shop = Shop()
    models = Models([shop, ScriptedModel([])])
    models.resolve("openai/gpt-5.1")
    await models.aclose()
    await models.aclose()
    assert shop.closed == 2
