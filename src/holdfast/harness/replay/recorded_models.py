"""Models that return the recorded answers. Only a replacement model is really called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ...errors import Diverged, HoldfastError, ModelError, ModelUnavailable
from ...log import events as ev
from ...models.port import Chunk, EndChunk, Model, ModelCall, TextChunk
from ...models.recorded import RecordedModel, recorded_chunks
from ...models.registry import Models
from ...models.scripted import split_words
from ..faults import Attempts, ErrorPolicy, Retry, RunFault
from .recorded_config import breaks
from .store import ReplayStore, forever
from .track import Track


class RecordedFailure(HoldfastError):
    """Raised for a model call that failed in the recording. `fault` is the recorded error code."""

    code = "recorded"

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def __str__(self) -> str:
        return f"the recorded call failed at this point: {self.fault}"


def _classify(error: BaseException, fault: RunFault) -> dict[str, Any] | None:
    return {"code": error.fault} if isinstance(error, RecordedFailure) else None


POLICY = ErrorPolicy(classify=_classify, retry=Retry(model=Attempts(1), storage=Attempts(1)))


class RecordedModels(Models):
    """Resolves every model reference of a log to a model that returns the recorded answers."""

    def __init__(self, stage: ReplayStore, track: Track, swapped: Model | None) -> None:
        super().__init__(default=False)
        self._stage, self._track, self._swapped = stage, track, swapped

    def resolve(self, ref: str, field: str = "model") -> Model:
        return ReplayedModel(ref, self._stage, self._track, self._swapped)

    def check(self, ref: str, field: str = "model") -> None:
        """Accept every model reference, since no real model is called."""


class ReplayedModel:
    """A model that returns the recorded answer, or the answer of its replacement."""

    def __init__(self, ref: str, stage: ReplayStore, track: Track, swapped: Model | None) -> None:
        self.ref, self._stage, self._track, self._swapped = ref, stage, track, swapped

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        stage, track = self._stage, self._track
        if self._swapped is not None and stage.swaps(track):
            stage.notes.asked = call
            answer = self._other(self._swapped, call)
        elif track.free:
            stage.notes.asked = call
            answer = self._same_prompt(call)
        else:
            answer = self._recorded()
        async with aclosing(answer) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _other(self, model: Model, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self._stage.busy += 1
        try:
            async with aclosing(model.stream(call)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._stage.busy -= 1

    async def _same_prompt(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        """Return the recorded answer to an identical prompt. Used after the replay has stopped
        following the recording."""
        stage, track = self._stage, self._track
        try:
            async for chunk in RecordedModel(track.events, ref=self.ref).stream(call):
                yield chunk
        except ModelError as error:
            asked = [e for e, p in track.ahead() if isinstance(p, ev.ModelCalled)]
            path = f"messages[{error.step}]" if isinstance(error, Diverged) else "messages"
            was, came = (
                (error.expected, error.found) if isinstance(error, Diverged) else (None, None)
            )
            event = asked[0] if asked else None
            stage.diverge(track, event, path, was, came, str(error), stopped="prompt")
            await forever()

    async def _recorded(self) -> AsyncGenerator[Chunk, None]:
        stage, track = self._stage, self._track
        coming = track.answer()
        if coming is None:
            stage.end(track)
            await forever()
            return
        payload = coming[1]
        if isinstance(payload, ev.MessageCompleted):
            if payload.model is not None and payload.model != self.ref and "/" in payload.model:
                raise ModelUnavailable(
                    model=self.ref, problem="the recorded answer came from a different model"
                )
            for chunk in recorded_chunks(payload):
                yield chunk
            return
        if isinstance(payload, ev.MessageInterrupted):
            for word in split_words(payload.text):
                yield TextChunk(word)
        await self._interrupted()
        yield EndChunk("other")

    async def _interrupted(self) -> None:
        """End the call like the recorded call: with an error, or by stopping the driver."""
        stage, track = self._stage, self._track
        if (broken := breaks(track)) is not None:
            await stage.hand_in(track)
            if not track.stopped:
                stage.drivers.leave(track) if broken == "left" else stage.drivers.crash(track)
            await forever()
        ends = next((p for _, p in track.ahead() if isinstance(p, ev.RunFinished)), None)
        if ends is not None and ends.code == "limit_time":
            stage.drivers.run_out(track)
            await forever()
        if ends is not None and ends.status == "failed":
            raise RecordedFailure(ends.code or "model_failed")
        await stage.hand_in(track)  # the recorded input that ended it, if any
        if ends is None:
            stage.end(track)
        await forever()
