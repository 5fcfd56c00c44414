"""Engines: what drives sessions. A server has them by name; `HoldfastEngine` is the harness.

An engine opens sessions for whoever asks, keeps them open while they are used, and closes those
that nobody has used for a while. Nothing of a session is lost by that: all of it is in its log.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from ..errors import HeadMoved, InvalidAgent, InvalidValue, RateLimited, UnknownAgent
from ..harness.agents.agent import Agent
from ..harness.agents.settings import for_function
from ..harness.host import GRACE, Harness, sessions_of
from ..harness.sandbox.removal import cleared, condemn
from ..harness.session.session import Session
from ..log import events as ev
from ..log.events import Key, NewEvent, Scope
from ..models.scripted import ScriptedModel, offline
from ..stores.port import Store
from ..values.options import RunLimits
from ..values.records import Receipt, Remains
from .auth.limits import ServerLimits
from .placement.open_sessions import Uses
from .run_choices import Choices
from .uploads.variables import Envs, Supplied

Made: TypeAlias = "Agent | Callable[..., Harness]"


class Chosen(str):
    """A model that nobody named, for agents that name none: functions are not given it."""

    __slots__ = ()


@dataclass(frozen=True)
class Place:
    """Where sessions of one tenant are: the store, and the kind by which it was asked for."""

    tenant: str
    kind: str
    store: Store


class Engine(Protocol):
    """What the server asks of whatever drives sessions."""

    @property
    def agents(self) -> list[str]:
        """The names of the agents that it serves."""
        ...

    def agent_key(self, name: str | None) -> str:
        """What rows call an agent; None is the first (`UnknownAgent`)."""
        ...

    async def begin(
        self, place: Place, id: str, created: ev.SessionCreated, ids: Sequence[str]
    ) -> bool:
        """Begin a session, with events of these ids; False where there is one that was begun
        by others. The same ids again are the same beginning."""
        ...

    def open(
        self, place: Place, agent: str, id: str, thread: str = "main"
    ) -> AbstractAsyncContextManager[Session]:
        """A session of the agent whose key this is, for as long as it is used
        (`SessionNotFound`)."""
        ...

    async def delete(self, place: Place, agent: str, id: str) -> Receipt:
        """Stop what is going on in a session, and remove it."""
        ...

    async def serve(self, place: Place) -> None:
        """Take up what is left undone there, and look for more from now on."""
        ...

    async def aclose(self, grace: float = GRACE) -> None:
        """Hand over what is going on, and close."""
        ...


class HoldfastEngine:
    """The harness, as an engine: one for each agent, store and tenant, made when first needed.

    `agents` are agents by the names that clients ask for, or functions that take `store`,
    `tenant` and the settings, and return a `Harness` of them. `settings` are those of the
    harness; one that a function does not take is refused (`InvalidValue`), never left out.
    `run_limits` are its `limits`, and what clients may not exceed.
    """

    def __init__(
        self,
        agents: Mapping[str, Made] | Sequence[Agent],
        *,
        limits: ServerLimits | None = None,
        harness: Callable[..., Harness] = Harness,
        run_limits: RunLimits | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(agents, Mapping):
            agents = {agent.key: agent for agent in agents}
        self._made: dict[str, Made] = dict(agents)
        self._settings, self._new = settings, harness
        if run_limits is not None:
            self._settings["limits"] = run_limits
        self._listed: Collection[str] | None = None
        self._probes: dict[str, Harness] = {}
        self._envs = Envs()
        self.adopted: dict[str, Agent] = {}
        self._adopters: set[tuple[str, str]] = set()  # tenants, and what they brought
        self.limits = limits or ServerLimits()
        self._harnesses: dict[tuple[str, int, str], Harness] = {}
        self._keys: dict[str, str] = {}  # the name of each agent, by its key
        for name, made in self._made.items():
            key = self._probe(name, made)
            if key in self._keys:
                problem = f"{self._keys[key]!r} and {name!r} are both the agent {key!r}"
                remedy = "serve one of them, or give one another name: Agent(NAME, …)"
                raise InvalidValue(field="agents", problem=problem, remedy=remedy)
            self._keys[key] = name
        self._uses = Uses(self.limits)

    def _probe(self, name: str, made: Made) -> str:
        """The key of an agent; all that is wrong with it is found here."""
        probe = self._make(made, "memory:", "main")
        self._probes[probe.agent.key] = probe
        return probe.agent.key

    def _make(self, made: Made, store: Store | str, tenant: str) -> Harness:
        settings = {**self._settings, "store": store, "tenant": tenant}
        if (sandbox := settings.get("sandbox")) is not None:
            settings["sandbox"] = Supplied(sandbox, self._envs)
        if isinstance(made, Agent):
            if isinstance(chosen := settings.get("default_model"), Chosen):
                settings["default_model"] = str(chosen)
            return self._new(made, **settings)
        found = _called(made, settings)
        if not isinstance(found, Harness):
            raise InvalidValue(
                field="agents",
                problem=f"the function returned {type(found).__name__}",
                remedy="return a Harness(agent, **settings)",
            )
        return found

    @property
    def agents(self) -> list[str]:
        return sorted(self._made)

    @property
    def harnesses(self) -> list[Harness]:
        """Those that were made so far."""
        return [*self._harnesses.values()]

    def agent_key(self, name: str | None) -> str:
        if name is None and self._made:
            name = next(iter(self._made))
        for agent, known in self._keys.items():
            if name in (known, agent):
                return agent
        if name in self.adopted:
            return name
        raise UnknownAgent(agent=str(name), available=self.agents)

    def offer(self, models: Collection[str]) -> None:
        """Let clients choose among these models: references, `provider/*` or `*`. Without that,
        among those that the agent and its harness name."""
        self._listed = models

    def choices(self, agent: str | None) -> Choices:
        """What clients may choose for runs of an agent. For one that a client brings, None, they
        are the models of all agents that are served here, and those of the harness."""
        if (probe := self._probes.get(agent or "")) is not None:
            models = probe.named_models if self._listed is None else self._listed
            return Choices(probe.agent, models, probe.limits)
        limits, named = self._own
        models = named if self._listed is None else self._listed
        brought = self.adopted.get(agent or "") or Agent("agent", instructions="Help.")
        return Choices(brought, models, limits)

    @cached_property
    def _own(self) -> tuple[RunLimits, frozenset[str]]:
        """The limits of the harness, and all models that the operator names."""
        probes = [*self._probes.values()]
        limits = self._settings.get("limits") or RunLimits()
        with suppress(InvalidAgent):  # where the harness has no model of its own
            plain = self._make(Agent("agent", instructions="Help."), "memory:", "main")
            probes, limits = [*probes, plain], plain.limits
        return limits, frozenset(ref for one in probes for ref in one.named_models)

    def adopt(self, agent: Agent, tenant: str) -> None:
        """Serve one more agent, for this tenant alone, and in no list (`InvalidAgent`,
        `RateLimited`)."""
        if agent.key not in self.adopted:
            limit = self.limits.loaded_agents
            if len(self.adopted) >= limit:
                what = "loaded agents in one process"
                raise RateLimited(what=what, limit=limit, retry_after=60.0)
            self._make(agent, "memory:", "main")
            self.adopted[agent.key] = agent
        self._adopters.add((tenant, agent.key))

    def has_adopted(self, agent: str, tenant: str) -> bool:
        """Whether a tenant brought this agent."""
        return (tenant, agent) in self._adopters

    async def take_up(self, place: Place, agent: str) -> None:
        """Look for work of an agent that was adopted."""
        await self._harness(place, agent).start()

    async def drop(self, place: Place, agent: str) -> None:
        """Serve an agent no more that was adopted for sessions there."""
        harness = self._harnesses.pop((agent, id(place.store), place.tenant), None)
        self._adopters.discard((place.tenant, agent))
        others = {known for known, _, _ in self._harnesses} | {one for _, one in self._adopters}
        if agent not in others:
            self.adopted.pop(agent, None)
        if harness is not None:
            self._uses.forget(harness)
            await sessions_of(await harness.start()).aclose(0.0)  # its models are others' too

    def give(self, place: Place, id: str, envs: Mapping[str, str]) -> None:
        """Let a session's commands find these variables, as long as this process lives."""
        if self._settings.get("sandbox") is None:
            problem, remedy = "are for commands, and there is no sandbox", "leave them out"
            raise InvalidValue(field="envs", problem=problem, remedy=remedy)
        self._envs.give(Scope(place.tenant, id), envs)

    async def begin(
        self, place: Place, id: str, created: ev.SessionCreated, ids: Sequence[str]
    ) -> bool:
        agent = self._harness(place, created.agent or "").agent
        events = [NewEvent.of("session.created", created, id=ids[0], actor=created.user)]
        if start := agent.initial_state():
            events.append(NewEvent.of("state.changed", ev.StateChanged(set=start), id=ids[1]))
        try:
            where = Key(place.tenant, id, "main")
            await place.store.append(where, events, expected=0, create=True)
        except HeadMoved:
            return False
        return True

    @asynccontextmanager
    async def open(
        self, place: Place, agent: str, id: str, thread: str = "main"
    ) -> AsyncGenerator[Session, None]:
        harness = self._harness(place, agent)
        with self._uses.use(harness, id):
            yield await harness.open(id, thread)

    async def delete(self, place: Place, agent: str, id: str) -> Receipt:
        harness = await self._harness(place, agent).start()
        receipt = await harness.delete(id)
        self._uses.forget(harness, id)
        return receipt

    async def clear(self, place: Place, agent: str, id: str) -> tuple[Remains, ...]:
        """Let go of a session that is about to be removed, and remove what it has outside of the
        store's own; what remains of it."""
        harness = await self._harness(place, agent).start()
        await harness.close(id, grace=0.0, reason="delete")
        scope, sandbox = Scope(place.tenant, id), sessions_of(harness).config.sandbox
        await condemn(sandbox, scope, place.store.info().location)
        left = await cleared(sandbox, scope)
        self._uses.forget(harness, id)
        return left

    async def tidy(self) -> None:
        """Remove the work folders that deleted sessions have left."""
        for harness in self.harnesses:
            await (await harness.start()).sweep_folders()

    async def serve(self, place: Place) -> None:
        for agent in self._keys:
            await self._harness(place, agent).start()

    def _harness(self, place: Place, agent: str) -> Harness:
        name = self._keys.get(agent)
        if name is None and not self.has_adopted(agent, place.tenant):
            raise UnknownAgent(agent=agent, available=self.agents)
        known = self._harnesses.get((agent, id(place.store), place.tenant))
        if known is None:
            made = self.adopted[agent] if name is None else self._made[name]
            known = self._make(made, place.store, place.tenant)
            known.offer_models(self.choices(agent).models)
            self._harnesses[agent, id(place.store), place.tenant] = known
        return known

    async def aclose(self, grace: float = GRACE) -> None:
        await self._uses.aclose()
        harnesses = [*self._harnesses.values()]
        ends = await asyncio.gather(
            *(harness.aclose(grace) for harness in harnesses), return_exceptions=True
        )
        for error in ends:
            if isinstance(error, BaseException):
                raise error


def _called(made: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """What a function makes of the settings (`InvalidValue` names the one that it cannot take)."""
    given = for_function(made, _for_function(settings))
    name = getattr(made, "__name__", "the function")
    if refused := _refused(made, given):
        raise InvalidValue(
            field="agents",
            problem=f"{name} does not take {' and '.join(refused)}, which the server has",
            remedy=f"let it take **settings, and return Harness(agent, **settings); or leave "
            f"{'them' if len(refused) > 1 else 'it'} out of the server's settings",
        )
    try:
        return made(**given)
    except TypeError as error:
        twice = _TWICE.search(str(error))
        if twice is None or twice[1] not in given:
            raise
        raise InvalidValue(
            field="agents",
            problem=f"{name} gives {twice[1]} to the harness itself, and so does the server",
            remedy=f'leave one out, or write Harness(agent, **{{"{twice[1]}": …, **settings}}), '
            "where the server's counts",
        ) from error


_TWICE = re.compile(r"multiple values for keyword argument '(\w+)'")


def _for_function(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a function gets them. The model that is always there is no provider among
    them, since a function may have its own; where it is asked for by name, it is the model."""
    given = dict(settings)
    if isinstance(given.get("default_model"), Chosen):
        del given["default_model"]
    providers = given.get("providers")
    spare = offline().ref
    if isinstance(providers, list) and [_ref(one) for one in providers] == [spare]:
        del given["providers"]
        if given.get("default_model") == spare:
            given["default_model"] = providers[0]
    return given


def _ref(provider: Any) -> str | None:
    return provider.ref if isinstance(provider, ScriptedModel) else None


def _refused(made: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """The settings that a function has no parameter for."""
    try:
        taken = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):  # which is not to be had of every callable
        return []
    if any(one.kind is one.VAR_KEYWORD for one in taken):
        return []
    named = {one.name for one in taken if one.kind is not one.POSITIONAL_ONLY}
    return sorted(set(given) - named)
