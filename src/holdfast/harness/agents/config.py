"""The configuration of a harness. It determines the agent, the mode and the model of a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...environment import wall_clock
from ...errors import InvalidValue, ToolMissing
from ...log.events import Key
from ...log.state import State
from ...models.port import Model
from ...models.registry import Models, is_listed
from ...redact import Redactor
from ...values.budgets import Budget
from ..faults import ErrorPolicy
from ..sandbox.port import Sandbox
from ..telemetry.logs import BoundLog
from ..telemetry.spans import Tracing
from .agent import DELEGATION, Agent, Mode
from .limits import RunBounds
from .subagents import agent_of_thread, models_of

PARALLEL = 10  # concurrent tool calls in one run
RECOVERING = 200  # logs without a driver that are recovered concurrently
CALLS = 64  # tool calls in one message of a model; the rest are rejected
ANSWER = 4 << 20  # characters of one answer of a model: text, reasoning and calls together
CONTEXT = 4 << 20  # characters sent to a model in addition to the conversation

Price = Callable[[str, Mapping[str, int]], "float | None"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of one harness. `owner` identifies the harness in leases and runs; `ttl` is the
    duration of a lease in seconds. `offered` lists the models that clients of a server may choose,
    including models for sub-agents; None means all models. The program itself may always choose any
    model."""

    agent: Agent
    models: Models
    default_model: str | None
    fallbacks: tuple[str, ...]
    sandbox: Sandbox
    resources: Any
    policy: ErrorPolicy
    bounds: RunBounds
    log: BoundLog
    redactor: Redactor
    tracing: Tracing
    owner: str
    ttl: float
    parallel: int = PARALLEL
    recovering: int = RECOVERING
    price: Price | None = None
    summarise: Callable[..., Any] | str | None = None
    result_limit: int | None = None
    budgets: tuple[Budget, ...] = ()
    versions: Literal["float", "warn", "pin"] = "float"
    offered: Collection[str] | None = None
    clock: Callable[[Key], int] = lambda key: wall_clock()  # the time of a log, in ms

    def of(self, key: Key, state: State) -> Config:
        """Return the settings with the agent that works in this thread, which may be a sub-agent.
        Raises `ToolMissing` if that agent is no longer declared."""
        if state.sub is None:
            return self
        agent = agent_of_thread(self.agent, state.sub)
        if agent is None:
            raise ToolMissing(session=key.session, agent=state.sub.agent, tool=DELEGATION)
        return replace(self, agent=agent)

    def another(self, state: State) -> bool:
        """Return whether another version of the agent started the active run. A run that does not
        know its version may be of any."""
        run = state.active
        return run is not None and run.version not in (None, self.agent.version)

    def pinned(self, state: State) -> bool:
        """Return whether the active run is left to processes with another version of the agent. Any
        version may end a run that is being aborted."""
        return self.versions == "pin" and state.abort is None and self.another(state)

    @property
    def named(self) -> frozenset[str]:
        """The models that the agent, its modes, its sub-agents and the harness use."""
        refs = (self.default_model, *self.fallbacks, *models_of(self.agent))
        return frozenset(filter(None, refs))

    def mode(self, state: State) -> Mode:
        return self.agent.mode(state.mode)

    def model_ref(self, state: State, run: str | None = None) -> str | None:
        """Return the reference of the model for the next call: the model that the run, the thread
        or the mode sets, else the agent's model, else the default model of the harness."""
        mode, default = self.mode(state), self.agent.model or self.default_model
        return state.next_model(mode.name, mode.model, default, run)

    def chosen(self, state: State, mode: str | None = None) -> str | None:
        """Return the model that this thread sets for a mode (default: the current mode), or
        None."""
        current = self.mode(state).name
        first = state.mode is None and mode in (None, current)
        return state.models.get("" if first else mode or current)

    def model(self, ref: str) -> Model:
        return self.models.resolve(ref)


def check_offered(ref: str, offered: Collection[str] | None, field: str = "model") -> None:
    """Raise `InvalidValue` if a model is not in `offered`. If `offered` is None, every model is
    allowed."""
    if offered is not None and not is_listed(ref, offered):
        raise InvalidValue(
            field=field,
            problem=f"{ref[:200]!r} is not one of the allowed models",
            remedy=f"choose one of {', '.join(sorted(offered)) or 'none'}",
        )
