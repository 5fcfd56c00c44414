"""Finds the recorded results, decisions and fingerprints of calls. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ...log import events as ev
from ...log.events import ids
from ...log.state import FINAL
from ..tools import DontKnow, Happened, NotHappened, Park, ProbeAnswer, Ref, ToolResult
from ..tools.stored_results import StoredResult
from .track import Track


def recorded_outcome(track: Track, call: str) -> ToolResult | Park | None:
    """Return the recorded result of a started call, or the question for which it was parked; None
    if the recording has neither."""
    for event, payload in track.ahead():
        if event.kind in ("run.resumed", "run.started"):
            return None
        if isinstance(payload, ev.PendingOpened) and payload.call == call and payload.parked:
            return parked(payload)
        if isinstance(payload, ev.ToolFinished) and payload.call == call:
            return result(payload) if payload.outcome in ("ok", "failed") else None
    return None


def probed(track: Track, call: str) -> ProbeAnswer | None:
    """Return the recorded answer of the probe of a call; None if the recording has none."""
    answers = (p for _, p in track.ahead() if isinstance(p, ev.ToolProbed) and p.call == call)
    answer = next(answers, None)
    if answer is None:
        return None
    if answer.outcome == "not_happened":
        return NotHappened()
    if answer.outcome == "unknown":
        return DontKnow(answer.reason)
    ends = (p for _, p in track.ahead() if isinstance(p, ev.ToolFinished) and p.call == call)
    end = next(ends, None)
    return None if end is None else Happened(result(end))


def decision(track: Track, name: str, arguments: Any) -> str:
    """Return the recorded approval of a call in the next model message: `auto`, `ask`, `deny`, or
    `bad` if its arguments were rejected."""
    coming = track.answer()
    if coming is None or not isinstance(coming[1], ev.MessageCompleted):
        return "auto"
    made = [c for c in coming[1].calls if c.name == name and c.arguments == arguments]
    if not made:
        return "auto"
    for payload in track.payloads[track.at :]:
        if getattr(payload, "call", None) != made[0].id:
            continue
        if isinstance(payload, ev.ToolStarted):
            return "auto"
        if isinstance(payload, ev.PendingOpened):
            return "auto" if payload.parked else "ask"
        if isinstance(payload, ev.ToolFinished):
            known = {"denied": "deny", "bad_arguments": "bad"}
            return known.get(payload.code or "", "auto")
    return "auto"


def fingerprint(track: Track, name: str) -> str | None:
    """Return the recorded fingerprint of a tool: from the next model message if it calls the tool,
    otherwise from the last message that called it."""
    coming = track.answer()
    made = coming[1].calls if coming and isinstance(coming[1], ev.MessageCompleted) else []
    found = next((call.fingerprint for call in made if call.name == name), None)
    return found or track.fingerprints.get(name)


def typed(track: Track) -> dict[int, str | None]:
    """Return the number of each message that requests a typed answer, with the fingerprint of the
    tool that returned the answer."""
    found: dict[int, str | None] = {}
    for event, payload in track.recorded():
        if isinstance(payload, ev.MessageReceived) and payload.output is not None:
            found[event.seq] = None
        for call in payload.calls if isinstance(payload, ev.MessageCompleted) else ():
            if call.name == FINAL and found:
                found[next(reversed(found))] = call.fingerprint
    return found


def answers(track: Track) -> bool:
    """Return whether the agent always required typed answers: no message requested one, but the
    model was asked for one or returned one."""
    if typed(track):
        return False
    for event, payload in track.recorded():
        if isinstance(payload, ev.MessageReceived) and event.run and event.actor is None:
            return True
        calls = payload.calls if isinstance(payload, ev.MessageCompleted) else ()
        if event.run and any(call.name == FINAL for call in calls):
            return True
    return False


def threads(track: Track) -> bool:
    """Return whether a tool's function ran in a thread. This is known if a cancelled call has an
    unknown outcome, because a thread cannot be stopped."""
    ended = track.every(ev.ToolFinished)
    return any(end.outcome == "unknown" and "cancelled" in str(end.result) for end in ended)


def result(said: ev.ToolFinished) -> ToolResult:
    """Convert a recorded `tool.finished` event to the result of the call."""
    refs = []
    for ref in said.refs:
        try:
            refs.append(msgspec.convert(ref, Ref))
        except msgspec.ValidationError:  # refs of other programs are not compared
            continue
    plain = said.content is None and isinstance(said.result, str)
    return StoredResult(
        stored=said.stored,
        content=str(said.result) if plain else said.content or "",
        data=None if plain else said.result,
        failed=said.outcome == "failed",
        code=said.code,
        metadata=dict(said.metadata),
        refs=refs,
    )


def parked(opened: ev.PendingOpened) -> Park:
    """Return the exception with which a recorded call was parked."""
    detail = opened.detail if isinstance(opened.detail, dict) else {}
    own = {name: value for name, value in detail.items() if name not in ("tool", "arguments")}
    what: Any = opened.what
    known = opened.id if ids.is_child(opened.id) else None
    return Park(opened.title or "", what=what, detail=own, id=known)
