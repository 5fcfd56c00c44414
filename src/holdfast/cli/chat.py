"""`holdfast chat`: chat with an agent in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ..cancellation import ended
from ..harness import Harness, Session, core_of, sessions_of
from ..log.events import Event, Key, new_id
from ..stores.migrations import schema_of
from ..stores.port import Store
from ..stores.url_display import shown
from ..values.status import Status
from ..values.stream_items import Item, Trouble
from . import run_failures
from .agents import BUILT_IN, Choice, Made, ModelRef, Name, check_owner, choose, find, harness_of
from .chat_commands import COMMANDS, HELP, ChatCommands
from .keyboard import Input, Keyboard
from .options import DEFAULTS, Common, Thread, check_current, create_store, default_store, user
from .output import Output
from .resume import RETRYABLE, at_rest
from .screen import Screen

GRACE = 1.0  # seconds that a run has to reach a safe point when the user ends the chat
PAUSE = 0.5  # seconds between two checks whether the lease of a crashed driver has expired
BEFORE = 10  # earlier messages that are shown
INTERRUPTED = 130


def chat(
    session: str | None = None,
    /,
    *,
    agent: Name = None,
    model: ModelRef = None,
    thread: Thread = "main",
    common: Common = DEFAULTS,
) -> int:
    """Chat with an agent in the terminal.

    ```
    holdfast chat
    holdfast chat customer-42 --agent shop:support --model openai/gpt-5.1
    ```

    The conversation is stored, and can be continued later and elsewhere. Without `--agent`, a small
    built-in agent answers; without a key for any model, it works offline. Approvals are requested
    with a prompt: type `y`, `n` with a reason, or `e` to edit the arguments. Messages that you type
    while the agent works are queued. Commands: `/abort`, `/queue`, `/model REF`, `/mode NAME`,
    `/quit`. Alt-Enter starts another line of a message. Ctrl-C aborts the run; a second Ctrl-C ends
    the chat. With input from a pipe, each line
    is sent after the previous one is answered, and the exit code is 1 if the last run failed. With
    `--json`, prints one line per event or piece of text.

    :param session: Session id. Default: a new session.
    """
    made = find(agent) if agent is not None else BUILT_IN
    again = _again(agent, thread, common)
    return asyncio.run(_chat(session, made, choose(made, model), thread, common, again))


def _again(agent: str | None, thread: str, common: Common) -> list[str]:
    """Return the options of a command that continues this chat."""
    given = {
        "--agent": agent,
        "--thread": thread if thread != "main" else None,
        "--tenant": common.tenant if common.tenant != "main" else None,
        "--store": shown(common.store) if common.store else None,
    }
    return [word for name, value in given.items() if value for word in (name, value)]


async def _chat(
    id: str | None, made: Made, choice: Choice, thread: str, common: Common, again: list[str]
) -> int:
    out = common.output()
    async with opened(common.url) as store:
        harness = harness_of(made, choice, store, common.tenant, recovery="leave")
        id = new_id() if id is None else id
        row = await store.row(Key(common.tenant, id, thread))  # also validates the names
        check_owner(row, harness.agent)
        command = shlex.join(["holdfast", "chat", *again, *(["--"] if id[:1] == "-" else []), id])
        try:
            session = await harness.get_or_create(id, thread=thread, user=user())
            talk = Chat(harness, session, out, choice)
            await talk.greet(new=row is None, command=command)
            with run_failures.shown(talk.screen.remark, ends=out.json):
                return await talk.run()
        finally:
            await harness.aclose(GRACE)
            if sys.stdin.isatty():
                out.remark(f"continue with: {command}")


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Store, None]:
    """Open the store, and create it if it does not exist. Raises an error if the store must be
    migrated.
    """
    schema = await schema_of(url)
    if schema.found:
        check_current(url, schema)
    async with create_store(url, folders=url == default_store()) as store:
        yield store


def input_and_screen(out: Output, interrupt: Callable[[], None]) -> tuple[Input, Screen]:
    """Return what reads the user's lines, and what prints the conversation: with line editing if
    both are a terminal and prompt_toolkit is installed, else plain lines.
    """
    terminal = sys.stdin.isatty() and out.console.is_terminal and not out.json
    if not terminal or os.environ.get("TERM") == "dumb":
        return Keyboard(), Screen(out)
    try:
        from .editor_screen import EditorScreen  # noqa: PLC0415  prompt_toolkit may be missing
        from .line_editor import LineEditor  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prompt_toolkit":
            raise
        return Keyboard(), Screen(out)
    editor = LineEditor(COMMANDS, interrupt)
    return editor, EditorScreen(out, editor)


def activity(status: Status) -> str:
    """Describe what the agent does, for the spinner."""
    queued = f", {status.queued} queued" if status.queued else ""
    return f"{'running a tool' if status.phase == 'running_tool' else 'working'}{queued}"


class Chat:
    """A chat between a user and an agent in one session."""

    def __init__(self, harness: Harness, session: Session, out: Output, choice: Choice) -> None:
        self.harness, self.session = harness, session
        self.keyboard, self.screen = input_and_screen(out, self._interrupt)
        self.commands = ChatCommands(session, self.screen, choice.ref)
        self.offline = choice.offline
        self.code = 0
        self._live = core_of(session).live
        self._first = self._live.state.head
        self._shown = self._first
        self._moved, self._asking = asyncio.Event(), asyncio.Lock()
        self._leaving, self._broken = asyncio.Event(), asyncio.Event()
        self._warned = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def greet(self, *, new: bool, command: str) -> None:
        """Show the session, earlier messages, and the command that continues the chat later."""
        status, out = self.session.status, self.screen.out
        if out.json:
            facts = {"id": status.session, "thread": status.thread, "agent": status.agent}
            fields = {**facts, "new": new, "model": self.commands.model or status.model}
            out.emit({"session": {**fields, "offline": self.offline is not None}})
        begun = "new session" if new else "session"
        self.screen.remark(f"{begun} {status.session}")
        self.screen.remark(f"continue later with: {command}")
        if self.offline is not None:
            self.screen.remark(
                f"offline: {self.offline}; choose a model with --model provider/name"
            )
        if self.keyboard.typed:
            self.screen.remark(HELP)
        if not new:
            self.screen.history(await self.session.transcript(limit=BEFORE))

    async def run(self) -> int:
        """Run until the user ends the chat. Return the exit code."""
        with contextlib.suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        parts = [self._show(), self._read(), self._take_over(), self._leaving.wait()]
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            await self._ask()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(*tasks, *self._tasks)
            await self.keyboard.close()
        for task in done:
            task.result()
        self.screen.end_line()
        return self.code

    async def _show(self) -> None:
        async for item in self.session.subscribe(self._first):
            self.screen.show(item)
            self._explain(item)
            if isinstance(item, Trouble) and item.code not in RETRYABLE:
                self._broken.set()
            if isinstance(item, Event):
                self._shown = item.seq
                self._moved.set()
                if item.kind == "run.finished":
                    self.code = int(item.json().get("status") == "failed")
                await self._ask()

    def _explain(self, item: Item) -> None:
        """Print why a run failed, if the event that ends the run does not contain the reason."""
        why = run_failures.reason(self.session, item) if isinstance(item, Event) else None
        if why is not None and not self.screen.out.json:
            self.screen.remark(f"reason: {why}")

    async def _ask(self) -> None:
        """Wait until all events are shown, then ask the oldest question or prompt for a message.
        The next line of input answers the question that is shown.
        """
        async with self._asking:
            while self._shown >= (head := self._live.state.head):
                asks = await self.session.pending()
                if head != self._live.state.head:
                    continue
                self.commands.asked = asks[0] if asks else None
                if asks or at_rest(self.session):
                    self.screen.prompt(self.commands.question)
                else:
                    self.screen.working(activity(self.session.status))
                return

    async def _take_over(self) -> None:
        """Take over from a crashed driver after its lease has expired."""
        while True:
            await asyncio.sleep(PAUSE)
            idle = self._live.driven or self._broken.is_set()
            if not idle and not at_rest(self.session):
                sessions_of(self.harness).wake(self._live)

    def _interrupt(self) -> None:
        status = self.session.status
        if self._warned or (status.run is None and not status.queued):
            self.code = INTERRUPTED
            self._leaving.set()
            return
        self._warned = True
        if status.pending and status.phase != "running_tool":
            self.screen.remark(
                "the run needs your answer; Ctrl-C again ends the chat, /abort aborts the run"
            )
        else:
            self.screen.remark("aborting the run; Ctrl-C again ends the chat")
            self._tasks.add(asyncio.ensure_future(self.commands.abort()))

    async def _read(self) -> None:
        while (line := await self.keyboard.line()) is not None:
            text = line.strip()
            if not self.keyboard.typed and text != "/abort":
                await self._answered()
            self._warned = False
            self._broken.clear()
            async with self._asking:  # no new question before this line is handled
                self.screen.entered(line)
                if text and await self.commands.take(text):
                    return
            await self._ask()
        if not self.keyboard.typed:
            await self._answered()

    async def _answered(self) -> None:
        """Wait until the agent needs input from the user, and everything is shown."""
        waits = [
            self._live.until(lambda: at_rest(self.session)),
            self._broken.wait(),
        ]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(*tasks)
        if self._broken.is_set():
            self.code = 1
            self._leaving.set()
        while self._shown < self._live.state.head:
            self._moved.clear()
            await self._moved.wait()
        await self._ask()
