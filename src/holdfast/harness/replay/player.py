"""Replays each recorded log with the harness's run loop, in memory and without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from ...log.codec import typed
from ...log.events import Key
from ...log.state import fold
from ...models.port import Model
from ..agents.agent import Agent
from ..agents.config import Config
from ..agents.runtime import HarnessRuntime
from ..agents.subagents import agent_of_thread
from ..live.log import Live
from ..live.open_logs import OpenLogs
from ..loop.run_loop import drive
from ..sandbox import NoSandbox
from ..telemetry.logs import LogConfig
from ..telemetry.spans import tracing
from .agents import quiet, rebuilt
from .comparison import ComparisonTerms
from .inputs import RecordedInputs
from .outcomes import typed as typed_answers
from .recorded_config import bounds, clock, driver, model, models
from .recorded_models import POLICY, RecordedModels
from .recorded_tools import RecordedTools, final, swapped_tools
from .recording import Recording
from .report import RedactionMode, Replayed
from .store import ReplayPlan, ReplayStore
from .track import Track

PATIENCE = 10.0  # seconds without progress, while no function of the program runs


async def play(
    recording: Recording,
    agent: Agent | None,
    *,
    from_step: int | None,
    model: Model | None,
    tools: Mapping[str, Any],
    resources: Any,
    ignore: Collection[str],
) -> Replayed:
    """Replay a recording with `agent`, or with an agent built from the log. Starting with model
    call `from_step`, `model` answers and the functions in `tools` are called."""
    swapped = swapped_tools(tools)
    if from_step is None and (swapped or model is not None):
        from_step = 1
    whole, hidden = agent is not None, recording.mode != "local"
    plan = ReplayPlan(
        from_step=from_step,
        terms=ComparisonTerms(whole=whole, masked=hidden, bare=recording.mode == "replay_only"),
        ignore=frozenset([*ignore, *recording.unreadable()]),
    )
    tracks = {
        key: Track(key, events, start=start, whole=whole, masked=hidden, ignore=plan.ignore)
        for key, (events, start) in recording.threads.items()
    }
    stage = ReplayStore(tracks, plan, recording.blob)
    player = _Player(stage, agent, model, swapped, resources)
    try:
        await player.all()
    finally:
        await player.aclose()
    if recording.erased and stage.notes.stopped == "end":
        stage.notes.stopped = "erased"
    return await _report(stage, recording.mode)


class _Player:
    """Replays the logs of one session one after the other. The log of a sub-agent is replayed when
    its parent waits for it."""

    def __init__(
        self,
        stage: ReplayStore,
        agent: Agent | None,
        model: Model | None,
        tools: Mapping[str, Any],
        resources: Any,
    ) -> None:
        self._stage, self._agent = stage, agent
        self._model, self._tools, self._resources = model, tools, resources
        self._open_logs = OpenLogs(stage, lambda key, event: None)
        self._logs = LogConfig(level="silent", propagate=False).open()
        self._playing: dict[Key, asyncio.Task[None]] = {}
        self._by: dict[Key, Key | None] = {}  # for each log, the log that waits for it
        stage.child = self.child

    async def aclose(self) -> None:
        for task in self._playing.values():
            task.cancel()
        await asyncio.gather(*self._playing.values(), return_exceptions=True)
        await self._open_logs.aclose()
        await self._logs.aclose()

    async def all(self) -> None:
        """Replay all logs. The log of thread `main` is first, because the other logs need its
        state."""
        for key in sorted(self._stage.tracks, key=lambda key: key.thread != "main"):
            await self.child(key)

    async def child(self, key: Key, by: Key | None = None) -> None:
        """Replay a recorded log to its end, because the log `by` waits for it. Has no effect if the
        recorded log itself waits for `by`, since that would be a deadlock."""
        if key not in self._stage.tracks or key in self._above(by):
            return
        if key not in self._playing:
            self._by[key] = by
            self._playing[key] = asyncio.create_task(self._play(self._stage.tracks[key]))
        await asyncio.shield(self._playing[key])

    def _above(self, key: Key | None) -> set[Key]:
        """Return a log and all logs that wait for it, directly or indirectly."""
        found: set[Key] = set()
        while key is not None and key not in found:
            found.add(key)
            key = self._by.get(key)
        return found

    async def _play(self, track: Track) -> None:
        stage = self._stage
        await stage.begin(track)
        if (agent := self._agent_of(track)) is None:
            return
        config = stage.drivers.configs[track.key] = self._config(track, agent)
        runtime = HarnessRuntime(config, stage)
        live = await self._open_logs.open(track.key)
        shared = await self._shared(track, live)
        if stage.plan.terms.masked:  # a schema would reject redacted values
            answers = typed_answers(track)
            finals = {(live.log, seq): final(known) for seq, known in answers.items()}
            runtime.outputs.update(finals)
        while not (track.over or track.free):
            await stage.hand_in(track)
            if track.expected() is None:
                return
            before = track.at
            stage.drivers.tune(track)
            await self._driven(track, runtime, live, shared)
            if track.at == before and not (track.over or track.free or track.stopped):
                self._stalled(track, {"nothing": _status(live)}, "nothing was written")
        if track.free and not track.over:
            await RecordedInputs(stage, track, live).feed(
                lambda: self._driven(track, runtime, live, shared)
            )

    async def _shared(self, track: Track, live: Live) -> Live:
        main = Key(track.key.tenant, track.key.session, "main")
        if main == track.key or main not in self._stage.tracks:
            return live
        if self._stage.tracks[main].at == 0:
            await self._stage.begin(self._stage.tracks[main])
        return await self._open_logs.open(main)

    def _agent_of(self, track: Track) -> Agent | None:
        props = RecordedTools(self._stage, track, self._tools)
        state = fold(track.events[: track.start + 1])
        if self._agent is None:
            return rebuilt(track, props, state.sub.agent if state.sub else _named(track))
        agent = self._agent if state.sub is None else agent_of_thread(self._agent, state.sub)
        if agent is None:
            name = state.sub.agent if state.sub else None
            self._stage.diverge(track, track.events[0], "agent", name, None, "no such sub-agent")
            return None
        return quiet(agent, track, props)

    def _config(self, track: Track, agent: Agent) -> Config:
        return Config(
            agent=agent,
            models=RecordedModels(self._stage, track, self._model),
            default_model=model(track),
            fallbacks=tuple(models(track)),
            sandbox=NoSandbox(),
            resources=self._resources,
            policy=POLICY,
            bounds=bounds(track),
            log=self._logs.log,
            redactor=self._logs.redactor,
            tracing=tracing(False),
            owner=driver(track),
            ttl=600.0,
            clock=lambda key: clock(self._stage.tracks[key]),
        )

    async def _driven(
        self, track: Track, runtime: HarnessRuntime, live: Live, shared: Live
    ) -> None:
        """Drive the log until its driver has nothing left to do, or makes no progress."""
        stage = self._stage
        drivers = stage.drivers
        work = asyncio.create_task(
            drive(runtime, drivers.configs[track.key], live, shared, drivers.drives)
        )
        try:
            while not work.done():
                before = self._progress(live)
                await asyncio.wait({work}, timeout=PATIENCE)
                if self._progress(live) == before and not (stage.busy or work.done()):
                    self._stalled(track, None, "no progress")
                    return
            await work
        except Exception as error:  # an invalid log can cause any error
            code = {"code": getattr(error, "code", type(error).__name__)}
            stage.diverge(track, track.next_event, "error", None, code, str(error))
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            drivers.drives.pop(track.key, None)

    def _progress(self, live: Live) -> int:
        return live.state.head + sum(track.at for track in self._stage.tracks.values())

    def _stalled(self, track: Track, came: Any, why: str) -> None:
        event = track.next_event
        recorded = event.kind if event is not None else None
        self._stage.diverge(track, event, "kind", recorded, came, why)


def _status(live: Live) -> str:
    run = live.state.run
    return f"the run is {run.status}" if run is not None else "there is no run"


def _named(track: Track) -> str:
    first = typed(track.events[0])
    named = getattr(first, "agent", None)
    return named if isinstance(named, str) and named else "replayed"


async def _report(stage: ReplayStore, mode: RedactionMode) -> Replayed:
    tracks = stage.tracks.values()
    found = stage.notes.divergences
    return Replayed(
        same=not found,
        first=found[0] if found else None,
        others=found[1:],
        steps=sum(track.steps for track in tracks),
        compared=sum(track.compared for track in tracks),
        given=sum(track.given for track in tracks),
        threads=len(stage.tracks),
        stopped=stage.notes.stopped,
        asked=stage.notes.asked,
        events={
            track.key.thread: [event async for event in stage.read(track.key, after=track.at)]
            for track in tracks
            if track.free
        },
        mode=mode,
    )
