"""The models and limits that clients may choose for the runs of an agent: one of the offered
models, and limits that do not exceed the operator's limits. Programs that use the harness directly
are not restricted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET

from ..bundle.archive import Bundle
from ..errors import InvalidValue
from ..harness import (
    Agent,
    Mode,
    Session,
    check_offered,
    core_of,
    regeneration_of,
    steps_of,
    subagent_model_key,
)
from ..log import events as ev
from ..log.codec import typed
from ..log.state import State
from ..values.options import STEPS, RunLimits
from .uploads.manifest import AgentManifest

NAMES = ("steps", "tokens", "cost", "seconds")


class Choices(NamedTuple):
    """What clients may choose for the runs of an agent: `models` by reference, `provider/*` or `*`,
    and limits for each run that do not exceed `limits`. If a mode sets its own number of steps,
    that number takes precedence over `limits`."""

    agent: Agent
    models: Collection[str]
    limits: RunLimits

    @classmethod
    def of(cls, session: Session, models: Collection[str] | None = None) -> Choices:
        """Return the choices for a session. Uses the server's list of models if the harness has
        none."""
        config = core_of(session).host.config
        offered = next(one for one in (config.offered, models, config.named) if one is not None)
        return cls(core_of(session).config.agent, offered, config.bounds.limits)

    def check_model(self, ref: str, field: str = "model") -> None:
        """Reject a model that is not offered."""
        check_offered(ref, self.models, field)

    def check_limits(
        self, given: Mapping[str, float], mode: Mode | None = None, field: str = "limits"
    ) -> None:
        """Reject limits that exceed the operator's limits, for one mode or for all modes."""
        for name, value in given.items():
            most = self._most(name, mode)
            if most is not None and value > most:
                raise InvalidValue(
                    field=f"{field}.{name}",
                    problem=f"{value} exceeds the server's limit of {most}",
                    remedy=f"pass at most {most}, or omit it",
                    limit=most,
                )

    def _most(self, name: str, mode: Mode | None) -> float | None:
        most: float | None = getattr(self.limits, name, None)
        if name != "steps":
            return most
        most = STEPS if self.limits.steps is UNSET else most
        if mode is not None:
            return most if mode.steps is None else mode.steps
        return None if most is None else max(most, *steps_of(self.agent), 0)

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Reject metadata that sets a model for sub-agents that is not offered."""
        every = subagent_model_key(None)
        for name, value in metadata.items():
            if (name == every or name.startswith(f"{every}.")) and isinstance(value, str):
                self.check_model(value, f"metadata.{name[:100]}")

    def check_message(
        self, message: ev.MessageReceived, mode: Mode | None = None, where: str = ""
    ) -> None:
        """Reject a message with a model or limits that are not allowed."""
        if message.model is not None:
            self.check_model(message.model, f"{where}model")
        self.check_limits(message.limits, mode, f"{where}limits")

    # An uploaded agent

    def check_described(self, wanted: AgentManifest, final: AgentManifest) -> None:
        """Reject an uploaded agent that uses a model that is not offered, or more steps than
        allowed. Changes that the operator's `harden` made, from `wanted` to `final`, are
        allowed."""
        for field, ref in _models_of(final):
            if ref is not None and (field, ref) in _models_of(wanted):
                self.check_model(ref, field)
        steps = {mode.name: mode.steps for mode in wanted.modes}
        for n, mode in enumerate(final.modes):
            if mode.steps is not None and steps.get(mode.name) == mode.steps:
                self.check_limits({"steps": mode.steps}, field=f"modes[{n}]")

    # An imported session

    def check_bundle(self, bundle: Bundle, states: Mapping[str, State]) -> None:
        """Reject a bundle that would continue with models or limits that are not allowed. Finished
        runs in it are not checked."""
        for thread, state in states.items():
            where = f"threads[{thread[:100]!r}]."
            for ref in {state.model, *state.models.values()} - {None}:
                self.check_model(str(ref), f"{where}model")
            self.check_metadata(state.settings)
            if (run := state.active) is not None:
                asked = ev.MessageReceived(text="", model=run.model, limits=dict(run.limits))
                self.check_message(asked, where=where)
            for message in _queued(bundle, thread, state):
                self.check_message(message, where=where)


async def check_again(session: Session, seq: int, choices: Choices) -> None:
    """Check before a message is regenerated: reject a message with a model or limits that are not
    allowed."""
    core = core_of(session)
    plan = await regeneration_of(core.live, seq)
    for one in plan.asked:
        choices.check_message(one.message, core.config.mode(core.live.state))


def _models_of(described: AgentManifest) -> list[tuple[str, str | None]]:
    modes = [(f"modes[{n}].model", mode.model) for n, mode in enumerate(described.modes)]
    return [("model", described.model), *modes]


def _queued(bundle: Bundle, thread: str, state: State) -> Iterable[ev.MessageReceived]:
    waiting = {item.seq for item in state.queue}
    for event in bundle.events(thread) if waiting else ():
        if event.seq in waiting and isinstance(message := typed(event), ev.MessageReceived):
            yield message
