"""Looks up models by reference: `openai/gpt-5.1` is model `gpt-5.1` of the provider `openai`."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

from ..errors import InvalidValue, MissingExtra
from .port import Model, Provider, split_ref
from .pydantic_ai import PydanticAIProvider, installed, knows

Source: TypeAlias = Provider | Model


class Models:
    """The models that a program may use. Each is created when it is first requested, and reused.

    `providers` may also contain single models, which are found by their own `ref`. If `default` is
    set, pydantic-ai's provider is used for a namespace that is not in `providers`; otherwise such a
    namespace is rejected. Invalid providers raise one `InvalidValue` that lists all problems.

    See [models](../models.md).
    """

    def __init__(self, providers: Iterable[Source] = (), *, default: bool = True) -> None:
        given = list(providers)
        wrong = faults(given)
        if wrong:
            raise InvalidValue(
                field="providers",
                problem="; ".join(wrong),
                remedy="use a different namespace, without a slash, for each provider",
            )
        self._models: dict[str, Model] = {}
        self._providers: dict[str, Provider] = {}
        for source in given:
            if _is_provider(source):
                self._providers[source.namespace] = source
            elif _is_model(source):
                self._models[source.ref] = source
        self._default = default

    def __repr__(self) -> str:
        return f"Models({', '.join(self.namespaces)})"

    @property
    def namespaces(self) -> list[str]:
        """The configured namespaces, in alphabetical order."""
        single = (ref.partition("/")[0] for ref in self._models)
        return sorted({*self._providers, *single})

    def resolve(self, ref: str, field: str = "model") -> Model:
        """Return the model with this reference: the same object each time. Raises an `InvalidValue`
        that lists the namespaces or models that can be requested instead."""
        self.check(ref, field)
        if ref not in self._models:
            namespace, name = split_ref(ref, field)
            self._models[ref] = self._provider(namespace, ref, field).model(name)
        return self._models[ref]

    def check(self, ref: str, field: str = "model") -> None:
        """Reject a reference that cannot be resolved, without creating the model."""
        namespace, name = split_ref(ref, field)
        if ref in self._models:
            return
        names = list(self._provider(namespace, ref, field).names or ())
        if names and name not in names:
            raise _refused(field, f"{ref!r} is not among the models of {namespace!r}", names)

    def _provider(self, namespace: str, ref: str, field: str) -> Provider:
        if namespace not in self._providers:
            own = [r for r in self._models if r.partition("/")[0] == namespace]
            if own:
                raise _refused(field, f"{ref!r} is not among the models of {namespace!r}", own)
            if not self._default or not knows(namespace):
                raise _refused(field, f"{ref!r} has no known provider", self.namespaces)
            if not installed():
                raise MissingExtra(extra="models", needed_for=ref)
            self._providers[namespace] = PydanticAIProvider(namespace)
        return self._providers[namespace]

    async def aclose(self) -> None:
        """Close the connections of all providers. Safe to call twice; a provider that is used again
        reconnects."""
        for provider in self._providers.values():
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()


def is_listed(ref: str, refs: Collection[str]) -> bool:
    """Return whether a list of models contains this model, as its reference, as `provider/*`, or as
    `*`."""
    return ref in refs or f"{ref.partition('/')[0]}/*" in refs or "*" in refs


def faults(providers: Iterable[Source]) -> list[str]:
    """Return all problems with these providers and models, as texts; empty if all are valid.

    See [models](../models.md).
    """
    owners: dict[str, int] = {}  # the index of each namespace or single model
    found: list[str] = []
    for number, source in enumerate(providers):
        place = f"providers[{number}]"
        wrong = list(_own_faults(source))
        found += [f"{place}: {fault}" for fault in wrong]
        if wrong:
            continue
        if _is_provider(source):
            name, rivals = source.namespace, [source.namespace]
            rivals += [other for other in owners if other.startswith(f"{name}/")]
        elif _is_model(source):
            name, rivals = source.ref, [source.ref, source.ref.partition("/")[0]]
        taken = [owners[rival] for rival in rivals if rival in owners]
        if taken:
            found.append(f"{place}: {name!r} is taken by providers[{taken[0]}]")
        owners.setdefault(name, number)
    return found


def _own_faults(source: Any) -> Iterator[str]:
    if not _is_provider(source):
        yield from _model_faults(source)
        return
    namespace = source.namespace
    if not isinstance(namespace, str) or not namespace.strip():
        yield f"the namespace {namespace!r} is blank"
    elif "/" in namespace:
        yield f"the namespace {namespace!r} has a slash"
    if not callable(getattr(source, "model", None)):
        yield "has no method model(name)"
    names = getattr(source, "names", None)
    if isinstance(names, str) or not isinstance(names, Sequence | None):
        yield f"names must be a list or None, got {names!r}"
    elif any(not isinstance(name, str) or not name.strip() for name in names or ()):
        yield "names contains a blank name"


def _model_faults(source: Any) -> Iterator[str]:
    if not callable(getattr(source, "stream", None)) or inspect.isclass(source):
        yield f"{source!r} is neither a provider nor a model"
        return
    try:
        split_ref(getattr(source, "ref", None))  # type: ignore[arg-type]  # it says what is wrong
    except InvalidValue as error:
        yield f"the ref {error.problem}; {error.remedy}"


def _is_provider(source: Any) -> TypeGuard[Provider]:
    return hasattr(source, "namespace") and not inspect.isclass(source)


def _is_model(source: Any) -> TypeGuard[Model]:
    return not _is_provider(source)


def _refused(field: str, problem: str, known: Sequence[str]) -> InvalidValue:
    return InvalidValue(
        field=field,
        problem=problem,
        remedy=f"use one of {', '.join(sorted(known))}" if known else "pass a provider",
    )
