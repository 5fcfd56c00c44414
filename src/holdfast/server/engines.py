"""Engines run the sessions of agents. A server has one or more engines, each with a name;
`HoldfastEngine` uses the harness.

An engine opens sessions, keeps them open while they are used, and closes idle sessions. Closing a
session loses nothing, since all its data is in its log.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from ..errors import HeadMoved, InvalidAgent, InvalidValue, RateLimited, UnknownAgent
from ..harness import (
    GRACE,
    Agent,
    Harness,
    Session,
    clear_sandbox,
    mark_for_removal,
    sessions_of,
    settings_for,
)
from ..log import events as ev
from ..log.events import Key, NewEvent, Scope
from ..models.scripted import ScriptedModel, offline
from ..stores.port import Store
from ..values.options import RunLimits
from ..values.records import Receipt, Remains
from .auth.limits import ServerLimits
from .placement.open_sessions import SessionsInUse
from .run_choices import Choices
from .uploads.variables import SessionVariables, VariablesSandbox

Made: TypeAlias = "Agent | Callable[..., Harness]"


class Chosen(str):
    """The name of a default model that was chosen automatically, not by the user. It is not passed
    to functions that create a harness."""

    __slots__ = ()


@dataclass(frozen=True)
class TenantStore:
    """A store, its kind, and the tenant whose sessions are accessed.

    See [the server](../server.md).
    """

    tenant: str
    kind: str
    store: Store


class Engine(Protocol):
    """Runs the sessions of its agents. The server creates, opens, resumes and deletes sessions
    through this interface.

    See [the server](../server.md).
    """

    @property
    def agents(self) -> list[str]:
        """The names of the engine's agents."""
        ...

    def agent_key(self, name: str | None) -> str:
        """Return the key by which rows identify an agent; None means the first agent. Raises
        `UnknownAgent`."""
        ...

    async def begin(
        self, place: TenantStore, id: str, created: ev.SessionCreated, ids: Sequence[str]
    ) -> bool:
        """Create a session; `ids` are the ids of its first events. Returns False if another process
        has created it. Repeating the call with the same ids has no effect."""
        ...

    def open(
        self, place: TenantStore, agent: str, id: str, thread: str = "main"
    ) -> AbstractAsyncContextManager[Session]:
        """Context manager that keeps a session of the agent with this key open. Raises
        `SessionNotFound`."""
        ...

    async def delete(self, place: TenantStore, agent: str, id: str) -> Receipt:
        """Abort the runs of a session, then delete the session."""
        ...

    async def serve(self, place: TenantStore) -> None:
        """Resume unfinished runs in this store, now and periodically."""
        ...

    async def aclose(self, grace: float = GRACE) -> None:
        """Hand over unfinished runs to other processes, and close all sessions."""
        ...


class Serving(NamedTuple):
    """An engine and the agent that it serves: the name of the engine, the engine, and the agent's
    key."""

    name: str
    engine: Engine
    agent: str


def serving(engines: Mapping[str, Engine], agent: str | None, tenant: str | None = None) -> Serving:
    """Return the engine that serves an agent. Raises `UnknownAgent`. If `tenant` is set, an
    uploaded agent is found only if this tenant uploaded it."""
    for name, engine in engines.items():
        with suppress(UnknownAgent):
            key, known = engine.agent_key(agent), cast(Any, engine)
            if tenant is None or not is_uploaded(engine, key) or known.has_adopted(key, tenant):
                return Serving(name, engine, key)
    available = sorted({agent for one in engines.values() for agent in one.agents})
    raise UnknownAgent(agent=agent or "", available=available)


def is_uploaded(engine: Engine, agent: str) -> bool:
    """Return whether this agent of an engine was uploaded by a client."""
    return agent in getattr(engine, "adopted", ())


class HoldfastEngine:
    """An engine that uses the harness: one `Harness` for each agent, store and tenant, created when
    first used.

    `agents` maps public names to agents, or to functions that take `store`, `tenant` and the
    settings and return a `Harness`. `settings` are the settings of the harness. Raises
    `InvalidValue` for a setting that a function does not accept. `run_limits` are the limits of
    each run, which clients may not exceed.

    See [the server](../server.md).
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
        self._envs = SessionVariables()
        self.adopted: dict[str, Agent] = {}
        self._adopters: set[tuple[str, str]] = set()  # tenants, and the agents they uploaded
        self.limits = limits or ServerLimits()
        self._harnesses: dict[tuple[str, int, str], Harness] = {}
        self._keys: dict[str, str] = {}  # the name of each agent, by its key
        for name, made in self._made.items():
            probe = self._make(made, "memory:", "main")  # raises an error if the agent is invalid
            key = probe.agent.key
            if key in self._keys:
                raise InvalidValue(
                    field="agents",
                    problem=f"{self._keys[key]!r} and {name!r} have the same agent key {key!r}",
                    remedy="serve only one, or rename one with Agent(NAME, …)",
                )
            self._keys[key], self._probes[key] = name, probe
        self._uses = SessionsInUse(self.limits)

    def _make(self, made: Made, store: Store | str, tenant: str) -> Harness:
        settings = {**self._settings, "store": store, "tenant": tenant}
        if (sandbox := settings.get("sandbox")) is not None:
            settings["sandbox"] = VariablesSandbox(sandbox, self._envs)
        if isinstance(made, Agent):
            if isinstance(chosen := settings.get("default_model"), Chosen):
                settings["default_model"] = str(chosen)
            return self._new(made, **settings)
        found = _called(made, settings)
        if not isinstance(found, Harness):
            raise InvalidValue(
                field="agents",
                problem=f"the function returned {type(found).__name__}, not a Harness",
                remedy="return a Harness(agent, **settings)",
            )
        return found

    @property
    def agents(self) -> list[str]:
        return sorted(self._made)

    @property
    def harnesses(self) -> list[Harness]:
        """The harnesses created so far."""
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
        """Set the models that clients may choose: references, `provider/*` or `*`. By default,
        these are the models that the agent and its harness use."""
        self._listed = models

    def choices(self, agent: str | None) -> Choices:
        """Return the models and limits that clients may choose for the runs of an agent. If `agent`
        is None, which stands for a new upload, all models of the server's agents and of the harness
        are available."""
        if (probe := self._probes.get(agent or "")) is not None:
            models = probe.named_models if self._listed is None else self._listed
            return Choices(probe.agent, models, probe.limits)
        limits, named = self._own
        models = named if self._listed is None else self._listed
        brought = self.adopted.get(agent or "") or Agent("agent", instructions="Help.")
        return Choices(brought, models, limits)

    @cached_property
    def _own(self) -> tuple[RunLimits, frozenset[str]]:
        """The limits of the harness, and all models that the operator has configured."""
        probes = [*self._probes.values()]
        limits = self._settings.get("limits") or RunLimits()
        with suppress(InvalidAgent):  # if the harness has no model of its own
            plain = self._make(Agent("agent", instructions="Help."), "memory:", "main")
            probes, limits = [*probes, plain], plain.limits
        return limits, frozenset(ref for one in probes for ref in one.named_models)

    def adopt(self, agent: Agent, tenant: str) -> None:
        """Serve an agent that a client uploaded. Only this tenant can use it, and it is not listed.
        Raises `InvalidAgent` or `RateLimited`."""
        if agent.key not in self.adopted:
            limit = self.limits.loaded_agents
            if len(self.adopted) >= limit:
                raise RateLimited(
                    what="loaded agents in one process", limit=limit, retry_after=60.0
                )
            self._make(agent, "memory:", "main")
            self.adopted[agent.key] = agent
        self._adopters.add((tenant, agent.key))

    def has_adopted(self, agent: str, tenant: str) -> bool:
        """Return whether a tenant has uploaded this agent."""
        return (tenant, agent) in self._adopters

    async def take_up(self, place: TenantStore, agent: str) -> None:
        """Search for unfinished runs of an uploaded agent, and resume them."""
        await self._harness(place, agent).start()

    async def drop(self, place: TenantStore, agent: str) -> None:
        """Stop serving an uploaded agent in this store."""
        harness = self._harnesses.pop((agent, id(place.store), place.tenant), None)
        self._adopters.discard((place.tenant, agent))
        others = {known for known, _, _ in self._harnesses} | {one for _, one in self._adopters}
        if agent not in others:
            self.adopted.pop(agent, None)
        if harness is not None:
            self._uses.forget(harness)
            # Keeps the models open, because other harnesses share them.
            await sessions_of(await harness.start()).aclose(0.0)

    def give(self, place: TenantStore, id: str, envs: Mapping[str, str]) -> None:
        """Set environment variables for the commands of a session. They are kept in the memory of
        this process."""
        if self._settings.get("sandbox") is None:
            raise InvalidValue(
                field="envs",
                problem="cannot be set, because this server has no sandbox in which commands run",
                remedy="omit them",
            )
        self._envs.give(Scope(place.tenant, id), envs)

    async def begin(
        self, place: TenantStore, id: str, created: ev.SessionCreated, ids: Sequence[str]
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
        self, place: TenantStore, agent: str, id: str, thread: str = "main"
    ) -> AsyncGenerator[Session, None]:
        harness = self._harness(place, agent)
        with self._uses.use(harness, id):
            yield await harness.open(id, thread)

    async def delete(self, place: TenantStore, agent: str, id: str) -> Receipt:
        harness = await self._harness(place, agent).start()
        receipt = await harness.delete(id)
        self._uses.forget(harness, id)
        return receipt

    async def clear(self, place: TenantStore, agent: str, id: str) -> tuple[Remains, ...]:
        """Close a session that is about to be deleted, and delete its data that is not in the
        store, such as its work folder. Returns the data that could not be deleted."""
        harness = await self._harness(place, agent).start()
        await harness.close(id, grace=0.0, reason="delete")
        scope, sandbox = Scope(place.tenant, id), sessions_of(harness).config.sandbox
        await mark_for_removal(sandbox, scope, place.store.info().location)
        left = await clear_sandbox(sandbox, scope)
        self._uses.forget(harness, id)
        return left

    async def tidy(self) -> None:
        """Remove the work folders of deleted sessions."""
        for harness in self.harnesses:
            await (await harness.start()).sweep_folders()

    async def serve(self, place: TenantStore) -> None:
        for agent in self._keys:
            await self._harness(place, agent).start()

    def _harness(self, place: TenantStore, agent: str) -> Harness:
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
    """Call a function that creates a harness. Raises `InvalidValue` if it does not accept one of
    the settings, or sets one of them itself."""
    given = settings_for(made, _for_function(settings))
    name = getattr(made, "__name__", "the function")
    if refused := _refused(made, given):
        raise InvalidValue(
            field="agents",
            problem=f"{name} does not accept {' and '.join(refused)}, which the server sets",
            remedy=f"add a parameter **settings, and return Harness(agent, **settings); or remove "
            f""
            f"{'them' if len(refused) > 1 else 'it'} from the server's "
            f"settings",
        )
    try:
        return made(**given)
    except TypeError as error:
        twice = _TWICE.search(str(error))
        if twice is None or twice[1] not in given:
            raise
        raise InvalidValue(
            field="agents",
            problem=f"{name} and the server both set {twice[1]}",
            remedy="remove one of them, or to prefer the server's, write "
            f'Harness(agent, **{{"{twice[1]}": …, **settings}})',
        ) from error


_TWICE = re.compile(r"multiple values for keyword argument '(\w+)'")


def _for_function(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings to pass to a function that creates a harness. The offline model is
    omitted from `providers`, because the function may have its own. If the offline model is the
    configured default model, it is passed as `default_model`."""
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
    """Return the settings for which a function has no parameter."""
    try:
        taken = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):  # some callables have no signature
        return []
    if any(one.kind is one.VAR_KEYWORD for one in taken):
        return []
    named = {one.name for one in taken if one.kind is not one.POSITIONAL_ONLY}
    return sorted(set(given) - named)
