"""Converts a bundle to a Claude Code transcript, and each sub-agent to a transcript of its own.

As in Claude Code, each block of an answer is a line, and each line contains the id of the previous
line. Values without a field in Claude's format are kept in the field `holdfast` of a line; Claude
Code ignores it, and `read_claude` reads it back. Blocking if the parts of the bundle are in a file.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

from ...errors import BlobNotFound
from ...log import events as ev
from ...log.codec import typed
from ...log.conversation import conversation
from ...log.events import Event
from ...log.transcript import Message, Outcome, ToolCall, transcript
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..format import Thread
from ..json_values import JsonObject, as_dict, to_text
from ..timestamps import rfc3339
from .entries import KINDS, Entry, decode, is_metadata, to_lines
from .files import ClaudeFiles
from .lines import MESSAGES, is_block
from .read import OURS, REASONS, REJECTED

SOURCE, TARGET = "holdfast_bundle 1", "claude-code jsonl"
NAMESPACE = uuid.UUID("8d1c9a52-6d0e-5f0b-9a44-5f2a3f0a7c11")  # of the generated ids
EMPTY = "(no content)"
STOPS = {reason: stop for stop, reason in reversed(REASONS.items())}
EXTRA = (*KINDS, "compaction.made")  # events that become lines in addition to the messages
CONVERTED = {"message.received", "message.completed", "message.interrupted", "tool.finished"}
CONVERTED |= {*EXTRA, "session.created", "thread.created"}
_CALL = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def write_claude(bundle: Bundle) -> tuple[ClaudeFiles, LossReport]:
    """Convert a bundle to the files of a Claude Code session; also returns what could not be
    converted. The same bundle yields the same bytes. Messages, calls and results survive a round
    trip.

    See [other formats](../interchange.md).
    """
    losses = Losses()
    session = _session(bundle.document.session.session, losses)
    children = {child.thread for child in bundle.document.replay.children}
    agents: dict[str, bytes] = {}
    about: dict[str, JsonObject] = {}
    main = b""
    for thread in bundle.document.threads:
        written = _Writer(bundle, thread, session, losses).text()
        if thread.thread == "main":
            main = written
            continue
        name = _agent(thread.thread, agents)
        agents[name] = written
        about[name] = {
            "agentType": thread.agent or "general-purpose",
            "description": thread.title or "",
        }
        path = f"threads[{thread.thread}]"
        if thread.shared:
            losses.add(path, "the parent of a forked thread", "Claude Code has only sub-agents")
        elif thread.thread in children:
            why = "Claude Code stores it in the result of the call"
            losses.add(path, "the call that started a sub-agent", why)
    files = ClaudeFiles(session=session, main=main, agents=agents, about=about)
    return files, losses.report(SOURCE, TARGET)


def _session(id: str, losses: Losses) -> str:
    """Return the session id as a UUID, which Claude Code requires."""
    try:
        if str(uuid.UUID(id)) == id:
            return id
    except ValueError:
        pass
    losses.add("session.session", "the session's id", "a UUID derived from it is used instead")
    return str(uuid.uuid5(NAMESPACE, id))


def _agent(thread: str, taken: dict[str, bytes]) -> str:
    """Return the name of a sub-agent's file, without its suffix."""
    if re.fullmatch(r"subagents/agent-[A-Za-z0-9_-]{1,64}", thread) and thread not in taken:
        return thread
    return f"subagents/agent-{hashlib.sha256(thread.encode()).hexdigest()[:16]}"


class _Writer:
    """Converts one thread to the lines of a transcript."""

    def __init__(self, bundle: Bundle, thread: Thread, session: str, losses: Losses) -> None:
        self._bundle, self._thread, self._losses = bundle, thread, losses
        events = list(bundle.events(thread.thread))
        self._events = conversation(events)
        self._rewound = len(events) - len(self._events)
        self._by_seq = {event.seq: event for event in self._events}
        self._calls: dict[str, str] = {}  # our id of a call: Claude's
        self._last: str | None = None
        self._lines: list[Entry] = []
        facts = bundle.document.session
        claude = as_dict(facts.metadata.get("claude"))
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
        found: list[tuple[int, Message | Event]] = [(m.seq, m) for m in transcript(self._events)]
        found += [(e.seq, e) for e in self._events if e.kind in EXTRA]
        for _, one in sorted(found, key=lambda pair: pair[0]):
            if isinstance(one, Event) and one.kind == "compaction.made":
                self._summary(one)
            elif isinstance(one, Event):
                self._verbatim(one)
            elif one.role == "user":
                self._user(one)
            else:
                self._answer(one)
        path = f"threads[{self._thread.thread}]"
        for event in self._events:
            if event.kind not in CONVERTED:
                self._losses.add(path, f"an event {event.kind}", "Claude Code has no such event")
        for _ in range(self._rewound):
            self._losses.add(
                path, "an event that was rewound away", "it is not in the conversation"
            )
        return to_lines(self._lines)

    def _lost(self, seq: int, what: str, why: str, **more: Any) -> None:
        self._losses.add(f"threads[{self._thread.thread}].events[{seq}]", what, why, **more)

    def _verbatim(self, event: Event) -> None:
        entry = decode(event)
        if not isinstance(entry, dict) or is_metadata(entry):
            return
        links = [name for name in ("logicalParentUuid", "parentUuid") if name in entry]
        if entry.get("parentUuid") is not None:
            links = ["parentUuid"]
        # A line of another branch stays there; any other linked line is part of the chain.
        other = entry.get("type") in MESSAGES
        if links and isinstance(entry.get("uuid"), str) and not other:
            entry = {**entry, links[0]: self._last}
            self._last = entry["uuid"]
        self._lines.append(entry)

    def _summary(self, event: Event) -> None:
        """Write a compaction as Claude Code does: a boundary, and a message with the summary."""
        made = typed(event)
        summary = made.summary if isinstance(made, ev.CompactionMade) else None
        if summary is None:
            self._lost(event.seq, "a compaction", "Claude Code needs a summary")
            return
        last = self._lines[-1] if self._lines else {}
        if last.get("subtype") != "compact_boundary":
            before, self._last = self._last, None
            mark = {"subtype": "compact_boundary", "content": "Conversation compacted"}
            self._line("system", {}, event, 1, logicalParentUuid=before, **mark)
            del self._lines[-1]["message"]
        message = {"role": "user", "content": summary}
        self._line("user", message, event, 0, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def _line(self, type: str, message: Entry, of: Event, number: int, **more: Any) -> None:
        """Add a line, linked to the previous one."""
        id = of.id.removeprefix("claude:") if number == 0 else ""
        if not id or id == of.id:
            place = f"{self._common['sessionId']}/{self._thread.thread}/{of.seq}/{number}"
            id = str(uuid.uuid5(NAMESPACE, place))
        head = {"parentUuid": self._last, **self._common, "type": type, "message": message}
        self._lines.append({**head, "uuid": id, "timestamp": rfc3339(of.at), **more})
        self._last = id

    def _user(self, message: Message) -> None:
        event = self._by_seq[message.seq]
        kept: Entry = {}
        more: Entry = {}
        metadata = message.metadata
        if list(metadata) == ["claude"] and isinstance(metadata["claude"], dict):
            more = metadata["claude"]
        elif metadata:
            kept["metadata"] = metadata
        if event.actor is not None:
            kept["actor"] = event.actor
        found = [block for part in message.parts for block in self._block(part, message)]
        if any(is_block(b, "text") for b in found) or len(found) != len(message.parts):
            kept |= {"parts": message.parts, "text": message.text}
        content: Any = [*_text_block(message.text), *found]
        if not content:
            kept["text"] = ""
            content = EMPTY
        elif not found:
            content = message.text
        self._run_options(event)
        line = {"role": "user", "content": content}
        self._line("user", line, event, 0, **more, **({OURS: kept} if kept else {}))

    def _run_options(self, event: Event) -> None:
        payload = typed(event)
        if isinstance(payload, ev.MessageReceived):
            plain = ev.MessageReceived(
                text=payload.text, parts=payload.parts, metadata=payload.metadata
            )
            if plain != payload:
                self._lost(
                    event.seq, "options of a message for its run", "Claude Code has no such options"
                )

    def _block(self, part: Any, message: Message) -> Iterator[Entry]:
        """Convert a part of a user message to a block; to text if Claude does not accept such
        parts.
        """
        if not is_block(part, "blob"):
            self._lost(
                message.seq, "a part of a message", "Claude Code has no such block", kept=OURS
            )
            yield {"type": "text", "text": _as_text(part)}
            return
        kind, name = str(part.get("media_type")), part.get("name")
        block = "image" if kind.startswith("image/") else "document"
        try:
            if block == "document" and kind != "application/pdf":
                raise BlobNotFound(tenant="", session="", sha256="")
            data = base64.b64encode(self._bundle.blob(str(part.get("sha256")))).decode()
        except BlobNotFound:
            why = "it is missing, or of a type that Claude does not accept"
            self._lost(message.seq, "an attachment", why)
            yield from _text_block(f"[attachment: {name or kind}]")
            return
        title = {"title": name} if isinstance(name, str) else {}
        source = {"type": "base64", "media_type": kind, "data": data}
        yield {"type": block, "source": source, **title}

    def _answer(self, message: Message) -> None:
        event = self._by_seq[message.seq]
        payload = typed(event)
        whole = payload if isinstance(payload, ev.MessageCompleted) else ev.MessageCompleted()
        if message.interrupted:
            why = "Claude Code has no field for it"
            self._lost(message.seq, "the interruption of a message", why)
        bound = [part for part in message.parts if _is_thinking(part)]
        blocks: list[Entry] = [*bound, *_text_block(message.text)]
        kept = self._kept(message, whole, bound)
        asked = {}
        for call in message.calls:
            block, more = self._call(call)
            blocks.append(block)
            asked.update(more)
        if not blocks:
            blocks, kept["text"] = _text_block(EMPTY), ""
        head = {
            "id": f"msg_{uuid.uuid5(NAMESPACE, event.id).hex}",
            "type": "message",
            "role": "assistant",
            "model": (message.model or "<synthetic>").removeprefix("anthropic/"),
            "stop_reason": STOPS.get(whole.reason or "", "end_turn"),
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0, **whole.usage},
        }
        for number, block in enumerate(blocks):
            ours: Entry = dict(kept) if number == len(blocks) - 1 else {}
            if is_block(block, "tool_use") and block["id"] in asked:
                ours["calls"] = {block["id"]: asked[block["id"]]}
            more = {OURS: ours} if ours else {}
            self._line("assistant", {**head, "content": [block]}, event, number, **more)
        for call in message.calls:
            if call.outcome is not None:
                self._result(call, call.outcome)

    def _kept(self, message: Message, whole: ev.MessageCompleted, bound: list[Any]) -> Entry:
        """Return the fields that `read_claude` cannot restore from Claude's own fields."""
        kept: Entry = {}
        thoughts = [part["thinking"] for part in bound if is_block(part, "thinking")]
        if "\n\n".join(thoughts) != message.thought:
            kept["thought"] = message.thought
            self._lost(message.seq, "a thought", "it has no signature from the model", kept=OURS)
        if bound != message.parts:
            kept["parts"] = message.parts
            why = "it is in the format of another model"
            self._lost(message.seq, "a part of an answer", why, kept=OURS)
        if not (message.model or "").startswith("anthropic/"):
            kept["model"] = message.model
        if REASONS.get(STOPS.get(whole.reason or "", "end_turn")) != whole.reason:
            kept["reason"] = whole.reason
        if whole.cost is not None:
            kept["cost"] = whole.cost
        if not {"input_tokens", "output_tokens"} <= whole.usage.keys():
            kept["usage"] = whole.usage
        return kept

    def _call(self, call: ToolCall) -> tuple[Entry, Entry]:
        """Convert a call to a block. Also returns the fields that the block lacks, by Claude's call
        id.
        """
        taken = set(self._calls.values())
        valid = [id for id in (call.provider_id, call.id) if id and _CALL.fullmatch(id)]
        made = f"toolu_{hashlib.sha256(f'{self._thread.thread}/{call.id}'.encode()).hexdigest()}"
        id = next((id for id in valid if id not in taken), made[:64])
        self._calls[call.id] = id
        plain = isinstance(call.arguments, dict)
        kept: Entry = {} if plain else {"arguments": call.arguments}
        if call.id != id:
            kept["id"] = call.id
        if call.provider_id != id:
            kept["provider_id"] = call.provider_id
        arguments = call.arguments if plain else {}
        block = {"type": "tool_use", "id": id, "name": call.name, "input": arguments}
        return block, {id: kept} if kept else {}

    def _result(self, call: ToolCall, outcome: Outcome) -> None:
        event, id = self._by_seq[outcome.seq], self._calls[call.id]
        ended = typed(event)
        failed = outcome.outcome != "ok"
        text = outcome.content if outcome.content is not None else _as_text(outcome.result)
        if failed and outcome.content is None and outcome.result is None:
            text = outcome.error or outcome.outcome
        more: Entry = {}
        if outcome.outcome == "denied":
            more["toolUseResult"] = REJECTED
        elif not failed and outcome.result is not None and outcome.content is not None:
            more["toolUseResult"] = outcome.result
        if isinstance(ended, ev.ToolFinished) and not _is_plain(ended):
            names = [name for name in ended.__struct_fields__ if name != "call"]
            more[OURS] = {"results": {id: {name: getattr(ended, name) for name in names}}}
        block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed}
        self._line("user", {"role": "user", "content": [block]}, event, 0, **more)


def _text_block(text: str) -> list[Entry]:
    return [{"type": "text", "text": text}] if text else []


def _is_plain(ended: ev.ToolFinished) -> bool:
    """Return whether a result survives a round trip without extra fields."""
    rest = ev.ToolFinished(call=ended.call, result=ended.result, content=ended.content)
    text = isinstance(ended.result, str) and ended.content is None
    both = ended.result is not None and ended.content is not None
    return ended == rest and (text or both)


def _is_thinking(part: Any) -> bool:
    """Return whether a part is one of Claude's own thinking blocks, which Claude can read again."""
    if is_block(part, "thinking"):
        return isinstance(part.get("thinking"), str) and bool(part.get("signature"))
    return is_block(part, "redacted_thinking")


def _as_text(value: Any) -> str:
    return "" if value is None else to_text(value)
