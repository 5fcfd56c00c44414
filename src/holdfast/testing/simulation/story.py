"""The timeline of a simulation: user actions, faults, replies, effects and log events, by time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...log.events import Event
from .loop import EPOCH
from .outcome import SimulationOutcome

SHOWN = 100  # characters of an event's data


def story(outcome: SimulationOutcome) -> str:
    """Return the timeline of an outcome as text, followed by its problems."""
    scenario = outcome.scenario
    lines = [
        f"seed {scenario.seed}: {scenario.processes} processes, leases of {scenario.ttl:g} s,"
        f" {len(scenario.steps)} steps, {len(scenario.faults)} faults",
        "",
    ]
    lines += [f"{at:9.3f}  {who:<14} {what}" for at, who, what in sorted(_moments(outcome))]
    lines += ["", *(f"PROBLEM {problem}" for problem in outcome.problems)]
    return "\n".join(lines)


def _moments(outcome: SimulationOutcome) -> Iterator[tuple[float, str, str]]:
    for step in outcome.scenario.steps:
        about = f"{step.action} {step.session} #{step.tag} {step.text or step.program}".rstrip()
        rest = f"{'' if step.keyed else ', no key'}{', twice' if step.twice else ''}"
        yield step.at, "user", f"{about} at p{step.place}{rest}"
    for fault in outcome.scenario.faults:
        yield fault.at, "FAULT", f"{fault.kind} at p{fault.place} ({fault.value:g})"
    for told in outcome.told:
        about = told.run or told.item or (f"event {told.seq}" if told.seq else "")
        yield told.at, "told", f"{told.action} {told.session} #{told.tag}: {told.status} {about}"
    for effect in outcome.effects:
        yield effect.at, effect.process, f"EFFECT {effect.tool} of {effect.session} ({effect.call})"
    for key, log in outcome.logs.items():
        for event in log:
            where = key.session if key.thread == "main" else f"{key.session}/{key.thread[:9]}"
            yield event.at / 1000 - EPOCH, where, f"{event.seq:4} {event.kind} {_data(event)}"


def _data(event: Event) -> str:
    text = msgspec.json.format(bytes(event.data), indent=0).decode()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
