"""`holdfast transcript`: the conversation of a thread, as text, as Markdown or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from cyclopts import Parameter, validators
from rich.text import Text

from ..log.events import Key
from ..log.transcript import Message, ToolCall
from ..stores.conversation import messages_of
from .event_text import PROBED, cut
from .options import DEFAULTS, Common, Session, Thread
from .output import json_text, plain, plain_lines
from .render import moment
from .show import Full

STYLES = {"user": "bold green", "assistant": "bold"}


async def transcript(
    session: Session,
    /,
    *,
    thread: Thread = "main",
    limit: Annotated[
        int | None,
        Parameter(
            help="Print only this number of messages, the newest ones. Default: all.",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    markdown: Annotated[bool, Parameter(help="Print Markdown.")] = False,
    full: Full = False,
    common: Common = DEFAULTS,
) -> None:
    """Print the conversation of a session.

    ```
    holdfast transcript customer-42
    holdfast transcript customer-42 --markdown --full > customer-42.md
    ```

    Shows what was said and which tools were called, with their results. Messages that a rewind
    removed are omitted. With `--json`, prints one object: `{"items": [MESSAGE, …]}`.
    """
    out = common.output()
    async with common.open() as store:
        messages = await messages_of(store, Key(common.tenant, session, thread), limit)
    if out.json:
        return out.emit({"items": messages})
    lines = _markdown(messages, full=full) if markdown else _text(messages, full=full)
    out.print(*lines)
    if not messages:
        out.remark("the conversation is empty")


def _text(messages: Iterable[Message], *, full: bool) -> Iterator[Text]:
    for message in messages:
        head = f"{_author(message)}  {moment(message.at)}{_note(message)}"
        yield Text(plain(head), STYLES[message.role])
        if message.text:
            yield Text(plain_lines(cut(message.text, full)))
        for part in _media(message):
            yield Text(plain(f"[{part}]"), "dim")
        for call in message.calls:
            yield Text(plain(f"→ {call.name}({json_text(call.arguments)})"), "yellow")
            yield Text(plain_lines(f"← {cut(_outcome(call), full)}"), "yellow")
        yield Text("")


def _markdown(messages: Iterable[Message], *, full: bool) -> Iterator[Text]:
    for message in messages:
        yield Text(plain(f"## {_author(message)}, {moment(message.at)}{_note(message)}") + "\n")
        if message.text:
            yield Text(plain_lines(cut(message.text, full)) + "\n")
        for part in _media(message):
            yield Text(plain(f"*{part}*") + "\n")
        for call in message.calls:
            yield Text(plain(f"**{call.name}**") + "\n")
            yield from _fenced(json_text(call.arguments), "json")
            yield from _fenced(plain_lines(cut(_outcome(call), full)), "")


def _fenced(text: str, language: str) -> Iterator[Text]:
    """Yield a code block whose fence is longer than any in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    yield Text(f"{fence}{language}\n{text}\n{fence}\n")


def _author(message: Message) -> str:
    return (message.actor or "user") if message.role == "user" else (message.model or "assistant")


def _note(message: Message) -> str:
    if message.erased is not None:
        return f" (erased: {message.erased})"
    if message.retracted:
        return " (interrupted, begun again)"
    return " (interrupted)" if message.interrupted else ""


def _media(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, dict) and "text" not in part:
            yield str(part.get("name") or part.get("media_type") or "attachment")


def _outcome(call: ToolCall) -> str:
    done = call.outcome
    if done is None:
        return PROBED.get(call.probed or "", "no result yet")
    said: Any = done.content if done.content is not None else done.result
    text = said if isinstance(said, str) else "" if said is None else json_text(said)
    return (
        text
        if done.outcome == "ok"
        else ": ".join(filter(None, (done.outcome, text or done.error)))
    )
