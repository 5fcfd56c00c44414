"""The judge of agent versions: with `pin`, only the version that started a run continues it."""

from __future__ import annotations

from collections.abc import Iterator

from ...log import events as ev
from .outcome import SimulationOutcome


def pinned(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that no process continues a run that another version of the agent started, unless the
    run is being aborted. The sub-agents are the same in all versions, so any process may continue
    theirs."""
    if not outcome.scenario.pin:
        return
    versions = outcome.versions
    known = {*versions.values()}
    for key, log in outcome.whole.items():
        version, aborted = None, False
        for event, payload in log:
            if isinstance(payload, ev.RunStarted):
                version, aborted = payload.version, False
            elif isinstance(payload, ev.AbortRequested) or (
                isinstance(payload, ev.MessageReceived) and payload.how == "interrupt"
            ):
                aborted = True
            elif isinstance(payload, ev.RunResumed) and version in known and not aborted:
                process = (payload.driver or "").partition(":")[0]
                if versions.get(process) != version:
                    where = f"{key.session}/{key.thread}"
                    yield f"{where}: event {event.seq}: {process} continues a run of {version}"
