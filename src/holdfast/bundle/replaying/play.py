"""Replaying: each recorded log driven again by the real loop, in memory, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from ...errors import InvalidValue
from ...harness.agents.agent import Agent
from ...harness.agents.config import Config
from ...harness.agents.runtime import HarnessRuntime
from ...harness.agents.subagents import kin
from ...harness.live.log import Live
from ...harness.live.open_logs import Lives
from ...harness.loop.run_loop import drive
from ...harness.sandbox import NoSandbox
from ...harness.telemetry.logs import LogConfig
from ...harness.telemetry.spans import tracing
from ...log.codec import typed
from ...log.events import Event, Key
from ...log.state import fold
from ...models.port import Model
from ..redaction.manifest import Mode
from .agents import quiet, rebuilt
from .feeding import Feeding
from .sources import Recorded, read_source, unreadable
from .stage import Plan, Stage
from .standins import POLICY, Props, Voices, final, swapped_tools
from .track import Track
from .values import Replayed, Terms

PATIENCE = 10.0  # seconds in which something must come, while nothing of the program's runs


async def replay(
    source: Recorded,
    agent: Agent | None = None,
    *,
    thread: str | None = None,
    from_step: int | None = None,
    model: Model | None = None,
    tools: Mapping[str, Any] | None = None,
    resources: Any = None,
    ignore: Collection[str] = (),
) -> Replayed:
    """Run a recorded conversation again and say where it first came otherwise.

    The loop is the real one. Models and tools answer what was recorded; messages, decisions and
    all else that came from outside are handed in where they stood. No tool's function is called,
    no hook, no network. Without `agent` one is made from the log: then what the program's own
    would say is not compared. With it, instructions and contexts are rendered, with `resources`,
    and compared, as are the fingerprints of tools and what is allowed, asked about or refused.

    From model call `from_step` on, the first unless given, `model` answers instead, and the
    functions in `tools` are called. From there on the replay does not end at a divergence. What
    was not swapped still answers what was recorded, as long as it is asked the same.

    `thread` is the one to replay; all of them unless given. `ignore` are kinds of events that are
    not compared, as `context.built` where instructions name the time.
    """
    swapped = swapped_tools(tools or {})
    if from_step is not None and (isinstance(from_step, bool) or from_step < 1):
        remedy = "count model calls from 1"
        raise InvalidValue(field="from_step", problem=f"is {from_step!r}", remedy=remedy)
    if from_step is None and (swapped or model is not None):
        from_step = 1
    reading = await read_source(source, thread)
    whole, hidden = agent is not None, reading.mode != "local"
    plan = Plan(
        from_step=from_step,
        terms=Terms(whole=whole, masked=hidden, bare=reading.mode == "replay_only"),
        ignore=frozenset([*ignore, *unreadable(reading)]),
    )
    tracks = {
        key: Track(key, events, start=start, whole=whole, masked=hidden, ignore=plan.ignore)
        for key, (events, start) in reading.threads.items()
    }
    stage = Stage(tracks, plan, reading.blob)
    play = _Play(stage, agent, model, swapped, resources)
    try:
        await play.all()
    finally:
        await play.aclose()
    if reading.erased and stage.notes.stopped == "end":
        stage.notes.stopped = "erased"
    return _told(stage, reading.mode, await _came(stage))


class _Play:
    """The logs of one session, played one after the other; a sub-agent's where its parent waits
    for it."""

    def __init__(
        self,
        stage: Stage,
        agent: Agent | None,
        model: Model | None,
        tools: Mapping[str, Any],
        resources: Any,
    ) -> None:
        self._stage, self._agent = stage, agent
        self._model, self._tools, self._resources = model, tools, resources
        self._lives = Lives(stage, lambda key, event: None)
        self._logs = LogConfig(level="silent", propagate=False).open()
        self._playing: dict[Key, asyncio.Task[None]] = {}
        self._by: dict[Key, Key | None] = {}  # who waits for it
        stage.child = self.child

    async def aclose(self) -> None:
        for task in self._playing.values():
            task.cancel()
        await asyncio.gather(*self._playing.values(), return_exceptions=True)
        await self._lives.aclose()
        await self._logs.aclose()

    async def all(self) -> None:
        """Play all; `main` first, since the others need what stands in it."""
        for key in sorted(self._stage.tracks, key=lambda key: key.thread != "main"):
            await self.child(key)

    async def child(self, key: Key, by: Key | None = None) -> None:
        """Play a log, if it was recorded, to its end; not one that waits for `by` itself."""
        if key not in self._stage.tracks or key in self._above(by):
            return
        if key not in self._playing:
            self._by[key] = by
            self._playing[key] = asyncio.create_task(self._play(self._stage.tracks[key]))
        await asyncio.shield(self._playing[key])

    def _above(self, key: Key | None) -> set[Key]:
        """A log and those that wait for it."""
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
        config = stage.stops.configs[track.key] = self._config(track, agent)
        runtime = HarnessRuntime(config, stage)
        live = await self._lives.open(track.key)
        shared = await self._shared(track, live)
        if stage.plan.terms.masked:  # a schema would refuse what was replaced
            finals = {(live.log, seq): final(known) for seq, known in track.typed().items()}
            runtime.outputs.update(finals)
        while not (track.over or track.free):
            await stage.hand_in(track)
            if track.expected() is None:
                return
            before = track.at
            stage.stops.tune(track)
            await self._driven(track, runtime, live, shared)
            if track.at == before and not (track.over or track.free or track.struck):
                coming = track.following()
                assert coming is not None
                came = {"nothing": _status(live)}
                stage.notes.add(track, coming[0], "kind", coming[0].kind, came, why="nothing came")
                stage.end(track, "diverged")
        if track.free and not track.over:
            await Feeding(stage, track, live).feed(
                lambda: self._driven(track, runtime, live, shared)
            )

    async def _shared(self, track: Track, live: Live) -> Live:
        main = Key(track.key.tenant, track.key.session, "main")
        if main == track.key or main not in self._stage.tracks:
            return live
        if self._stage.tracks[main].at == 0:
            await self._stage.begin(self._stage.tracks[main])
        return await self._lives.open(main)

    def _agent_of(self, track: Track) -> Agent | None:
        props = Props(self._stage, track, self._tools)
        state = fold(track.events[: track.start + 1])
        if self._agent is None:
            return rebuilt(track, props, state.sub.agent if state.sub else _named(track))
        agent = self._agent if state.sub is None else kin(self._agent, state.sub)
        if agent is None:
            name = state.sub.agent if state.sub else None
            self._stage.notes.add(
                track, track.events[0], "agent", name, None, why="no such sub-agent"
            )
            self._stage.end(track, "diverged")
            return None
        return quiet(agent, track, props)

    def _config(self, track: Track, agent: Agent) -> Config:
        return Config(
            agent=agent,
            models=Voices(self._stage, track, self._model),
            default_model=track.model(),
            fallbacks=tuple(track.models()),
            sandbox=NoSandbox(),
            resources=self._resources,
            policy=POLICY,
            bounds=track.bounds(),
            log=self._logs.log,
            redactor=self._logs.redactor,
            tracing=tracing(False),
            owner=track.driver(),
            ttl=600.0,
            clock=lambda key: self._stage.tracks[key].clock,
        )

    async def _driven(
        self, track: Track, runtime: HarnessRuntime, live: Live, shared: Live
    ) -> None:
        """Drive the log until it has nothing to do, or nothing comes any more."""
        stage = self._stage
        work = asyncio.create_task(
            drive(runtime, stage.stops.configs[track.key], live, shared, stage.stops.drives)
        )
        try:
            while not work.done():
                before = self._progress(live)
                await asyncio.wait({work}, timeout=PATIENCE)
                if self._progress(live) == before and not (stage.busy or work.done()):
                    self._stalled(track)
                    return
            await work
        except Exception as error:  # whatever a log of a stranger leads to
            coming = track.following()
            event = coming[0] if coming is not None else None
            code = getattr(error, "code", type(error).__name__)
            stage.notes.add(track, event, "error", None, {"code": code}, why=str(error))
            stage.end(track, "diverged")
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _progress(self, live: Live) -> int:
        return live.state.head + sum(track.at for track in self._stage.tracks.values())

    def _stalled(self, track: Track) -> None:
        coming = track.following()
        event = coming[0] if coming is not None else None
        why = "nothing came any more"
        self._stage.notes.add(track, event, "kind", event.kind if event else None, None, why=why)
        self._stage.end(track, "diverged")


def _status(live: Live) -> str:
    run = live.state.run
    return f"the run is {run.status}" if run is not None else "there is no run"


def _named(track: Track) -> str:
    first = typed(track.events[0])
    named = getattr(first, "agent", None)
    return named if isinstance(named, str) and named else "replayed"


async def _came(stage: Stage) -> dict[str, list[Event]]:
    """What stands in the logs that left the recording, behind where they did."""
    found = {}
    for key, track in stage.tracks.items():
        if track.free:
            read = stage.read(key, after=track.at)
            found[key.thread] = [event async for event in read]
    return found


def _told(stage: Stage, mode: Mode, came: dict[str, list[Event]]) -> Replayed:
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
        events=came,
        mode=mode,
    )
