"""`holdfast resume`: takes up what was left undone, and sees it through."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter
from rich.text import Text

from .. import errors
from ..cancellation import cancellable, ended
from ..errors import HoldfastError, LeaseHeld, LogReplaced, SessionNotFound
from ..harness.host import Harness, sessions_of
from ..harness.loop.decide import decide
from ..harness.loop.steps import Idle, Plan
from ..harness.session.session import Session, core_of
from ..log.catalog import Query
from ..log.codec import LIMITS
from ..log.events import Event, Key
from ..log.events.defaults import complete
from ..stores.port import Store, wall_clock
from ..values.stream_items import Trouble
from . import failure, reasons
from .agents import Choice, Made, ModelRef, Name, check_owner, choose, find, harness_of
from .describe import event_text
from .failure import UsageError, scrubbed
from .options import EVERYWHERE, Common, seconds
from .output import Output, plain
from .render import number
from .show import Thread, row_of

PAUSE = 0.25  # seconds between two looks at a session that nobody here drives
LOOK = 1.0  # seconds between two looks for sessions
TRIES = 4  # looks after which a session that nobody drives cannot be driven
INTERRUPTED = 130
RETRYABLE = {
    error.code
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, HoldfastError) and error.retryable
}
Ran: TypeAlias = Literal["waiting", "done", "failed", "aborted", "interrupted"]
End: TypeAlias = Ran | Literal["idle", "elsewhere", "stuck", "away", "gone"]


def at_rest(session: Session, but: type[Any] = Plan) -> bool:
    """Whether there is nothing that a driver could do now, `but` to plan when to look again."""
    step = decide(core_of(session).live.state, core_of(session).config.bounds, wall_clock())
    return isinstance(step, (Idle, but))


def resume(
    *sessions: Annotated[str, Parameter(help="Only these. Default: all of the agent.")],
    agent: Name = None,
    model: ModelRef = None,
    thread: Thread = "main",
    forever: Annotated[
        bool,
        Parameter(
            help="Keep serving until SIGTERM or Ctrl-C, instead of ending when nothing is left "
            "to do.",
            negative="--once",
        ),
    ] = False,
    grace: Annotated[
        str, Parameter(help="How long runs may take to a safe point when it is told to end.")
    ] = "10s",
    common: Common = EVERYWHERE,
) -> int:
    """Take up the sessions of an agent that have something to do, and see them through.

    ```
    holdfast resume --agent shop:support
    holdfast resume customer-42 --agent shop:support
    holdfast resume --agent shop:support --forever
    ```

    That is what was approved since, what waits in a queue, what is due, and what a process that
    died has left; a live owner is never displaced. It ends when nothing is left to do but for
    people, or with `--forever` when it is told to; SIGTERM and Ctrl-C hand runs over at a safe
    point. The exit code is 1 if a run failed or could not be driven. With `--json`: one line an
    event, `{"session": …, "thread": …, "event": {…}}`, and at its end one line a session.
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
            f"{choice.offline}; name a model with --model provider/name "
            "(scripted/offline needs no key)"
        )
    keys = [Key(common.tenant, id, thread) for id in sessions]
    return asyncio.run(_serve(made, choice, common, keys, forever=forever, patience=patience))


async def _serve(
    made: Made, choice: Choice, common: Common, keys: list[Key], *, forever: bool, patience: float
) -> int:
    """See these sessions through, or all of the agent; the exit code."""
    async with common.open() as store:
        harness = harness_of(made, choice, store, common.tenant, recovery="leave")
        for key in keys:
            check_owner(await row_of(store, key), harness.agent)
        out = common.output()
        try:
            await harness.start()
            with reasons.shown(lambda line: out.remark(plain(scrubbed(line))), ends=out.json):
                return await Serving(harness, store, out, keys).run(forever=forever)
        finally:
            await harness.aclose(patience)


class Serving:
    """Finds the sessions that have something to do, and sees them through, all at once."""

    def __init__(self, harness: Harness, store: Store, out: Output, only: list[Key]) -> None:
        self.harness, self.store, self.out, self.only = harness, store, out, only
        self.ends: dict[Key, End] = {}
        self._heads: dict[Key, int] = {}  # of those that have ended
        self._seeing: dict[Seeing, asyncio.Task[End]] = {}
        self._stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, *, forever: bool) -> int:
        """Serve; the exit code."""
        self._heed_signals()
        work = asyncio.ensure_future(self._serve(forever))
        try:
            ends: list[asyncio.Future[Any]] = [work, self._stopped]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(work, *self._seeing.values())
        if self._stopped.done():
            return self._stopped.result()
        work.result()
        if not self.out.json:
            self.out.remark(_sum(list(self.ends.values())))
        return int(any(end in ("failed", "stuck", "away") for end in self.ends.values()))

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def stop(number: signal.Signals, code: int) -> None:
            loop.remove_signal_handler(number)  # the second time it ends us at once
            if not self._stopped.done():
                self._stopped.set_result(code)

        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(signal.SIGINT, stop, signal.SIGINT, INTERRUPTED)
            loop.add_signal_handler(signal.SIGTERM, stop, signal.SIGTERM, 0)

    async def _serve(self, forever: bool) -> None:
        due = list(self.only) or await self._due(forever)
        while due or self._seeing or forever:
            for key in due:
                see = Seeing(self.harness, key, self.out)
                self._seeing[see] = asyncio.ensure_future(see.through())
            if self._seeing:
                await asyncio.wait(
                    self._seeing.values(), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED
                )
            for see in [see for see, task in self._seeing.items() if task.done()]:
                await self._ended(see, self._seeing.pop(see).result())
            await asyncio.sleep(PAUSE if forever else 0)
            try:
                with cancellable():
                    due = await self._due(forever)
            except HoldfastError as error:
                if not (forever and error.retryable):
                    raise
                failure.report(error, json=self.out.json)
                await asyncio.sleep(LOOK)

    async def _due(self, forever: bool) -> list[Key]:
        """The logs that want a driver and are not seen through yet. A driver that died is found
        by its lease; who does not stay to see it lapse has to look at all runs that are going."""
        tenant, agent = self.harness.tenant, self.harness.agent.key
        found = await self.store.runnable(tenant, agents=[agent], limit=LIMITS.page)
        if not forever:
            going = Query(tenant=tenant, agent=agent, run="running")
            found += [row.key for row in (await self.store.find(going, limit=LIMITS.page)).items]
        busy = {see.key for see in self._seeing}
        wanted = [key for key in dict.fromkeys(found) if not self.only or key in self.only]
        return [key for key in wanted if key not in busy and await self._worth(key, forever)]

    async def _worth(self, key: Key, forever: bool) -> bool:
        """Whether to take up a log again that has been seen through, or given up."""
        end = self.ends.get(key)
        if end is None or (forever and end != "stuck"):
            return True
        row = await self.store.row(key)
        return row is not None and row.head != self._heads[key] and end != "elsewhere"

    async def _ended(self, see: Seeing, end: End) -> None:
        key = see.key
        if not any(other.key.session == key.session for other in self._seeing):
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


class Seeing:
    """Sees one session through: until it waits for people, has ended, or cannot be driven."""

    def __init__(self, harness: Harness, key: Key, out: Output) -> None:
        self.harness, self.key, self.out = harness, key, out
        self.head = 0
        self.problem: str | None = None
        self.why: str | None = None  # the run failed that ended last
        self._moved = asyncio.Event()
        self._tries = 0
        self._other: tuple[str, float] | None = None  # who drives it, and may be dead until when

    async def through(self) -> End:
        """How it ends. Nothing of one session hurts the others."""
        try:
            row = await row_of(self.harness.store, self.key)
            self.head = row.head
            session = await self.harness.get_or_create(self.key.session, thread=self.key.thread)
            telling = asyncio.ensure_future(self._tell(session))
            telling.add_done_callback(lambda _: self._moved.set())
            try:
                return await self._drive(session) or await self._told(session, telling)
            finally:
                await ended(telling)
        except (SessionNotFound, LogReplaced):
            return "gone"
        except HoldfastError as error:
            self.problem = str(error)
            return "away" if error.retryable else "stuck"

    async def _drive(self, session: Session) -> End | None:
        """Wait until nothing is left to do; how it ends otherwise."""
        while not at_rest(session, Idle):
            if (end := await self._given_up(session)) is not None:
                return end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await core_of(session).live.until(lambda: at_rest(session, Idle))
        return None

    async def _told(self, session: Session, telling: asyncio.Future[None]) -> End:
        """How it stands, once all of it is told."""
        while self.head < core_of(session).live.state.head and not telling.done():
            self._moved.clear()
            await self._moved.wait()
        run = core_of(session).live.state.run
        if run is None:
            return "idle"
        return "waiting" if run.status == "running" else run.status

    async def _given_up(self, session: Session) -> End | None:
        """See that somebody drives it; how it ends if nobody here can."""
        if self.problem is not None:
            return "stuck"
        if core_of(session).live.driven:
            self._tries, self._other = 0, None
            return None
        held = await _holder(self.harness.store, self.key)
        if held is None:
            self._tries += 1
            sessions_of(self.harness).wake(core_of(session).live)
            return "stuck" if self._tries > TRIES else None
        now = asyncio.get_running_loop().time()
        if self._other is None or self._other[0] != held.owner:
            self._other = (held.owner, now + held.left / 1000 + PAUSE)
        return "elsewhere" if now > self._other[1] else None

    async def _tell(self, session: Session) -> None:
        async for item in session.subscribe(self.head):
            if isinstance(item, Event):
                self._show(item)
                if item.kind == "run.finished":
                    self.why = reasons.reason(session, item)
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
    "waiting": "waits for an answer: holdfast pending",
    "elsewhere": "is driven by another process",
    "stuck": "cannot be driven here",
    "away": "could not be reached",
    "gone": "was deleted",
}


async def _holder(store: Store, key: Key) -> LeaseHeld | None:
    """Who drives a log, if anybody does."""
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
