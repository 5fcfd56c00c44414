"""Model calls: choose the model, build the prompt, stream the answer, and log it.

This is the only module that calls a model.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec

from ...errors import HoldfastError, InvalidValue, ModelError, ModelUnavailable, StoreUnavailable
from ...log import events as ev
from ...log.codec import LIMITS
from ...log.events import NewEvent, new_id
from ...models.port import Model, ModelCall, TextChunk, ThoughtChunk, ToolSpec
from ...stores.port import BlobRef
from ...values.usage import normalised
from ..faults import RunFault, classify, make, public, retry_after, retryable
from ..live.debounce import Debounced
from .budgets import warnings
from .driver import Driving, Flight
from .large_results import offered
from .model_stream import AnswerTooLong, ModelOutput, checked_chunks
from .policy import hidden
from .prompt_context import Built, ContextFailed, build
from .proposed_calls import proposed
from .tool_call import Ready, startable, started
from .typed_output import answer_tool, output_spec

TRIES = 3  # attempts to end a run while messages arrive
DRAFT = 0.25  # seconds between two writes of a draft
PIECE = LIMITS.draft_bytes // 8  # characters of a draft that are written at a time


class CallFailure(NamedTuple):
    """The reason why no model answered: the fault, its exception, and the model that was called
    last."""

    fault: RunFault
    error: BaseException | None
    model: str | None = None


async def call_model(driving: Driving) -> list[Ready]:
    """Make one model call of the active run, from the prompt to the message in the log. Output that
    was streamed is kept, even if the call fails. Returns the tool calls of the message that can be
    carried out next: their intent was logged together with the message."""
    answer = await driving.watch(_answer(driving))
    if answer is None:
        return []  # stopped: the text is in `flight`, and the next step logs it
    if isinstance(answer, CallFailure):
        await fail(driving, *answer)
        return []
    built, ref, said = answer
    run, step = driving.run.id, driving.run.steps
    driving.log.info("model_answered", category="model", model=ref, run=run, step=step)
    flight = driving.flight
    try:
        return await _log(driving, built, ref, said)
    except (InvalidValue, TypeError) as error:  # the log cannot hold the answer
        driving.flight = flight
        await _fail_unloggable(driving, ref, error)
        return []


async def _fail_unloggable(driving: Driving, ref: str, error: Exception) -> None:
    """Fail a run because the model's answer cannot be logged. Its text is kept if possible."""
    lost = ModelError(model=ref, problem="the answer cannot be written to the log")
    lost.__cause__ = error
    fault = classify(lost, source="model", policy=driving.config.policy)
    try:
        await fail(driving, fault, lost, ref)
    except InvalidValue:
        driving.flight = None
        await fail(driving, fault, lost, ref)


async def _answer(driving: Driving) -> tuple[Built, str, ModelOutput] | CallFailure:
    """Return the model's answer, or the reason why no model could answer."""
    policy = driving.config.policy
    try:
        built = await build(driving)
    except ContextFailed as failed:
        return CallFailure(failed.fault, failed.__cause__)
    failure: CallFailure | None = None
    first = driving.config.model_ref(driving.state, driving.run.model)
    refs = [*dict.fromkeys(filter(None, (first, *driving.config.fallbacks)))]
    for ref, then in zip(refs, [*refs[1:], None], strict=True):
        try:
            return built, ref, await _retried(driving, _model(driving, ref), built)
        except AnswerTooLong as error:  # a fallback would get the same prompt
            return CallFailure(make("limit_size", str(error)), error, ref)
        except Exception as error:  # a custom model may raise anything
            failure = CallFailure(classify(error, source="model", policy=policy), error, ref)
            if then is None or (driving.flight is not None and driving.flight.text):
                break  # the user has seen some text: a fallback would repeat it
            driving.log.warning("model_failed", category="model", error=failure.fault, model=ref)
            problem = f"the call failed; falling back to {then}"
            driving.live.trouble(ModelUnavailable(model=ref, problem=problem))
    if failure is None:
        remedy = "pass default_model to the harness"
        nobody = ModelError(model="none", problem="no model is set", remedy=remedy)
        failure = CallFailure(classify(nobody, source="model", policy=policy), nobody)
    return failure


def _model(driving: Driving, ref: str) -> Model:
    """Return the model with this reference. Raises `ModelError` if no provider offers it."""
    try:
        return driving.config.model(ref)
    except InvalidValue as error:
        remedy = f"add a provider for {ref!r}, or choose another model ({error.remedy})"
        raise ModelError(
            model=ref, problem="no provider for this model is configured", remedy=remedy
        ) from error


async def _retried(driving: Driving, model: Model, built: Built) -> ModelOutput:
    """Return the answer of one model. As long as nothing was streamed, the call is retried
    according to the policy."""
    attempts, aborted = driving.config.policy.retry.model, driving.aborted
    call = await _call(driving, model, built)
    for n in range(1, attempts.times + 1):
        said = ModelOutput()
        driving.flight = Flight(new_id(), model.ref)
        try:
            await _stream(driving, model, call, said)
        except Exception as error:
            _check_going(aborted)
            fault = classify(error, source="model", policy=driving.config.policy)
            if n == attempts.times or said.begun or not retryable(fault):
                raise
            driving.log.warning("model_retried", category="model", error=fault, attempt=n)
            await asyncio.sleep(attempts.delay(n, retry_after=retry_after(fault)))
        else:
            return said
    raise AssertionError("unreachable")


def _check_going(aborted: asyncio.Event) -> None:
    """Raise `CancelledError` if the model ignored that its call was cancelled, because the next run
    may already be active."""
    if aborted.is_set():
        raise asyncio.CancelledError


async def _call(driving: Driving, model: Model, built: Built) -> ModelCall:
    live, rules = driving.live, driving.shared.state.rules
    tools = [
        tool for tool in offered(driving).values() if not hidden(tool.name, tool.category, rules)
    ]
    output: ToolSpec | None = await output_spec(driving)
    return ModelCall(
        model=model.ref.partition("/")[2],
        system=built.system,
        messages=live.history.messages(model.ref, await _blobs(driving, model), built.notes),
        tools=tuple(tool.spec for tool in tools),
        output=output,
        run=driving.run.id,
        step=driving.run.steps,
        session=live.key.session,
    )


async def _blobs(driving: Driving, model: Model) -> dict[str, bytes]:
    """Return the bytes of the attachments that the prompt needs, by hash. Each is read once per
    driver."""
    store, scope = driving.live.store, driving.live.key.scope
    for part in driving.live.history.blobs(model.ref):
        if part not in driving.blobs:
            try:
                driving.blobs[part] = await store.get_blob(scope, BlobRef(part, 0))
            except HoldfastError as error:
                driving.log.warning("blob_missing", category="storage", error=error)
    return driving.blobs


async def _stream(driving: Driving, model: Model, call: ModelCall, said: ModelOutput) -> None:
    flight = driving.flight
    assert flight is not None
    drafts = DraftWriter(driving, flight)
    config, aborted = driving.config, driving.aborted
    namespace, _, name = model.ref.partition("/")
    with config.tracing.chat(namespace, name, driving.run.steps) as span:
        chunks = checked_chunks(model, call)
        try:
            async for chunk in chunks:
                _check_going(aborted)
                said.add(chunk)
                if isinstance(chunk, TextChunk):
                    flight.said.add(chunk.text)
                    driving.live.say(flight.message, chunk.text)
                    drafts.grew()
                elif isinstance(chunk, ThoughtChunk):
                    driving.live.say(flight.message, chunk.text, thought=True)
        finally:
            await chunks.aclose()
            await drafts.written()
        if said.end is None:
            raise ModelUnavailable(
                model=model.ref, problem="the stream ended before the answer was complete"
            )
        span.usage(normalised(said.end.usage), model.ref)
        span.finish(said.end.reason)


class DraftWriter:
    """Writes the text of a message in flight as a draft, so that other processes can show it. The
    stream never waits for a write, but the completion of the message does."""

    def __init__(self, driving: Driving, flight: Flight) -> None:
        self._driving, self._flight = driving, flight
        self._sent = 0
        self._later = Debounced(DRAFT, self._write)

    def grew(self) -> None:
        self._later.ask()

    async def _write(self) -> None:
        driving, flight = self._driving, self._flight
        text = flight.text[self._sent : self._sent + PIECE]
        try:
            await driving.live.store.put_draft(
                driving.live.key, flight.message, self._sent, text, fence=driving.hold.lease
            )
            self._sent += len(text)
        except StoreUnavailable as error:
            driving.live.trouble(error)
        except HoldfastError as error:
            driving.log.warning("draft_failed", category="storage", error=error)
            return
        if self._sent < flight.said.length:
            self._later.ask()

    async def written(self) -> None:
        """Stop writing, and wait for the write in progress."""
        await self._later.end()


async def _log(driving: Driving, built: Built, ref: str, said: ModelOutput) -> list[Ready]:
    """Write the message and the decision about each of its calls in one append. If nothing is left
    to do, the same append ends the run; if the calls can be carried out at once, the same append
    records that they are about to start."""
    flight, state = driving.flight, driving.state
    assert flight is not None
    assert said.end is not None
    events: list[NewEvent] = []
    if built.hash != state.context:
        payload = ev.ContextBuilt(
            hash=built.hash,
            mode=driving.config.mode(state).name,
            system=built.system,
            messages=list(built.notes),
            parts=[msgspec.to_builtins(part) for part in built.parts],
        )
        events.append(driving.event("context.built", payload))
    calls, about = await proposed(driving, said.calls)
    usage = normalised(said.end.usage)
    price = driving.config.price
    cost = price(ref, usage) if price is not None else None
    message = ev.MessageCompleted(
        text="".join(said.text),
        parts=said.bound,
        calls=calls,
        model=ref,
        usage=usage,
        thought="".join(said.thought),
        reason=said.end.reason,
        cost=None if cost is None else float(cost),
    )
    events.append(driving.event("message.completed", message, id=flight.message))
    events.extend(warnings(driving, usage, message.cost))
    events.extend(about)
    driving.flight = None
    ends = not (calls or about)
    if ends and await _finished(driving, events):
        return []
    if ready := [] if about else startable(driving, calls, events):
        intents = (started(driving, item) for item in ready)
        if await driving.write(*events, *intents, expected=driving.state.head):
            return ready
    await driving.write(*events)
    if ends and _can_end(driving) and await answer_tool(driving) is not None:
        await fail(driving, make("no_output"))
    return []


async def _finished(driving: Driving, events: list[NewEvent]) -> bool:
    """If nothing is left to do, write the message and the end of the run in one append. Retries
    if a queued message arrives in between."""
    for _ in range(TRIES):
        if not _can_end(driving):
            return False
        run, head = driving.run.id, driving.state.head
        missing = make("no_output") if await answer_tool(driving) is not None else None
        if await driving.write(*events, _end(driving, missing), expected=head, last=True):
            status = "done" if missing is None else "failed"
            driving.log.info("run_finished", category="run", run=run, status=status)
            if missing is not None:
                driving.log.warning("run_failed", category="run", run=run, error=missing)
            return True
    return False


def _can_end(driving: Driving) -> bool:
    """Return whether the run can end, because neither an abort nor a steering message has
    arrived."""
    state = driving.state
    return state.abort is None and not any(q.how == "steer" for q in state.queue)


def _end(driving: Driving, fault: RunFault | None) -> NewEvent:
    if fault is None:
        return finished(driving, "done")
    shown = public(fault, driving.config.policy, driving.config.redactor)
    return finished(driving, "failed", fault.code, shown.message, shown.stack)


def finished(
    driving: Driving,
    status: Any,
    code: str | None = None,
    error: str | None = None,
    stack: str | None = None,
) -> NewEvent:
    """Create the event that ends the run. It also records when the log is due again."""
    state = driving.state
    due = driving.now() if state.queue or state.owes else state.alarm
    payload = ev.RunFinished(status=status, code=code, error=error, stack=stack, due=due)
    return driving.event("run.finished", payload)


async def fail(
    driving: Driving, fault: RunFault, error: BaseException | None = None, model: str | None = None
) -> None:
    """End the run because of a fault and its exception; text that was streamed is kept."""
    driving.live.failed(driving.run.id, error)
    driving.log.error("run_failed", category="run", error=fault, model=model)
    while driving.state.active is not None:
        kept = [*interrupted(driving, fault.code), *steering_removed(driving)]
        end = _end(driving, fault)
        if await driving.write(*kept, end, expected=driving.state.head):
            driving.flight = None
            return
        if driving.state.abort is not None:
            return  # the run ends as aborted


def steering_removed(driving: Driving) -> list[NewEvent]:
    """Create the event that removes steering messages which the ending run sent to itself; an empty
    list if there are none."""
    mine = [q.seq for q in driving.state.queue if q.how == "steer" and q.run == driving.run.id]
    return [driving.event("queue.changed", ev.QueueChanged(remove=mine))] if mine else []


def interrupted(driving: Driving, reason: str | None, *, shown: bool = True) -> list[NewEvent]:
    """Create the event that keeps the text of a message which will not be completed; an empty list
    if there is no text."""
    flight = driving.flight
    if flight is None or not flight.text:
        return []
    payload = ev.MessageInterrupted(
        text=flight.text, reason=reason, model=flight.model, shown=shown
    )
    return [driving.event("message.interrupted", payload, id=flight.message)]
