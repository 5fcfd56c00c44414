"""From Holdfast to Claude Code: a bundle of ours as a transcript and those of its sub-agents.

Each block of an answer is a line, as Claude Code writes them, and each line names the one before.
What Claude has no word for stands in the field `holdfast` of a line, which Claude Code passes
over and `read_claude` takes back. Blocks where the parts of the bundle are in a file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...errors import BlobNotFound
from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event
from ...log.transcript import Message, Outcome, ToolCall, transcript
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..format import Thread
from .files import ClaudeFiles
from .read import ENTRY, OURS, REASONS, REJECTED, TEXT

SOURCE, TARGET = "holdfast_bundle 1", "claude-code jsonl"
SPACE = uuid.UUID("8d1c9a52-6d0e-5f0b-9a44-5f2a3f0a7c11")  # of the ids that are made here
EMPTY = "(no content)"
STOPS = {reason: stop for stop, reason in reversed(REASONS.items())}
TOLD = {"message.received", "message.completed", "message.interrupted", "tool.finished"}
TOLD |= {ENTRY, TEXT, "session.created", "thread.created", "compaction.made"}
BESIDE = (ENTRY, TEXT, "compaction.made")
_CALL = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def write_claude(bundle: Bundle) -> tuple[ClaudeFiles, LossReport]:
    """The files of the session, and what could not be carried over. The same bundle gives the
    same bytes. Messages, calls and results survive the way there and back."""
    losses = Losses()
    facts = bundle.document.session
    session = _session(facts.session, losses)
    agents: dict[str, bytes] = {}
    about: dict[str, dict[str, Any]] = {}
    main = b""
    for thread in bundle.document.threads:
        written = _Lines(bundle, thread, session, losses).text()
        if thread.thread == "main":
            main = written
            continue
        name = _agent(thread.thread, agents)
        agents[name] = written
        told = {"agentType": thread.agent or "general-purpose", "description": thread.title or ""}
        about[name] = told
        path = f"threads[{thread.thread}]"
        if thread.shared:
            losses.add(path, "that a thread is a fork", "Claude Code has sub-agents alone")
        elif any(child.thread == thread.thread for child in bundle.document.replay.children):
            losses.add(path, "which call a sub-agent is", "its result names it in Claude Code")
    return ClaudeFiles(session=session, main=main, agents=agents, about=about), losses.report(
        SOURCE, TARGET
    )


def _session(id: str, losses: Losses) -> str:
    """The session's id, which is a UUID there."""
    try:
        if str(uuid.UUID(id)) == id:
            return id
    except ValueError:
        pass
    losses.add("session.session", "the session's id", "a UUID made from it stands in its place")
    return str(uuid.uuid5(SPACE, id))


def _agent(thread: str, taken: dict[str, bytes]) -> str:
    """The name of a sub-agent's file, without its ending."""
    if re.fullmatch(r"subagents/agent-[A-Za-z0-9_-]{1,64}", thread) and thread not in taken:
        return thread
    return f"subagents/agent-{hashlib.sha256(thread.encode()).hexdigest()[:16]}"


class _Lines:
    """One thread as lines."""

    def __init__(self, bundle: Bundle, thread: Thread, session: str, losses: Losses) -> None:
        self._bundle, self._thread, self._losses = bundle, thread, losses
        self._events = list(bundle.events(thread.thread))
        self._by_seq = {event.seq: event for event in self._events}
        self._path = f"threads[{thread.thread}]"
        self._calls: dict[str, str] = {}  # our id of a call: Claude's
        self._last: str | None = None
        self._lines: list[dict[str, Any]] = []
        facts = bundle.document.session
        known = facts.metadata.get("claude")
        claude = known if isinstance(known, dict) else {}
        self._common = {
            "isSidechain": thread.thread != "main",
            "userType": claude.get("userType") or "external",
            "cwd": claude.get("cwd") or facts.workspace or "/",
            "sessionId": session,
            "version": claude.get("version") or "0.0.0",
            "gitBranch": claude.get("gitBranch") or "",
        }
        if thread.thread != "main":
            self._common["agentId"] = thread.thread.rpartition("/")[2].removeprefix("agent-")

    def text(self) -> bytes:
        told: list[tuple[int, Message | Event]] = [(m.seq, m) for m in transcript(self._events)]
        told += [(e.seq, e) for e in self._events if e.kind in BESIDE]
        for _, one in sorted(told, key=lambda pair: pair[0]):
            if isinstance(one, Event) and one.kind == "compaction.made":
                self._summary(one)
            elif isinstance(one, Event):
                self._verbatim(one)
            elif one.role == "user":
                self._user(one)
            else:
                self._answer(one)
        for event in self._events:
            if event.kind not in TOLD:
                self._losses.add(self._path, f"an event {event.kind}", "Claude Code has none such")
        return b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines)

    def _verbatim(self, event: Event) -> None:
        entry = event.json()
        if event.kind == TEXT:
            entry = json.loads(entry["text"])
        if not isinstance(entry, dict) or entry.get("type") == "agent_metadata":
            return
        links = [name for name in ("logicalParentUuid", "parentUuid") if name in entry]
        if entry.get("parentUuid") is not None:
            links = ["parentUuid"]
        # A line of another branch stays there; any other that is linked is part of the chain.
        other = entry.get("type") in ("user", "assistant")
        if links and isinstance(entry.get("uuid"), str) and not other:
            entry = {**entry, links[0]: self._last}
            self._last = entry["uuid"]
        self._lines.append(entry)

    def _summary(self, event: Event) -> None:
        """A compaction as Claude Code writes it: a mark, and a message that sums up."""
        made = typed(event)
        summary = made.summary if isinstance(made, ev.CompactionMade) else None
        if summary is None:
            path, why = f"{self._path}.events[{event.seq}]", "Claude Code has none without words"
            self._losses.add(path, "a compaction", why)
            return
        last = self._lines[-1] if self._lines else {}
        if last.get("subtype") != "compact_boundary":
            before, self._last = self._last, None
            mark = {"subtype": "compact_boundary", "content": "Conversation compacted"}
            self._line("system", {}, event, 1, logicalParentUuid=before, **mark)
            del self._lines[-1]["message"]
        told = {"role": "user", "content": summary}
        self._line("user", told, event, 0, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def _line(
        self, type: str, message: dict[str, Any], of: Event, number: int, **more: Any
    ) -> None:
        """The next line, linked to the one before."""
        id = of.id.removeprefix("claude:") if number == 0 else ""
        if not id or id == of.id:
            place = f"{self._common['sessionId']}/{self._thread.thread}/{of.seq}/{number}"
            id = str(uuid.uuid5(SPACE, place))
        moment = datetime.fromtimestamp(of.at / 1000, UTC)
        head = {"parentUuid": self._last, **self._common, "type": type, "message": message}
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{of.at % 1000:03d}Z"
        self._lines.append({**head, "uuid": id, "timestamp": stamp, **more})
        self._last = id

    def _user(self, message: Message) -> None:
        event = self._by_seq[message.seq]
        kept: dict[str, Any] = {}
        more: dict[str, Any] = {}
        metadata = message.metadata
        if list(metadata) == ["claude"] and isinstance(metadata["claude"], dict):
            more = metadata["claude"]
        elif metadata:
            kept["metadata"] = metadata
        if event.actor is not None:
            kept["actor"] = event.actor
        found = [block for part in message.parts for block in self._block(part, message)]
        if any(b.get("type") == "text" for b in found) or len(found) != len(message.parts):
            kept |= {"parts": message.parts, "text": message.text}
        text = [{"type": "text", "text": message.text}] if message.text else []
        content: Any = [*text, *found]
        if not content:
            kept["text"] = ""
            content = EMPTY
        elif not found:
            content = message.text
        self._wishes(event)
        told = {"role": "user", "content": content}
        self._line("user", told, event, 0, **more, **({OURS: kept} if kept else {}))

    def _wishes(self, event: Event) -> None:
        payload = typed(event)
        if isinstance(payload, ev.MessageReceived):
            plain = ev.MessageReceived(
                text=payload.text, parts=payload.parts, metadata=payload.metadata
            )
            if plain != payload:
                path, why = f"{self._path}.events[{event.seq}]", "Claude Code has none"
                self._losses.add(path, "wishes for the run of a message", why)

    def _block(self, part: Any, message: Message) -> Iterator[dict[str, Any]]:
        """A part of a person's message as a block; a text where Claude takes no such thing."""
        path = f"{self._path}.events[{message.seq}]"
        if not isinstance(part, dict) or part.get("type") != "blob":
            self._losses.add(path, "a part of a message", "no such block", kept=OURS)
            yield {"type": "text", "text": _words(part)}
            return
        kind, name = str(part.get("media_type")), part.get("name")
        block = "image" if kind.startswith("image/") else "document"
        try:
            if block == "document" and kind != "application/pdf":
                raise BlobNotFound(tenant="", session="", sha256="")
            data = base64.b64encode(self._bundle.blob(str(part.get("sha256")))).decode()
        except BlobNotFound:
            why = "it is missing, or of a kind that Claude does not take"
            self._losses.add(path, "an attachment", why)
            yield {"type": "text", "text": f"[attachment: {name or kind}]"}
            return
        title = {"title": name} if isinstance(name, str) else {}
        yield {
            "type": block,
            "source": {"type": "base64", "media_type": kind, "data": data},
            **title,
        }

    def _answer(self, message: Message) -> None:
        event = self._by_seq[message.seq]
        said = typed(event)
        whole = said if isinstance(said, ev.MessageCompleted) else ev.MessageCompleted()
        if message.interrupted:
            path, why = f"{self._path}.events[{message.seq}]", "Claude Code has no mark for it"
            self._losses.add(path, "that a message broke off", why)
        bound = [p for p in message.parts if _is_thinking(p)]
        blocks: list[dict[str, Any]] = [*bound]
        if message.text:
            blocks.append({"type": "text", "text": message.text})
        kept = self._kept(message, whole, bound)
        asked = {}
        for call in message.calls:
            block, more = self._call(call)
            blocks.append(block)
            asked.update(more)
        if not blocks:
            blocks, kept["text"] = [{"type": "text", "text": EMPTY}], ""
        head = {
            "id": f"msg_{uuid.uuid5(SPACE, event.id).hex}",
            "type": "message",
            "role": "assistant",
            "model": (message.model or "<synthetic>").removeprefix("anthropic/"),
            "stop_reason": STOPS.get(whole.reason or "", "end_turn"),
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0, **whole.usage},
        }
        for number, block in enumerate(blocks):
            ours: dict[str, Any] = dict(kept) if number == len(blocks) - 1 else {}
            if block.get("type") == "tool_use" and block["id"] in asked:
                ours["calls"] = {block["id"]: asked[block["id"]]}
            more = {OURS: ours} if ours else {}
            self._line("assistant", {**head, "content": [block]}, event, number, **more)
        for call in message.calls:
            if call.outcome is not None:
                self._result(call, call.outcome)

    def _kept(
        self, message: Message, whole: ev.MessageCompleted, bound: list[Any]
    ) -> dict[str, Any]:
        """What would not be read back as it is."""
        kept: dict[str, Any] = {}
        thoughts = [p["thinking"] for p in bound if p.get("type") == "thinking"]
        if "\n\n".join(thoughts) != message.thought:
            kept["thought"] = message.thought
            path, why = f"{self._path}.events[{message.seq}]", "it has no signature of the model"
            self._losses.add(path, "a thought", why, kept=OURS)
        if bound != message.parts:
            kept["parts"] = message.parts
            path, why = f"{self._path}.events[{message.seq}]", "it is bound to another model"
            self._losses.add(path, "a part of an answer", why, kept=OURS)
        if not (message.model or "").startswith("anthropic/"):
            kept["model"] = message.model
        if REASONS.get(STOPS.get(whole.reason or "", "end_turn")) != whole.reason:
            kept["reason"] = whole.reason
        if whole.cost is not None:
            kept["cost"] = whole.cost
        if not {"input_tokens", "output_tokens"} <= whole.usage.keys():
            kept["usage"] = whole.usage
        return kept

    def _call(self, call: ToolCall) -> tuple[dict[str, Any], dict[str, Any]]:
        """A call as a block, and what is to be kept of it beside, by Claude's id."""
        taken = set(self._calls.values())
        fits = [id for id in (call.provider_id, call.id) if id and _CALL.fullmatch(id)]
        made = f"toolu_{hashlib.sha256(f'{self._thread.thread}/{call.id}'.encode()).hexdigest()}"
        id = next((id for id in fits if id not in taken), made[:64])
        self._calls[call.id] = id
        plain = isinstance(call.arguments, dict)
        kept: dict[str, Any] = {} if plain else {"arguments": call.arguments}
        if call.id != id:
            kept["id"] = call.id
        if call.provider_id != id:
            kept["provider_id"] = call.provider_id
        block = {
            "type": "tool_use",
            "id": id,
            "name": call.name,
            "input": call.arguments if plain else {},
        }
        return block, {id: kept} if kept else {}

    def _result(self, call: ToolCall, outcome: Outcome) -> None:
        event, id = self._by_seq[outcome.seq], self._calls[call.id]
        ended = typed(event)
        failed = outcome.outcome != "ok"
        text = outcome.content if outcome.content is not None else _words(outcome.result)
        if failed and outcome.content is None and outcome.result is None:
            text = outcome.error or outcome.outcome
        more: dict[str, Any] = {}
        if outcome.outcome == "denied":
            more["toolUseResult"] = REJECTED
        elif not failed and outcome.result is not None and outcome.content is not None:
            more["toolUseResult"] = outcome.result
        if isinstance(ended, ev.ToolFinished) and not _plain(ended):
            names = [name for name in ended.__struct_fields__ if name != "call"]
            more[OURS] = {"results": {id: {name: getattr(ended, name) for name in names}}}
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed}
        self._line("user", {"role": "user", "content": [block]}, event, 0, **more)


def _plain(ended: ev.ToolFinished) -> bool:
    """Whether a result is read back as it is without more being kept."""
    rest = ev.ToolFinished(call=ended.call, result=ended.result, content=ended.content)
    told = isinstance(ended.result, str) and ended.content is None
    apart = ended.result is not None and ended.content is not None
    return ended == rest and (told or apart)


def _is_thinking(part: Any) -> bool:
    """Whether a part is a block of Claude's own that it can read again."""
    if not isinstance(part, dict):
        return False
    if part.get("type") == "thinking":
        return isinstance(part.get("thinking"), str) and bool(part.get("signature"))
    return part.get("type") == "redacted_thinking"


def _words(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
