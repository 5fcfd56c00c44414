"""Plans how to run a message again: where to fork, and which messages to send in the fork."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidValue
from ...log import events as ev
from ...log.codec import check_count, typed
from ...log.conversation import rewound_to
from ...log.events import Event, NewEvent
from ...log.state import QueuedInput, State, fold
from ..live.log import Live


class SentMessage(Struct, frozen=True):
    """A message with the latest edit of its text, and its sender."""

    seq: int
    message: ev.MessageReceived
    actor: str | None = None


class Regeneration(Struct, frozen=True):
    """A plan to run a message again: fork at event `at`, remove the messages `dropped` from the
    fork's queue, and send the messages `asked`."""

    at: int
    dropped: tuple[int, ...]
    asked: tuple[SentMessage, ...]

    def events(self, text: str | None = None, actor: str | None = None) -> Iterator[NewEvent]:
        """Return the events to write into the fork. `text` replaces the text of the last message,
        and `actor` its sender."""
        if self.dropped:
            yield NewEvent.of("queue.changed", ev.QueueChanged(remove=[*self.dropped]))
        for number, one in enumerate(self.asked, 1):
            message = one.message if number > 1 else replace(one.message, how="queue")
            who = one.actor
            if text is not None and number == len(self.asked):
                message, who = replace(message, text=text), actor or who
            yield NewEvent.of("message.received", message, actor=who)


async def regeneration_of(live: Live, seq: int) -> Regeneration:
    """Return the plan to run message `seq` again. The fork starts where the message arrived, if
    that was a safe point with an empty queue, or if no run handled the message before it was
    rewound. Otherwise the fork starts at the start of the run that handled the message, and all
    messages that this run had read before are sent too. Raises `InvalidValue` if event `seq` is not
    a user message."""
    check_count("seq", seq, least=1)
    found: dict[int, SentMessage] = {}
    state = before = begun = State()
    read: list[int] = []  # by the current run
    async for event in live.store.read(live.key, log=live.log):
        if seq in found and (to := rewound_to(event)) is not None and to < seq:
            return Regeneration(seq - 1, _numbers(before.queue), (found[seq],))
        payload = typed(event) if event.kind in _TOLD else None
        if event.seq == seq:
            before = state
            if not isinstance(payload, ev.MessageReceived):
                raise _refused(f"event {seq} is a {event.kind} event, not a message")
        _note(found, event, payload)
        if isinstance(payload, ev.RunStarted):
            begun, read = state, []
        if isinstance(payload, (ev.RunStarted, ev.ModelCalled)):
            read += payload.inputs
            if seq in payload.inputs:
                break
        state = fold((event,), state)
    else:
        if seq not in found:
            raise _refused(f"{seq} is past the end of the log")
        return Regeneration(seq - 1, _numbers(before.queue), (found[seq],))
    if before.safe and not before.queue:
        return Regeneration(seq - 1, (), (found[seq],))
    asked = [number for number in read[: read.index(seq) + 1] if number in found]
    return Regeneration(begun.head, _numbers(begun.queue), tuple(found[number] for number in asked))


_TOLD = ("message.received", "queue.changed", "run.started", "model.called")


def _note(found: dict[int, SentMessage], event: Event, payload: ev.Payload | None) -> None:
    """Record a message, or the latest edit of its text."""
    if isinstance(payload, ev.MessageReceived):
        found[event.seq] = SentMessage(event.seq, payload, event.actor)
    elif isinstance(payload, ev.QueueChanged):
        for number, one in found.items():
            if (text := payload.texts.get(str(number))) is not None:
                found[number] = replace(one, message=replace(one.message, text=text))


def _numbers(queue: Sequence[QueuedInput]) -> tuple[int, ...]:
    return tuple(item.seq for item in queue)


def _refused(problem: str) -> InvalidValue:
    return InvalidValue(
        field="seq", problem=problem, remedy="pass the number of a message.received event"
    )
