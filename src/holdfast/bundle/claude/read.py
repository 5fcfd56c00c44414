"""From Claude Code to Holdfast: a transcript and those of its sub-agents as a bundle of ours.

People's messages, answers, thoughts, calls and their results become events; images and documents
become blobs; each sub-agent a thread. A line that is none of these stands verbatim in the log, as
the event that the adapter for Claude's sessions writes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...errors import InvalidValue
from ...log import events as ev
from ...log.codec import LIMITS, check_name, too_deep
from ...log.events import Scope, to_json
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..foreign_bundle import Packed, packed
from ..foreign_log import Telling, as_name, new_call_id
from .files import ClaudeFiles, ClaudeSource, files_of, refused
from .lines import Entry, Line, answer, apart, at, blocks, conversation, parsed, unique

SOURCE, TARGET = "claude-code jsonl", "holdfast_bundle 1"
ENTRY, TEXT = "claude.entry", "claude.entry.text"
OURS = "holdfast"  # the field of a line in which `write_claude` keeps what Claude has no word for
REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "refusal": "filtered",
}
REJECTED = "User rejected tool use"
SAME = ("cwd", "version", "gitBranch", "userType")  # what is said once, for the whole session
LONG = 1_000  # characters of such a thing
# What a line says of itself; where it has more, that is kept beside the message.
PLAIN = {"type", "message", "uuid", "timestamp", "parentUuid", "toolUseResult", "isSidechain", OURS}
PLAIN |= {"sessionId", "agentId", "sourceToolAssistantUUID"}


P = TypeVar("P", bound=ev.Payload)


async def read_claude(
    source: ClaudeSource, *, session: str | None = None, tenant: str = "main"
) -> tuple[Bundle, LossReport]:
    """The bundle of a transcript, and what could not be carried over.

    A path is that of a `SESSION.jsonl`; the sub-agents are looked for in the folder `SESSION`
    beside it. `InvalidBundle` when there is no conversation in it. A line that cannot be read is
    left out and reported. A call without a result is open, and never made again unasked.
    """
    losses = Losses()
    files = await asyncio.to_thread(files_of, source)
    what = await asyncio.to_thread(converted, files, losses, session, tenant)
    return await packed(what), losses.report(SOURCE, TARGET)


def converted(
    files: ClaudeFiles, losses: Losses, session: str | None = None, tenant: str = "main"
) -> Packed:
    """The logs of a session's files. Pure."""
    lines, inside = apart(_lines(files.main, "main", losses))
    spoken = conversation(lines)
    if not spoken:
        raise refused("missing", "main", "has no message of anybody")
    first = next(line.entry for line in lines if line.number in spoken)
    name = session or files.session or first.get("sessionId")
    try:
        check_name("session", name)
    except InvalidValue as error:
        raise refused("wrong_type", "sessionId", "is no name for a session") from error
    blobs: dict[str, bytes] = {}
    main = Telling("main", "claude:")
    about = {n: first[n] for n in SAME if isinstance(first.get(n), str) and len(first[n]) <= LONG}
    made = ev.SessionCreated(workspace=as_name(about.get("cwd")), metadata={"claude": about})
    main.add("session.created", made, at=at(first))
    told = _Told(main, losses, blobs, "main", about)
    told.tell(lines, spoken)
    logs = [main, *_agents(files, inside, told)]
    return Packed(
        scope=Scope(tenant, str(name)),
        logs=tuple(logs),
        blobs=tuple(blobs.values()),
        metadata={"claude": {**about, "agents": len(files.agents)}},
    )


def _agents(files: ClaudeFiles, inside: Mapping[str, list[Line]], main: _Told) -> Iterator[Telling]:
    """Sub-agents with files of their own, and those among the lines of the session."""
    found = {name: _lines(text, name, main.losses) for name, text in files.agents.items()}
    found |= {f"subagents/agent-{name}": lines for name, lines in inside.items()}
    for name, lines in found.items():
        about = files.about.get(name, {})
        agent = name.rpartition("/")[2].removeprefix("agent-")
        made = ev.ThreadCreated(
            agent=as_name(about.get("agentType")),
            title=_text(about.get("description")),
            parent="main",
            call=main.spawned.get(agent),
        )
        log = Telling(_thread(name), "claude:")
        log.add("thread.created", made, at=at(lines[0].entry) if lines else None)
        if about:
            log.add(ENTRY, {**about, "type": "agent_metadata"})
        told = _Told(log, main.losses, main.blobs, name, main.about)
        told.tell(lines, conversation(lines))
        yield log


def _thread(name: str) -> str:
    plain = "".join(c if c.isprintable() else "_" for c in name)
    if len(plain.encode("utf-8", "replace")) <= LIMITS.name_bytes and plain != "main":
        return plain
    return "agent:" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()


def _lines(text: bytes, name: str, losses: Losses) -> list[Line]:
    """The lines of a transcript that can be read, each once."""
    lines, bad = parsed(text)
    for one in bad:
        losses.add(f"{name}[{one.number}]", "a line", one.problem)
    lines, again = unique(lines)
    for line in again:
        losses.add(f"{name}[{line.number}]", "a line", "a line before it has its uuid")
    for line in lines:
        if line.changed:
            what, why = "characters or numbers of a line", "they are no Unicode, or too large"
            losses.add(f"{name}[{line.number}]", what, why)
    return lines


class _Told:
    """One transcript in our words."""

    def __init__(
        self,
        log: Telling,
        losses: Losses,
        blobs: dict[str, bytes],
        path: str,
        about: Mapping[str, str],
    ) -> None:
        self.losses, self.blobs, self.about = losses, blobs, about
        self._log, self._path = log, path
        self._names: dict[str, str] = {}  # Claude's id of a call: ours
        self.spawned: dict[str, str] = {}  # a sub-agent's id: the call that it is

    def tell(self, lines: Sequence[Line], spoken: set[int]) -> None:
        place = 0
        while place < len(lines):
            line = lines[place]
            if line.number not in spoken:
                self._verbatim(line)
            elif line.entry["type"] == "user":
                self._user(line)
            else:
                place = self._assistant(lines, place, spoken)
                continue
            place += 1
        for call in self._log.left_open():
            what = f"the result of call {call!r}"
            self.losses.add(self._path, what, "there is none; the call is open")

    def _where(self, line: Line) -> str:
        return f"{self._path}[{line.number}]"

    def _verbatim(self, line: Line) -> None:
        """A line that is no message of this conversation, as it is."""
        kind = str(line.entry.get("type"))
        other = kind in ("user", "assistant")
        what = "a message of another branch" if other else f"a line of type {kind!r}"
        why = "the conversation went on elsewhere" if other else "it is no message"
        self._log.add(*_entry(line.entry), at=at(line.entry), id=_id(line.entry))
        self.losses.add(self._where(line), what, why, kept=ENTRY)

    def _user(self, line: Line) -> None:
        entry = line.entry
        found = blocks(entry)
        results = [b for b in found if isinstance(b, dict) and b.get("type") == "tool_result"]
        for block in results:
            self._result(line, block, alone=len(results) == 1)
        others = [b for b in found if not any(b is r for r in results)]
        if not others and results:
            self._rest(line)
            return
        if entry.get("isCompactSummary") is True:
            self._compacted(line, others)
            return
        text, parts = self._content(line, others)
        more = {name: entry[name] for name in self._beside(entry)}
        told = {"text": text, "parts": parts, "metadata": {"claude": more} if more else {}}
        message = _restored(ev.MessageReceived, told, kept := ours(entry))
        self._log.heard(message, at=at(entry), id=_id(entry), actor=as_name(kept.get("actor")))

    def _compacted(self, line: Line, found: Sequence[Any]) -> None:
        """A summary is read in place of all that was said before it."""
        summary, _ = self._content(line, found)
        made = ev.CompactionMade(upto=len(self._log.events), summary=summary)
        self._log.add("compaction.made", made, at=at(line.entry), id=_id(line.entry))

    def _beside(self, entry: Entry) -> list[str]:
        """The fields of a line that the session does not say once and for all."""
        said = {name for name, value in self.about.items() if entry.get(name) == value}
        return sorted(entry.keys() - PLAIN - said)

    def _rest(self, line: Line) -> None:
        """What a line says beside its message, where an event has no room for it."""
        for name in self._beside(line.entry):
            self.losses.add(f"{self._where(line)}.{name}", "a field of a line", "no counterpart")

    def _content(self, line: Line, found: Sequence[Any]) -> tuple[str, list[Any]]:
        texts, parts = list[str](), list[Any]()
        for block in found:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text" and isinstance(block.get("text"), str):
                texts.append(block["text"])
            elif kind in ("image", "document") and (blob := self._blob(block)) is not None:
                parts.append(blob)
            else:
                parts.append(block)
                what, why = f"a block {kind!r}", "it is not known here"
                self.losses.add(self._where(line), what, why, kept="parts")
        return "\n\n".join(texts), parts

    def _blob(self, block: Entry) -> Entry | None:
        """A blob in place of bytes that stand in a block; None for other sources of them."""
        source = block.get("source")
        if not isinstance(source, dict) or source.get("type") != "base64":
            return None
        try:
            data = base64.b64decode(source.get("data", ""), validate=True)
        except (binascii.Error, ValueError, TypeError):
            return None
        if len(data) > LIMITS.blob_bytes:
            return None
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        kind = source.get("media_type")
        media = kind if isinstance(kind, str) else "application/octet-stream"
        name = block.get("title")
        about = {"type": "blob", "sha256": digest, "size": len(data), "media_type": media}
        return {**about, "name": name if isinstance(name, str) else None}

    def _result(self, line: Line, block: Entry, *, alone: bool) -> None:
        entry, named = line.entry, block.get("tool_use_id")
        content = block.get("content")
        inner = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        text, refs = self._content(line, inner if isinstance(inner, list) else [inner])
        structured = entry.get("toolUseResult") if alone else None
        failed = block.get("is_error") is True
        rejected = failed and structured == REJECTED
        told = {
            "call": self._names.get(str(named), ""),
            "outcome": "denied" if rejected else "failed" if failed else "ok",
            "result": text if failed or structured is None else structured,
            "content": text if failed or structured is not None else None,
            "error": text if failed else None,
            "refs": refs,
        }
        kept = ours(entry).get("results")
        about = kept.get(str(named)) if isinstance(kept, dict) else None
        ended = _restored(ev.ToolFinished, told, about if isinstance(about, dict) else {})
        if isinstance(structured, dict) and isinstance(structured.get("agentId"), str):
            self.spawned[structured["agentId"]] = ended.call
        if not self._log.ended(ended, at=at(entry)):
            why = "no open call has its id"
            self._log.add(*_entry(entry), at=at(entry), id=_id(entry))
            self.losses.add(self._where(line), "the result of a call", why, kept=ENTRY)

    def _assistant(self, lines: Sequence[Line], place: int, spoken: set[int]) -> int:
        """Tell an answer, which may be on several lines; the place behind it."""
        id = answer(lines[place].entry)
        mine = [lines[place]]
        after = place + 1
        # Results of calls stand between the lines of one answer; then it was two messages here.
        while after < len(lines) and id is not None:
            if lines[after].number not in spoken or answer(lines[after].entry) != id:
                break
            mine.append(lines[after])
            after += 1
        self._answer(mine)
        return after

    def _answer(self, lines: Sequence[Line]) -> None:
        texts, thoughts = list[str](), list[str]()
        parts, calls = list[Any](), list[ev.Call]()
        for line in lines:
            self._rest(line)
            for block in blocks(line.entry):
                kind = block.get("type") if isinstance(block, dict) else None
                if kind == "text" and isinstance(block.get("text"), str):
                    texts.append(block["text"])
                elif kind == "tool_use" and isinstance(block.get("name"), str):
                    calls.append(self._call(block, line))
                else:
                    if kind == "thinking" and isinstance(block.get("thinking"), str):
                        thoughts.append(block["thinking"])
                    parts.append(block)
        last, first = lines[-1].entry, lines[0].entry
        message = last["message"]
        told = {
            "text": "\n\n".join(texts),
            "parts": parts,
            "calls": msgspec.to_builtins(calls),
            "model": _model(message.get("model")),
            "usage": self._usage(message.get("usage"), lines[-1]),
            "thought": "\n\n".join(thoughts),
            "reason": REASONS.get(str(message.get("stop_reason"))),
        }
        kept = {name: v for name, v in ours(last).items() if name != "calls"}
        said = _restored(ev.MessageCompleted, told, kept)
        for lost in self._log.said(said, at=at(last), id=_id(first)):
            why = "there is none; it is unknown whether the call acted"
            self.losses.add(self._path, f"the result of call {lost!r}", why)

    def _call(self, block: Entry, line: Line) -> ev.Call:
        wanted = block.get("id") if isinstance(block.get("id"), str) else ""
        known = ours(line.entry).get("calls")
        about = known.get(wanted) if isinstance(known, dict) else None
        told = {
            "id": wanted,
            "name": block["name"],
            "arguments": block.get("input"),
            "provider_id": wanted or None,
        }
        call = _restored(ev.Call, told, about if isinstance(about, dict) else {})
        id = new_call_id(self._log.thread, call.id, set(self._names.values()))
        self._names[str(wanted)] = id
        return msgspec.structs.replace(call, id=id)

    def _usage(self, usage: Any, line: Line) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, value in (usage if isinstance(usage, dict) else {}).items():
            if isinstance(value, int) and not isinstance(value, bool):
                found[name] = value
            elif value is not None:
                path = f"{self._where(line)}.message.usage.{name}"
                self.losses.add(path, "what was used", "it is no count")
        return found


def ours(entry: Entry) -> dict[str, Any]:
    """What `write_claude` kept in a line beside Claude's own fields."""
    kept = entry.get(OURS)
    return kept if isinstance(kept, dict) else {}


def _restored(type: type[P], told: dict[str, Any], kept: dict[str, Any]) -> P:
    """The payload as a line tells it, or as it was before `write_claude` put it into Claude's
    words; what does not fit counts as not there."""
    try:
        return msgspec.convert({**told, **kept}, type)
    except msgspec.ValidationError:
        return msgspec.convert(told, type)


def _entry(entry: Entry) -> tuple[str, Any]:
    """A line as the kind and the payload of an event; one that no store takes, as text."""
    try:
        data = to_json(entry)
        if not too_deep(bytes(data)):
            return ENTRY, data
    except InvalidValue:
        pass
    return TEXT, {"text": json.dumps(entry, separators=(",", ":"))}


def _id(entry: Entry) -> str | None:
    uuid = entry.get("uuid")
    return f"claude:{uuid}" if isinstance(uuid, str) and uuid else None


def _model(name: Any) -> str | None:
    """A reference to a model of Anthropic's; what Claude Code writes itself has none."""
    if not isinstance(name, str) or not name or name.startswith("<"):
        return None
    return name if "/" in name else f"anthropic/{name}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
