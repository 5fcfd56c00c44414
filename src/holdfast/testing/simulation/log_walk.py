"""A walk through a log, event by event: whether every prefix can be folded, decided on and put into
a prompt, and when the log needed a driver. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...harness import History, RunBounds, decide
from ...log import events as ev
from ...log.conversation import REWOUND, conversation
from ...log.events import Event, Key
from ...log.state import State, fold
from ...models.port import FromTools, ModelCall, PromptMessage
from ...models.scripted import check_prompt
from .outcome import SimulationOutcome

Log = list[tuple[Event, Any]]

BOUNDS = RunBounds()
NO_RESULT = "There is no result yet."  # the result of an open call in a prompt
RESTING = ("Idle", "SetDue")  # steps for which a log needs no driver


class Need(NamedTuple):
    """An event after which a log needed a driver, and the time (ms) at which it got one or no
    longer needed one.
    """

    event: Event
    until: int | None


class Walk(NamedTuple):
    """The results of `_walk` for one log: when the log needed a driver, and the first problem that
    was found, if any.
    """

    needs: list[Need]
    problem: str | None


def walked(outcome: SimulationOutcome) -> dict[Key, Walk]:
    """Return the result of `_walk` for each log that starts with event 1. Results are cached in the
    outcome.
    """
    kept: dict[Key, Walk] | None = vars(outcome).get("walks")
    if kept is None:
        kept = {key: _walk(log) for key, log in outcome.whole.items()}
        vars(outcome)["walks"] = kept
    return kept


def _walk(log: Log) -> Walk:
    state, history = State(), History()
    needs: list[Need] = []
    since: Event | None = None
    for number, (event, payload) in enumerate(log, 1):
        try:
            before, state = state, fold((event,), state)
            step = decide(state, BOUNDS, event.at)
            history.add(event)
            if isinstance(payload, ev.ThreadRewound):
                kept = conversation([event for event, _ in log[:number]])
                history = History()
                history.extend(kept, state)
                if (wrong := _wrong_rewind(before, state, kept)) is not None:
                    return Walk(needs, f"rewind {event.seq}: {wrong}")
            if event.kind == "model.called":
                messages = history.messages("simulated/model", {})
                check_prompt(ModelCall(model="model", messages=tuple(messages)))
                if not state.calls and any(_unfinished(message) for message in messages):
                    return Walk(
                        needs, f"the prompt of event {event.seq} lacks the result of a call"
                    )
        except Exception as error:
            return Walk(
                needs,
                f"the log up to event {event.seq} ({event.kind}) cannot be processed: {error!r}",
            )
        free = state.active is None or state.active.status == "waiting"
        if free and type(step).__name__ not in RESTING:
            since = since or event
        elif since is not None:
            needs.append(Need(since, event.at))
            since = None
    if since is not None:
        needs.append(Need(since, None))
    return Walk(needs, None)


def _wrong_rewind(before: State, after: State, kept: list[Event]) -> str | None:
    """Return what is wrong with a rewind that kept these events, or None."""
    if before.active is not None or before.pending:
        return "a run or an item was open"
    then = fold(event for event in kept if event.kind != REWOUND)
    if after.window != then.window:
        return f"the context window is {after.window} instead of {then.window}"
    left = {item.seq for item in after.queue} - {event.seq for event in kept}
    return f"the queue has {sorted(left)}, which the rewind should have removed" if left else None


def _unfinished(message: PromptMessage) -> bool:
    """Return whether a message of a prompt contains a call without a result."""
    results = message.results if isinstance(message, FromTools) else ()
    return any(result.content == NO_RESULT for result in results)
