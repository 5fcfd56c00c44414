"""`holdfast resume`: resume the unfinished sessions of an agent."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter
from rich.text import Text

from .. import errors
from ..cancellation import cancellable, ended
from ..environment import wall_clock
from ..errors import HoldfastError, LeaseHeld, LogReplaced, SessionNotFound
from ..harness import Harness, Idle, Session, SetDue, core_of, decide, sessions_of
from ..log.catalog import Query
from ..log.codec import LIMITS
from ..log.events import Event, Key
from ..log.events.defaults import complete
from ..stores.pages import existing_row
from ..stores.port import Store
from ..values.stream_items import Trouble
from . import error_report, run_failures
from .agents import Choice, Made, ModelRef, Name, check_owner, choose, find, harness_of
from .error_report import UsageError, scrubbed
from .event_text import event_text
from .options import DEFAULTS, Common, Thread, seconds
from .output import Output, plain
from .render import number

PAUSE = 0.25  # seconds between two polls of a session that another process drives
LOOK = 1.0  # seconds between two searches for sessions
TRIES = 4  # polls after which a session without a driver counts as stuck
INTERRUPTED = 130
RETRYABLE = {
    error.code
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, HoldfastError) and error.retryable
}
Ran: TypeAlias = Literal["waiting", "done", "failed", "aborted", "interrupted"]
End: TypeAlias = Ran | Literal["idle", "elsewhere", "stuck", "away", "gone"]


def at_rest(session: Session, ignored: type[Any] = SetDue) -> bool:
    """Return whether there is nothing to do for a driver now. Steps of the type `ignored` do not
    count; by default, that is the scheduling of the next wake-up.
    """
    core = core_of(session)
    step = decide(core.live.state, core.config.bounds, wall_clock())
    return isinstance(step, (Idle, ignored))


def resume(
    *sessions: str,
    agent: Name = None,
    model: ModelRef = None,
    thread: Thread = "main",
    forever: Annotated[bool, Parameter(negative="--once")] = False,
    grace: str = "10s",
    common: Common = DEFAULTS,
) -> int:
    """Resume the unfinished sessions of an agent.

    ```
    holdfast resume --agent shop:support
    holdfast resume customer-42 --agent shop:support
    holdfast resume --agent shop:support --forever
    ```

    A session is unfinished if it has new approvals, queued messages or due timers, or if the worker
    of its run crashed. Runs of a live worker are not taken over. The command ends when all
    remaining work waits for user input; with `--forever`, when it is stopped. SIGTERM and Ctrl-C
    stop runs at a safe point. The exit code is 1 if a run failed or could not be resumed. With
    `--json`, prints one line per event, `{"session": …, "thread": …, "event": {…}}`, and one line
    per session when it ends.

    :param sessions: Session ids. Default: all sessions of the agent.
    :param forever: Keep running until SIGTERM or Ctrl-C, instead of ending when all work is done.
    :param grace: Time for runs to reach a safe point when the command is stopped.
    """
    if agent is None:
        raise UsageError("resume needs --agent module:name")
    if thread != "main" and not sessions:
        raise UsageError("--thread needs a SESSION")
    patience = seconds("--grace", grace)
    made = find(agent)
    choice = choose(made, model)
    if choice.offline is not None:
        raise UsageError(
            f"{choice.offline}; choose a model with --model provider/name (scripted/offline needs "
            f"no key)"
        )
    keys = [Key(common.tenant, id, thread) for id in sessions]
    return asyncio.run(_serve(made, choice, common, keys, forever=forever, patience=patience))


async def _serve(
    made: Made, choice: Choice, common: Common, keys: list[Key], *, forever: bool, patience: float
) -> int:
    """Resume these sessions, or all sessions of the agent. Return the exit code."""
    async with common.open() as store:
        harness = harness_of(made, choice, store, common.tenant, recovery="leave")
        for key in keys:
            check_owner(await existing_row(store, key), harness.agent)
        out = common.output()
        try:
            await harness.start()
            with run_failures.shown(lambda line: out.remark(plain(scrubbed(line))), ends=out.json):
                return await ResumeWorker(harness, store, out, keys).run(forever=forever)
        finally:
            await harness.aclose(patience)


class ResumeWorker:
    """Finds the sessions that need a driver and resumes them concurrently."""

    def __init__(self, harness: Harness, store: Store, out: Output, only: list[Key]) -> None:
        self.harness, self.store, self.out, self.only = harness, store, out, only
        self.ends: dict[Key, End] = {}
        self._heads: dict[Key, int] = {}  # heads of the sessions that have ended
        self._tasks: dict[SessionResume, asyncio.Task[End]] = {}
        self._stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, *, forever: bool) -> int:
        """Resume sessions until all work is done or the command is stopped. Return the
        exit code.
        """
        self._handle_signals()
        work = asyncio.ensure_future(self._serve(forever))
        try:
            ends: list[asyncio.Future[Any]] = [work, self._stopped]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(work, *self._tasks.values())
        if self._stopped.done():
            return self._stopped.result()
        work.result()
        self.out.note(_sum(list(self.ends.values())))
        return int(any(end in ("failed", "stuck", "away") for end in self.ends.values()))

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals, code: int) -> None:
            loop.remove_signal_handler(number)  # a second signal ends the process at once
            if not self._stopped.done():
                self._stopped.set_result(code)

        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(signal.SIGINT, stop, signal.SIGINT, INTERRUPTED)
            loop.add_signal_handler(signal.SIGTERM, stop, signal.SIGTERM, 0)

    async def _serve(self, forever: bool) -> None:
        due = list(self.only) or await self._due(forever)
        while due or self._tasks or forever:
            for key in due:
                see = SessionResume(self.harness, key, self.out)
                self._tasks[see] = asyncio.ensure_future(see.run())
            if self._tasks:
                await asyncio.wait(
                    self._tasks.values(), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED
                )
            for see in [see for see, task in self._tasks.items() if task.done()]:
                await self._ended(see, self._tasks.pop(see).result())
            await asyncio.sleep(PAUSE if forever else 0)
            try:
                with cancellable():
                    due = await self._due(forever)
            except HoldfastError as error:
                if not (forever and error.retryable):
                    raise
                error_report.report(error, json=self.out.json)
                await asyncio.sleep(LOOK)

    async def _due(self, forever: bool) -> list[Key]:
        """Return the logs that need a driver and are not resumed yet. A crashed driver is found
        when its lease expires; without `forever`, all active runs are examined instead."""
        tenant, agent = self.harness.tenant, self.harness.agent.key
        found = await self.store.runnable(tenant, agents=[agent], limit=LIMITS.page)
        if not forever:
            going = Query(tenant=tenant, agent=agent, run="running")
            found += [row.key for row in (await self.store.find(going, limit=LIMITS.page)).items]
        busy = {see.key for see in self._tasks}
        wanted = [key for key in dict.fromkeys(found) if not self.only or key in self.only]
        return [
            key for key in wanted if key not in busy and await self._should_resume(key, forever)
        ]

    async def _should_resume(self, key: Key, forever: bool) -> bool:
        """Return whether to resume a log again after it ended here."""
        end = self.ends.get(key)
        if end is None or (forever and end != "stuck"):
            return True
        row = await self.store.row(key)
        return row is not None and row.head != self._heads[key] and end != "elsewhere"

    async def _ended(self, see: SessionResume, end: End) -> None:
        key = see.key
        if not any(other.key.session == key.session for other in self._tasks):
            await self.harness.close(key.session, grace=0.0 if end == "gone" else 1.0)
        self.ends[key], self._heads[key] = end, see.head
        problem = see.why if end == "failed" else see.problem
        if self.out.json:
            told = {"session": key.session, "thread": key.thread, "end": end}
            self.out.emit({**told, **({"problem": problem} if problem else {})})
            return
        words = f"{_name(key)}  {WORDS.get(end, end)}"
        said = f"{words}: {problem}" if problem else words
        self.out.print(Text(plain(scrubbed(said)), style="bold"))


class SessionResume:
    """Resumes one session until it waits for user input, has ended, or cannot be driven."""

    def __init__(self, harness: Harness, key: Key, out: Output) -> None:
        self.harness, self.key, self.out = harness, key, out
        self.head = 0
        self.problem: str | None = None
        self.why: str | None = None  # why the last run failed
        self._moved = asyncio.Event()
        self._tries = 0
        # the driver in another process, and when to stop waiting for it
        self._other: tuple[str, float] | None = None

    async def run(self) -> End:
        """Drive the session until it cannot go on, and return the reason. An error in one session
        does not affect the others.
        """
        try:
            row = await existing_row(self.harness.store, self.key)
            self.head = row.head
            session = await self.harness.get_or_create(self.key.session, thread=self.key.thread)
            telling = asyncio.ensure_future(self._show_events(session))
            telling.add_done_callback(lambda _: self._moved.set())
            try:
                return await self._drive(session) or await self._final_state(session, telling)
            finally:
                await ended(telling)
        except (SessionNotFound, LogReplaced):
            return "gone"
        except HoldfastError as error:
            self.problem = str(error)
            return "away" if error.retryable else "stuck"

    async def _drive(self, session: Session) -> End | None:
        """Wait until the session has nothing left to do. If that fails, return the reason."""
        while not at_rest(session, Idle):
            if (end := await self._ensure_driven(session)) is not None:
                return end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await core_of(session).live.until(lambda: at_rest(session, Idle))
        return None

    async def _final_state(self, session: Session, telling: asyncio.Future[None]) -> End:
        """Return the session's state, after all events up to it were shown."""
        live = core_of(session).live
        while self.head < live.state.head and not telling.done():
            self._moved.clear()
            await self._moved.wait()
        run = live.state.run
        if run is None:
            return "idle"
        return "waiting" if run.status == "running" else run.status

    async def _ensure_driven(self, session: Session) -> End | None:
        """Make sure that the session has a driver. If it cannot be driven here, return
        the reason.
        """
        if self.problem is not None:
            return "stuck"
        live = core_of(session).live
        if live.driven:
            self._tries, self._other = 0, None
            return None
        held = await _holder(self.harness.store, self.key)
        if held is None:
            self._tries += 1
            sessions_of(self.harness).wake(live)
            return "stuck" if self._tries > TRIES else None
        now = asyncio.get_running_loop().time()
        if self._other is None or self._other[0] != held.owner:
            self._other = (held.owner, now + held.left / 1000 + PAUSE)
        return "elsewhere" if now > self._other[1] else None

    async def _show_events(self, session: Session) -> None:
        async for item in session.subscribe(self.head):
            if isinstance(item, Event):
                self._show(item)
                if item.kind == "run.finished":
                    self.why = run_failures.reason(session, item)
                self.head = item.seq
                self._moved.set()
            elif isinstance(item, Trouble) and item.code not in RETRYABLE:
                self.problem = item.problem

    def _show(self, event: Event) -> None:
        if self.out.json:
            about = {"session": self.key.session, "thread": self.key.thread}
            self.out.emit({**about, "event": complete(event)})
        else:
            self.out.print(Text.assemble(plain(_name(self.key)), event_text(event)))


WORDS = {
    "idle": "nothing to do",
    "waiting": "needs a decision: see holdfast pending",
    "elsewhere": "is driven by another process",
    "stuck": "cannot be driven here",
    "away": "is unavailable",
    "gone": "was deleted",
}


async def _holder(store: Store, key: Key) -> LeaseHeld | None:
    """Return the owner of a log's lease, or None."""
    try:
        lease = await store.acquire(key, "holdfast resume", ttl=1.0)
    except LeaseHeld as held:
        return held
    with contextlib.suppress(HoldfastError):
        await store.release(lease)
    return None


def _name(key: Key) -> str:
    return key.session if key.thread == "main" else f"{key.session} / {key.thread}"


def _sum(ends: list[End]) -> str:
    counts = {end: ends.count(end) for end in dict.fromkeys(ends)}
    listed = ", ".join(f"{count:,} {end}" for end, count in counts.items())
    return f"{number(len(ends), 'session')}: {listed}" if ends else "nothing to do"
