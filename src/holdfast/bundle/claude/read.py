"""Converts a Claude Code transcript and the transcripts of its sub-agents to a bundle. Messages,
answers, thinking, calls and results become events. Images and documents become blobs, and each
sub-agent becomes a thread. All other lines are stored unchanged, in the same kinds of events as in
`holdfast.adapters.claude`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...log import events as ev
from ...log.codec import LIMITS
from ...log.events import Scope
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..faults import invalid
from ..foreign_bundle import ForeignSession, check_session, pack
from ..foreign_log import LogBuilder, as_name, new_call_id
from ..json_values import JsonObject, as_dict, as_str
from .entries import ENTRY, METADATA, Entry, encode
from .files import ClaudeFiles, ClaudeSource, files_of
from .lines import (
    MESSAGES,
    TranscriptLine,
    as_blocks,
    conversation,
    is_block,
    parse_lines,
    split_sidechains,
    unique,
)

SOURCE, TARGET = "claude-code jsonl", "holdfast_bundle 1"
OURS = (
    "holdfast"  # the field in which `write_claude` keeps values without a field in Claude's format
)
REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "refusal": "filtered",
}
REJECTED = "User rejected tool use"
SHARED = ("cwd", "version", "gitBranch", "userType")  # stored once, for the whole session
LONGEST = 1_000  # maximum length of a shared field, in characters
# The fields of a line that become part of an event; a message keeps the others as metadata.
KNOWN = {"type", "message", "uuid", "timestamp", "parentUuid", "toolUseResult", "isSidechain", OURS}
KNOWN |= {"sessionId", "agentId", "sourceToolAssistantUUID"}


P = TypeVar("P", bound=ev.Payload)


async def read_claude(
    source: ClaudeSource, *, session: str | None = None, tenant: str = "main"
) -> tuple[Bundle, LossReport]:
    """Convert a transcript to a bundle; also returns what could not be converted.

    If `source` is a path, it is the path of a `SESSION.jsonl`; sub-agents are read from the folder
    `SESSION` next to it. Raises `InvalidBundle` if the file contains no conversation. Lines that
    cannot be read are omitted and reported. A call without a result stays open and is never
    repeated automatically.

    See [other formats](../interchange.md).
    """
    losses = Losses()
    files = await asyncio.to_thread(files_of, source)
    found = await asyncio.to_thread(convert, files, losses, session, tenant)
    return await pack(found), losses.report(SOURCE, TARGET)


def convert(
    files: ClaudeFiles, losses: Losses, session: str | None = None, tenant: str = "main"
) -> ForeignSession:
    """Convert the files of a session to logs. Pure."""
    lines, sidechains = split_sidechains(_lines(files.main, "main", losses))
    messages = conversation(lines)
    if not messages:
        raise invalid("missing", "main", "contains no message")
    first = next(line for line in lines if line.number in messages)
    name = session or files.session or first.entry.get("sessionId")
    name = check_session(name, "wrong_type", "sessionId")
    found = {n: text for n in SHARED if (text := first.text(n)) is not None}
    shared = {n: text for n, text in found.items() if len(text) <= LONGEST}
    main = LogBuilder("main", "claude:")
    made = ev.SessionCreated(workspace=as_name(shared.get("cwd")), metadata={"claude": shared})
    main.add("session.created", made, at=first.at)
    converter = _Converter(main, losses, {}, "main", shared)
    converter.convert(lines, messages)
    logs = [main, *_agents(files, sidechains, converter)]
    return ForeignSession(
        scope=Scope(tenant, name),
        logs=tuple(logs),
        blobs=tuple(converter.blobs.values()),
        metadata={"claude": {**shared, "agents": len(files.agents)}},
    )


def _agents(
    files: ClaudeFiles, sidechains: Mapping[str, list[TranscriptLine]], main: _Converter
) -> Iterator[LogBuilder]:
    """Return the sub-agents, from their own files and from the file of the session."""
    found = {name: _lines(text, name, main.losses) for name, text in files.agents.items()}
    found |= {f"subagents/agent-{name}": lines for name, lines in sidechains.items()}
    for name, lines in found.items():
        about = files.about.get(name, {})
        made = ev.ThreadCreated(
            agent=as_name(about.get("agentType")),
            title=as_str(about.get("description")),
            parent="main",
            call=main.spawned.get(name.rpartition("/")[2].removeprefix("agent-")),
        )
        log = LogBuilder(_thread(name), "claude:")
        log.add("thread.created", made, at=lines[0].at if lines else None)
        if about:
            log.add(ENTRY, {**about, "type": METADATA})
        converter = _Converter(log, main.losses, main.blobs, name, main.shared)
        converter.convert(lines, conversation(lines))
        yield log


def _thread(name: str) -> str:
    plain = "".join(c if c.isprintable() else "_" for c in name)
    if len(plain.encode("utf-8", "replace")) <= LIMITS.name_bytes and plain != "main":
        return plain
    return "agent:" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def _lines(text: bytes, name: str, losses: Losses) -> list[TranscriptLine]:
    """Return the readable lines of a transcript, without duplicates."""
    lines, bad = parse_lines(text)
    lines, duplicates = unique(lines)
    found = [(one.number, "a line", one.problem) for one in bad]
    found += [(one.number, "a line", "an earlier line has the same uuid") for one in duplicates]
    changed = "characters or numbers of a line", "they are not valid Unicode, or too large"
    found += [(one.number, *changed) for one in lines if one.changed]
    for number, what, why in found:
        losses.add(f"{name}[{number}]", what, why)
    return lines


class _Converter:
    """Converts one transcript into events."""

    def __init__(
        self,
        log: LogBuilder,
        losses: Losses,
        blobs: dict[str, bytes],
        path: str,
        shared: Mapping[str, str],
    ) -> None:
        self.losses, self.blobs, self.shared = losses, blobs, shared
        self._log, self._path = log, path
        self._names: dict[str, str] = {}  # Claude's id of a call: its id here
        self.spawned: dict[str, str] = {}  # a sub-agent's id: the call that started it

    def convert(self, lines: Sequence[TranscriptLine], messages: set[int]) -> None:
        place = 0
        while place < len(lines):
            line = lines[place]
            if line.number not in messages:
                self._verbatim(line)
            elif line.entry["type"] == "user":
                self._user(line)
            else:
                place = self._assistant(lines, place, messages)
                continue
            place += 1
        for call in self._log.leave_open():
            self.losses.add(self._path, f"the result of call {call!r}", "the call is still open")

    def _lost(self, line: TranscriptLine, what: str, why: str, **more: Any) -> None:
        self.losses.add(f"{self._path}[{line.number}]", what, why, **more)

    def _verbatim(self, line: TranscriptLine) -> None:
        """Store a line unchanged, because it is not a message of this conversation."""
        kind = str(line.entry.get("type"))
        if kind in MESSAGES:
            what, why = "a message of another branch", "the conversation continued elsewhere"
        else:
            what, why = f"a line of type {kind!r}", "it is not a message"
        self._store(line, what, why)

    def _store(self, line: TranscriptLine, what: str, why: str) -> None:
        self._log.add(*encode(line.entry), at=line.at, id=_id(line))
        self._lost(line, what, why, kept=ENTRY)

    def _user(self, line: TranscriptLine) -> None:
        entry = line.entry
        results = [block for block in line.blocks if is_block(block, "tool_result")]
        for block in results:
            self._result(line, block, alone=len(results) == 1)
        others = [block for block in line.blocks if not is_block(block, "tool_result")]
        if not others and results:
            self._other_fields_lost(line)
            return
        text, parts = self._content(line, others)
        if entry.get("isCompactSummary") is True:  # it replaces everything before it
            made = ev.CompactionMade(upto=len(self._log.events), summary=text)
            self._log.add("compaction.made", made, at=line.at, id=_id(line))
            return
        more = {name: entry[name] for name in self._other_fields(entry)}
        found = {"text": text, "parts": parts, "metadata": {"claude": more} if more else {}}
        message = _restored(ev.MessageReceived, found, kept := _ours(line))
        self._log.received(message, at=line.at, id=_id(line), actor=as_name(kept.get("actor")))

    def _other_fields(self, entry: Entry) -> list[str]:
        """Return the unknown fields of a line, except the fields that are stored once for the whole
        session."""
        same = {name for name, value in self.shared.items() if entry.get(name) == value}
        return sorted(entry.keys() - KNOWN - same)

    def _other_fields_lost(self, line: TranscriptLine) -> None:
        for name in self._other_fields(line.entry):
            path = f"{self._path}[{line.number}].{name}"
            self.losses.add(path, "a field of a line", "no counterpart")

    def _content(self, line: TranscriptLine, blocks: Sequence[Any]) -> tuple[str, list[Any]]:
        texts, parts = list[str](), list[Any]()
        for block in blocks:
            if (text := _text(block)) is not None:
                texts.append(text)
                continue
            blob = self._blob(block) if is_block(block, "image", "document") else None
            parts.append(blob or block)
            if blob is None:
                kind = as_dict(block).get("type")
                self._lost(line, f"a block {kind!r}", "unknown type of block", kept="parts")
        return "\n\n".join(texts), parts

    def _blob(self, block: Entry) -> Entry | None:
        """Create a blob for the bytes in a block; None if the block does not contain its bytes."""
        source = as_dict(block.get("source"))
        if source.get("type") != "base64":
            return None
        try:
            data = base64.b64decode(source.get("data", ""), validate=True)
        except (binascii.Error, ValueError, TypeError):
            return None
        if len(data) > LIMITS.blob_bytes:
            return None
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        kind = as_str(source.get("media_type"))
        return {
            "type": "blob",
            "sha256": digest,
            "size": len(data),
            "media_type": "application/octet-stream" if kind is None else kind,
            "name": as_str(block.get("title")),
        }

    def _result(self, line: TranscriptLine, block: Entry, *, alone: bool) -> None:
        named = str(block.get("tool_use_id"))
        text, refs = self._content(line, as_blocks(block.get("content") or []))
        structured = line.entry.get("toolUseResult") if alone else None
        failed = block.get("is_error") is True
        rejected = failed and structured == REJECTED
        found = {
            "call": self._names.get(named, ""),
            "outcome": "denied" if rejected else "failed" if failed else "ok",
            "result": text if failed or structured is None else structured,
            "content": text if failed or structured is not None else None,
            "error": text if failed else None,
            "refs": refs,
        }
        ended = _restored(ev.ToolFinished, found, _ours(line, "results", named))
        if (agent := as_str(as_dict(structured).get("agentId"))) is not None:
            self.spawned[agent] = ended.call
        if not self._log.finished(ended, at=line.at):
            self._store(line, "the result of a call", "no open call has this id")

    def _assistant(self, lines: Sequence[TranscriptLine], place: int, messages: set[int]) -> int:
        """Convert an answer, which may span several lines; return the position after it."""
        id = lines[place].answer
        after = place + 1
        # If results of calls are between the lines of an answer, it becomes two messages.
        while after < len(lines) and id is not None:
            if lines[after].number not in messages or lines[after].answer != id:
                break
            after += 1
        self._answer(lines[place:after])
        return after

    def _answer(self, lines: Sequence[TranscriptLine]) -> None:
        texts, thoughts = list[str](), list[str]()
        parts, calls = list[Any](), list[ev.Call]()
        for line in lines:
            self._other_fields_lost(line)
            for block in line.blocks:
                if (text := _text(block)) is not None:
                    texts.append(text)
                elif is_block(block, "tool_use") and isinstance(block.get("name"), str):
                    calls.append(self._call(block, line))
                else:
                    parts.append(block)
                    thoughts += [text] if (text := _text(block, "thinking")) is not None else []
        last = lines[-1]
        message = last.entry["message"]
        found = {
            "text": "\n\n".join(texts),
            "parts": parts,
            "calls": msgspec.to_builtins(calls),
            "model": _model(message.get("model")),
            "usage": self._usage(message.get("usage"), last),
            "thought": "\n\n".join(thoughts),
            "reason": REASONS.get(str(message.get("stop_reason"))),
        }
        kept = {name: value for name, value in _ours(last).items() if name != "calls"}
        completed = _restored(ev.MessageCompleted, found, kept)
        for lost in self._log.completed(completed, at=last.at, id=_id(lines[0])):
            why = "the transcript has no result; it is unknown whether the call took effect"
            self.losses.add(self._path, f"the result of call {lost!r}", why)

    def _call(self, block: Entry, line: TranscriptLine) -> ev.Call:
        wanted = as_str(block.get("id")) or ""
        found = {
            "id": wanted,
            "name": block["name"],
            "arguments": block.get("input"),
            "provider_id": wanted or None,
        }
        call = _restored(ev.Call, found, _ours(line, "calls", wanted))
        self._names[wanted] = new_call_id(self._log.thread, call.id, set(self._names.values()))
        return msgspec.structs.replace(call, id=self._names[wanted])

    def _usage(self, usage: Any, line: TranscriptLine) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, value in as_dict(usage).items():
            if isinstance(value, int) and not isinstance(value, bool):
                found[name] = value
            elif value is not None:
                path = f"{self._path}[{line.number}].message.usage.{name}"
                self.losses.add(path, "a usage value", "it is not a number")
        return found


def _text(block: Any, type: str = "text") -> str | None:
    """Return the text of a block of this type; None for other blocks."""
    return as_str(block.get(type)) if is_block(block, type) else None


def _ours(line: TranscriptLine, *path: str) -> JsonObject:
    """Return the values at `path` in the field `holdfast` of a line, where `write_claude` stored
    them.
    """
    kept = line.entry.get(OURS)
    for name in path:
        kept = as_dict(kept).get(name)
    return as_dict(kept)


def _restored(type: type[P], found: JsonObject, kept: JsonObject) -> P:
    """Return the payload of a line with the fields that `write_claude` stored in it. Invalid fields
    are ignored.
    """
    try:
        return msgspec.convert({**found, **kept}, type)
    except msgspec.ValidationError:
        return msgspec.convert(found, type)


def _id(line: TranscriptLine) -> str | None:
    uuid = line.text("uuid")
    return f"claude:{uuid}" if uuid else None


def _model(name: Any) -> str | None:
    """Return a reference to an Anthropic model; None for messages that Claude Code wrote itself."""
    if not isinstance(name, str) or not name or name.startswith("<"):
        return None
    return name if "/" in name else f"anthropic/{name}"
