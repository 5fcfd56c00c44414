"""The class `Session`: the methods and attributes of one conversation.

A session has no state of its own: its values are computed from the log, and its methods append to
the log. Any number of processes may have the same session open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from ...errors import InvalidValue
from ...log import events as ev
from ...log.events import Event, Key, NewEvent
from ...log.state import Grants
from ...log.transcript import Message, transcript
from ...values.options import Content, SendOptions
from ...values.pending import Ask, Decision
from ...values.result import Result
from ...values.status import Status
from ..live.log import Listener
from ..loop.custom_events import custom
from .base import SessionCore
from .display import DisplayView
from .message_stream import Streaming, wait
from .notifications import Notifications
from .pending_answers import Approvals, Response, Suspensions, asks, extend_item, settle_item
from .schedules import schedules_of
from .state_views import FollowUps, RunView, SessionIdentity, UsageView, status_of
from .subagents import Subagents, used
from .threads import Threads, rewind_thread
from .views import Checkpoints, ModelView, ModeView, Permissions, Queue, StateView, Timers


class Session:
    """One conversation that is open in this process. `harness.get_or_create` returns it.

    ```python
    session = await harness.get_or_create("customer-42")
    result = await session.send("Refund order 42.")
    for item in result.pending:
        await session.approve(item.id, actor="ann")
    result = await session.wait()
    ```
    """

    def __init__(self, core: SessionCore[Session]) -> None:
        self._core = core
        self.identity = SessionIdentity(core)
        """The ids of the session, and who it belongs to: tenant, thread, user, owner."""
        self.run = RunView(core)
        """The current run: its id, and whether it is running."""
        self.stream = Streaming(core)
        """Stream a message, or find and abort the active run."""
        self.approval = Approvals(core)
        """The pending approvals, with methods to decide them."""
        self.suspensions = Suspensions(core)
        """The calls that wait for an answer."""
        self.queue = Queue(core)
        """The queued messages: list, edit, reorder, remove."""
        self.follow_ups = FollowUps(core)
        """The queue, with methods to add messages."""
        self.usage = UsageView(core)
        """Tokens and cost, by run and by model."""
        self.display = DisplayView(core)
        """The state to show to a user, as one value, and its changes."""
        self.notifications = Notifications(core)
        """Messages from programs to the model."""
        self.mode = ModeView(core)
        """The mode of the thread."""
        self.model = ModelView(core)
        """The model of the thread."""
        self.state = StateView(core)
        """The user state: up to 16 KiB of JSON for the whole session."""
        self.permissions = Permissions(core)
        """Rules that allow, ask about or deny tools."""
        self.timers = Timers(core)
        """Messages that are sent at a given time."""
        self.schedules = schedules_of(core)
        """Messages that are sent again and again, at the times of a schedule."""
        self.checkpoints = Checkpoints(core)
        """Named events that the conversation can be rewound to."""
        self.subagents = Subagents(core)
        """The sub-agents of this thread."""
        self.threads = self.thread = Threads(core)
        """This thread and its siblings: list, fork, edit, regenerate."""

    def __repr__(self) -> str:
        state, agent = self._core.live.state, self.identity.owner
        run = state.active.status if state.active is not None else None
        about = {"agent": agent, "run": run, "pending": len(state.pending), "head": state.head}
        if self.key.thread != "main":
            about = {"thread": self.key.thread, **about}
        if self._core.closed:
            about["closed"] = True
        return f"Session({self.id!r}, {', '.join(f'{k}={v!r}' for k, v in about.items())})"

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._core.key.session

    @property
    def key(self) -> Key:
        """The key of the thread's log: tenant, session and thread."""
        return self._core.key

    @property
    def status(self) -> Status:
        """The current status of the session: phase, mode, model, run, and the number of queued
        messages and pending items."""
        return status_of(self._core)

    # Messages

    async def send(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> Result:
        """Send a message, and wait until its run waits for user input or has ended. The message is
        in the log before anything else happens; cancelling this call does not stop the run.

        Options: `busy` (queue, steer, interrupt, reject), `key` (idempotency), `actor`, `metadata`,
        `model`, `limits`.
        """
        stream = self.stream(content, output_type=output_type, **options)
        async for _ in stream:
            pass
        return stream.result

    async def post(
        self, content: Content, *, output_type: Any = None, **options: Unpack[SendOptions]
    ) -> int:
        """Send a message without waiting for its run. Returns its number once it is in the log."""
        return await self._core.post(content, output_type=output_type, **options)

    async def wait(self, output_type: Any = None) -> Result:
        """Wait until the current or last run waits for user input or has ended, and the queue is
        empty. A typed answer has the type that its message requested in this process. If another
        process sent the message, pass the type; otherwise the answer is plain JSON."""
        return await wait(self._core, output_type)

    async def abort(
        self,
        reason: str | None = None,
        *,
        actor: str | None = None,
        run: str | None = None,
        key: str | None = None,
    ) -> None:
        """Abort the active run, in any process; with `run`, only if the active run has this id.
        Calls with the same `key` count once. The text so far and the queue are kept."""
        await self._core.abort(reason, actor=actor, run=run, key=key)

    async def rewind(self, to: int, *, actor: str | None = None, key: str | None = None) -> int:
        """Reset the conversation of this thread to its state right after event `to`; 0 clears it.
        Nothing is deleted: the events stay in the log, and you can rewind to any of them. Queued
        messages after `to` are dropped; usage, mode, model, state, labels and checkpoints are kept.
        Calls with the same `key` count once. Returns the number of the rewind event. Raises
        `SessionBusy` while a run or a pending item is open: abort it first."""
        return await rewind_thread(self._core, to, actor=actor, key=key)

    # Pending items

    async def pending(self) -> list[Ask]:
        """Return the pending items of this thread, oldest first, then the pending items of
        sub-agents that work for it. All of them can be decided with the methods of this session."""
        self._core.check_open()
        return [*await asks(self._core)]

    async def approve(
        self,
        item: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Decision:
        """Approve a tool call, optionally with other arguments. Without `item`, the only pending
        item is approved. Raises `InvalidValue` if the tool does not accept the arguments; the item
        then stays open."""
        answer = None if arguments is None else {"arguments": dict(arguments)}
        return await settle_item(
            self._core, item, "approved", actor=actor, reason=reason, answer=answer
        )

    async def deny(
        self, item: str | None = None, reason: str | None = None, *, actor: str | None = None
    ) -> Decision:
        """Deny a tool call. The model reads the reason."""
        return await settle_item(self._core, item, "denied", actor=actor, reason=reason)

    async def answer(
        self, answer: Any, item: str | None = None, *, actor: str | None = None
    ) -> Decision:
        """Answer a question, or record the result of a call whose outcome is unknown. Raises
        `InvalidValue` for an item that can only be approved or denied."""
        return await settle_item(self._core, item, "answered", actor=actor, answer=answer)

    async def respond_to_approval(
        self,
        decision: Response,
        item: str | None = None,
        *,
        reason: str | None = None,
        actor: str | None = None,
    ) -> Decision | None:
        """Same as `approval.respond`: approve, decline, or approve and grant the category."""
        return await self.approval.respond(decision, item, reason=reason, actor=actor)

    async def extend(self, item: str, seconds: float | None, *, actor: str | None = None) -> None:
        """Change the expiry of a pending item to this many seconds from now; None means that it
        never expires."""
        await extend_item(self._core, item, seconds, actor)

    # Reading

    def subscribe(self, after: int | None = None) -> Listener:
        """Yield every event after number `after` (default: from now on), and the deltas of messages
        in flight. A slow reader does not slow down the run. The iteration ends when the session is
        closed, or when the process receives a termination signal."""
        self._core.check()
        listener = self._core.live.listen(after)
        self._core.host.subscribed(listener)
        return listener

    async def transcript(
        self, *, limit: int | None = None, roles: tuple[str, ...] = ()
    ) -> list[Message]:
        """Return the conversation as messages, oldest first; with `limit`, only the newest."""
        found = [m for m in transcript(await self.events()) if not roles or m.role in roles]
        return _newest(found, limit)

    async def events(
        self,
        *,
        after: int = 0,
        kinds: tuple[str, ...] = (),
        run: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """Return the events of this thread that match all filters, in order; with `limit`, only the
        newest."""
        self._core.check_open()
        live = self._core.live
        found = [
            event
            async for event in live.store.read(live.key, after=after, log=live.log)
            if (not kinds or event.kind in kinds)
            and (run is None or event.run == run)
            and (since is None or event.at >= since)
            and (until is None or event.at <= until)
        ]
        return _newest(found, limit)

    async def usage_all(self) -> dict[str, int]:
        """Return the total usage of all threads of the session, including sub-agents."""
        self._core.check_open()
        return await used(self._core.live)

    @property
    def current_run_id(self) -> str | None:
        """The id of the active run, running or waiting."""
        return self.run.id

    # Grants

    @property
    def grants(self) -> Grants:
        """The tools and categories that currently need no approval."""
        return self.permissions.grants

    async def grant_tool(self, tool: str) -> None:
        """Allow a tool without approval, until the current driver ends."""
        await self.permissions.grant(tool=tool)

    async def grant_category(self, category: str) -> None:
        """Allow a category of tools without approval, until the current driver ends."""
        await self.permissions.grant(category=category)

    # Writing alongside a run

    async def emit(self, kind: str, payload: Any = None, *, actor: str | None = None) -> int:
        """Append a custom event, of a kind that the application defines. Returns its number."""
        core = self._core
        core.check_open()
        checked = custom(core.config.agent.events, kind, payload)
        return await core.append(NewEvent.of(kind, checked, actor=actor))

    async def seed(self, messages: list[tuple[str, str]]) -> None:
        """Import earlier messages into a new conversation, as pairs (role, text), where the role is
        `user` or `assistant`."""
        core = self._core
        core.check_open()
        if core.live.state.run is not None or core.live.state.queue:
            raise InvalidValue(
                field="messages",
                problem="cannot be seeded after the conversation has started",
                remedy="seed a new session or thread",
            )
        if events := [_seeded(message) for message in _pairs(messages)]:
            await core.append(*events)

    async def close(self) -> None:
        """Close the session in this process. The conversation stays stored, and its run
        continues."""
        await self._core.host.close(self.id)


def core_of(session: Session) -> SessionCore[Session]:
    """Return the core of a session, for modules of this package that need more than its public
    methods."""
    return session._core


def _newest(items: list[Any], limit: int | None) -> list[Any]:
    return items if limit is None else items[max(0, len(items) - limit) :]


def _seeded(message: tuple[str, str]) -> NewEvent:
    role, text = message
    if role == "user":
        return NewEvent.of("message.received", ev.MessageReceived(text=text))
    if role == "assistant":
        return NewEvent.of("message.completed", ev.MessageCompleted(text=text))
    raise InvalidValue(
        field="messages",
        problem=f"has the unknown role {role!r}",
        remedy="use 'user' or 'assistant'",
    )


def _pairs(messages: Any) -> list[tuple[str, str]]:
    """Return the messages as pairs of role and text. Raises `InvalidValue` if one is not such a
    pair."""
    remedy = "pass a list of (role, text) pairs"
    if not isinstance(messages, (list, tuple)):
        raise InvalidValue(field="messages", problem=f"is {type(messages).__name__}", remedy=remedy)
    for one in messages:
        whole = isinstance(one, (list, tuple)) and len(one) == 2
        if not whole or not all(isinstance(part, str) for part in one):
            raise InvalidValue(field="messages", problem=f"contains {one!r}", remedy=remedy)
    return [(role, text) for role, text in messages]
