"""Finds the agent and the model that a command line names, and creates their harness."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from ..errors import HoldfastError, InvalidValue
from ..harness import Agent, Harness, Reading, ToolContext, context, settings_for, tool
from ..log.catalog import Row
from ..models.scripted import offline
from ..stores.port import Store

OFFLINE = "scripted/offline"
# Each vendor's environment variables for its API key, and its default model.
KEYS: dict[str, tuple[tuple[str, ...], str]] = {
    "anthropic": (("ANTHROPIC_API_KEY",), "claude-sonnet-4-5"),
    "openai": (("OPENAI_API_KEY",), "gpt-5.1"),
    "google": (("GOOGLE_API_KEY", "GEMINI_API_KEY"), "gemini-2.5-pro"),
}

Name: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Agent, as module:name; the current folder is on the import path. A function that "
        "takes **settings and returns a Harness works too."
    ),
]
ModelRef: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Model, as provider/name. Default: $HOLDFAST_MODEL, else the agent's model, else a "
        "model of a vendor whose key is set."
    ),
]
Made: TypeAlias = Agent | Callable[..., Harness]


@tool(approval="ask", risk="write")
async def remember(note: str, context: ToolContext) -> str:
    """Keep a note for the rest of this conversation.

    Args:
        note: What to keep.
    """
    notes = [*context.state.get("notes", []), note]
    await context.update_state(notes=notes)
    return f"kept: {note}"


@context
def notes(reading: Reading) -> str | None:
    kept = reading.state.get("notes", [])
    return "\n".join(["Notes:", *(f"- {note}" for note in kept)]) if kept else None


BUILT_IN = Agent(
    "Holdfast chat",
    instructions="You are a helpful assistant in a terminal. Be short and plain.",
    tools=[remember],
    contexts=[notes],
)


@dataclass(frozen=True)
class Choice:
    """The model to use. `ref` is sent with every message; `default` is used if neither a message
    nor the agent selects a model; `offline` is the reason why the offline model is used instead of
    a vendor's.
    """

    ref: str | None = None
    default: str | None = None
    offline: str | None = None


def find(name: str) -> Made:
    """Import the agent at `module:name`, or the function that creates its harness. Raises
    `InvalidValue` if neither is found.
    """
    module_name, colon, attribute = name.partition(":")
    if not (colon and module_name and attribute):
        raise _no_agent(f"must be module:name, got {name!r}", "write it like shop.agents:support")
    module = _module(module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(module).items() if isinstance(value, Agent)]
            there = f"its agents: {', '.join(known)}" if known else "the module defines no Agent"
            raise _no_agent(f"module {module_name!r} has no {attribute!r}", there)
        found = getattr(found, part)
    if not isinstance(found, Agent) and (isinstance(found, type) or not callable(found)):
        what = f"{name!r} is {'a class' if isinstance(found, type) else type(found).__name__}"
        raise _no_agent(what, "pass an Agent, or a function that returns a Harness")
    return found


def _module(name: str) -> ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            remedy = "run the command in your program's folder, or install it"
            if name.endswith(".py"):
                remedy = f"write the module without .py: {name.removesuffix('.py')}"
            raise _no_agent(f"module {name!r} does not exist", remedy) from error
        raise _broken(f"{name!r} cannot be imported", error) from error
    except Exception as error:  # the user's code may raise anything
        raise _broken(f"{name!r} cannot be imported", error) from error


def _broken(problem: str, error: Exception) -> InvalidValue:
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{problem} ({type(error).__name__}: {error})"
    return _no_agent(said, f"see {place.filename}, line {place.lineno}")


def _no_agent(problem: str, remedy: str) -> InvalidValue:
    return InvalidValue(field="agent", problem=problem, remedy=remedy)


def choose(made: Made, model: str | None, environ: Mapping[str, str] = os.environ) -> Choice:
    """Choose the model of an agent. A model that the user chose explicitly is always used.
    Otherwise the offline model is used if there is no key."""
    if ref := model or environ.get("HOLDFAST_MODEL"):
        return Choice(ref, ref)
    if not isinstance(made, Agent):
        return Choice()
    own: Any = made.model or made.mode(None).model
    if own is not None and not isinstance(own, str):
        return Choice()  # the harness says what is wrong with it
    if own is not None:
        missing = _missing_key(own, environ)
        return Choice(OFFLINE, OFFLINE, f"{missing} is not set") if missing else Choice()
    for vendor, (names, default) in KEYS.items():
        if any(environ.get(name) for name in names) and find_spec("pydantic_ai") is not None:
            return Choice(default=f"{vendor}/{default}")
    return Choice(default=OFFLINE, offline="no model is selected and no API key is set")


def _missing_key(ref: str, environ: Mapping[str, str]) -> str | None:
    names, _ = KEYS.get(ref.partition("/")[0], ((), ""))
    return names[0] if names and not any(environ.get(name) for name in names) else None


def harness_of(made: Made, choice: Choice, store: Store, tenant: str, **more: Any) -> Harness:
    """Create a harness on this store. All invalid settings are reported in one error."""
    settings = {"store": store, "tenant": tenant, **more}
    if isinstance(made, Agent):
        default = choice.default
        return Harness(made, default_model=default, providers=[offline()], **settings)
    if choice.default is not None:
        settings["default_model"] = choice.default
    try:
        found = made(**settings_for(made, settings))
    except HoldfastError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise _broken("the harness cannot be created", error) from error
    if not isinstance(found, Harness):
        raise _no_agent(f"the function returned {type(found).__name__}", "return a Harness")
    return found


def check_owner(row: Row | None, agent: Agent) -> None:
    """Raise `InvalidValue` if the session belongs to another agent."""
    if row is not None and row.agent not in (None, agent.key):
        raise _no_agent(
            f"session {row.session!r} belongs to agent {row.agent!r}, not to {agent.key!r}",
            "pass its agent with --agent module:name",
        )
