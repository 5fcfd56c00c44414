"""What a harness is made of, handed to everything that works for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from ..codec import LIMITS
from ..events import Key
from ..models.port import Model
from ..models.registry import Models
from ..redact import Redactor
from ..state import State
from ..store import Store
from .agent import Agent, Mode
from .faults import ErrorPolicy
from .logs import Log
from .sandbox.port import Place, Sandbox
from .spans import Tracing
from .steps import Bounds

PARALLEL = 10  # tools at once, in one run
CALLS = 64  # that one message of a model may hold; the rest are refused

Price = Callable[[str, Mapping[str, int]], "float | None"]


@dataclass(kw_only=True)
class Config:
    """One harness. `owner` names it in leases and runs; `ttl` is how long a lease lasts."""

    agent: Agent
    store: Store
    models: Models
    default_model: str | None
    fallbacks: tuple[str, ...]
    sandbox: Sandbox
    resources: Any
    policy: ErrorPolicy
    bounds: Bounds
    log: Log
    redactor: Redactor
    tracing: Tracing
    owner: str
    ttl: float
    parallel: int = PARALLEL
    price: Price | None = None
    summarise: Callable[..., Any] | str | None = None
    outputs: dict[tuple[str, int], Any] = field(default_factory=dict)  # by log and message
    places: dict[Key, Place] = field(default_factory=dict)
    opening: WeakValueDictionary[Key, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def mode(self, state: State) -> Mode:
        return self.agent.mode(state.mode)

    def model_ref(self, state: State, run: str | None = None) -> str | None:
        """Which model speaks next: the run's, the session's, the mode's, the agent's, ours."""
        chosen = (run, state.model, self.mode(state).model, self.agent.model, self.default_model)
        return next((ref for ref in chosen if ref), None)

    def model(self, ref: str) -> Model:
        return self.models.resolve(ref)

    async def place(self, key: Key) -> Place:
        """The sandbox of a session, opened at its first use and kept while it is live."""
        key = Key(key.tenant, key.session, "main")
        turn = self.opening.setdefault(key, asyncio.Lock())
        async with turn:
            if key not in self.places:
                self.places[key] = await self.sandbox.open(
                    key, agent=self.agent.key, resources=self.resources
                )
            return self.places[key]


STATE_BYTES = LIMITS.map_bytes
