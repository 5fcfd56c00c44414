"""Converts the arguments of a harness to its configuration. The agent, the models and the settings
are validated here, and all errors are reported together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import HoldfastError, InvalidAgent, InvalidValue
from ..models import registry
from ..values.options import RunLimits
from .agents import settings
from .agents.agent import Agent, faults
from .agents.limits import RunBounds
from .agents.subagents import family, models_of
from .faults import ErrorPolicy
from .loop.typed_output import output_tool
from .sandbox import NoSandbox
from .telemetry.spans import tracing


def prepare(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Config` for the settings of a harness. Raises `InvalidAgent` with
    every error that was found."""
    default, providers = given["default_model"], given["providers"]
    sources: list[Any] = [*providers] if isinstance(providers, (list, tuple)) else []
    if default is not None and not isinstance(default, str):
        sources.append(default)
        default = getattr(default, "ref", None)
    wrong = settings.faults(given)
    named = [] if wrong else [*given["fallback_models"], *_summariser(given["summarise"])]
    _check(given["agent"], sources, [default, *named], wrong)
    return {
        "models": registry.Models(sources),
        "default_model": default,
        "fallbacks": tuple(given["fallback_models"]),
        "sandbox": given["sandbox"] or NoSandbox(),
        "resources": given["resources"],
        "policy": given["error_policy"] or ErrorPolicy(),
        "bounds": _bounds(given),
        "tracing": tracing(given["trace"]),
        "ttl": given["ttl"],
        "parallel": given["parallel_tools"],
        "recovering": given["parallel_recovery"],
        "price": given["price"],
        "summarise": given["summarise"],
        "result_limit": given["result_limit"],
        "budgets": tuple(given["budgets"]),
        "versions": given["versions"],
    }


def _bounds(given: Mapping[str, Any]) -> RunBounds:
    return RunBounds(
        limits=given["limits"] or RunLimits(),
        tokens=given["window_tokens"],
        turns=given["window_turns"],
        crashes=given["crashes"],
        recovery="close" if given["recovery"] == "close" else "resume",
    )


def _summariser(summarise: Any) -> list[str]:
    """Return the reference of the model that summarises, if one is set."""
    return [summarise] if isinstance(summarise, str) and "/" in summarise else []


def _check(
    agent: Any, sources: Sequence[Any], refs: Sequence[str | None], wrong: Sequence[str] = ()
) -> None:
    """Reject an invalid agent, model or setting; the error lists all faults."""
    if not isinstance(agent, Agent):
        problem = f"is {type(agent).__name__}"
        raise InvalidValue(field="agent", problem=problem, remedy="pass an Agent")
    found = [*faults(agent)]
    for each in _family(agent, found):
        found.extend(_types(each))
    found.extend(registry.faults(sources))
    found.extend(wrong)
    wanted = [*refs, *(sorted(models_of(agent)) if not found else ())]
    if not found:
        models = registry.Models(sources)
        for ref in dict.fromkeys(filter(None, wanted)):
            try:
                models.check(ref)
            except HoldfastError as error:
                found.append(str(error))
        if not any((refs[0], agent.model)) and not all(mode.model for mode in agent.modes):
            found.append("no model is set: pass default_model to the harness")
    if found:
        raise InvalidAgent(agent=agent.key, faults=found)


def _family(agent: Agent, found: Sequence[str]) -> list[Agent]:
    """Return the agent and, if they are valid, its sub-agents."""
    return [agent] if found else [*family(agent).values()]


def _types(agent: Agent) -> Iterable[str]:
    """Return the errors in the types that an agent declares."""
    answer = {} if agent.output_type is None else {"the output type": agent.output_type}
    for what, kind in {**answer, **{f"event {k!r}": t for k, t in agent.events.items()}}.items():
        try:
            output_tool(kind)
        except HoldfastError as error:
            yield f"{what}: {error}"
