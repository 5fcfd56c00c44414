"""Results that are too large for a prompt: what the model reads of them, and the tool with which it
reads on. The same result gives the same text, byte for byte.

A stored result is searched for plain text, never for a pattern: a pattern of a model could take
forever.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from .definition import Tool, ToolContext, tool
from .values import ToolResult

READ = "read_result"  # the name of the tool
LIMIT = 50_000  # characters of a result that the model reads as a whole, by default
SHOWN = 8_000  # characters of a larger result that it reads; a quarter of them is the end
PAGE = 10_000  # characters that one call of the tool returns
HITS = 20  # places that one search returns
AROUND = 200  # characters around each of them


class StoredResult(ToolResult, frozen=True, kw_only=True, omit_defaults=True):
    """A result whose full text is a blob of the session; `content` is a preview. `stored` is the
    reference to the blob, in a list."""

    stored: list[Any] = []


def preview(text: str, limit: int, call: str, hint: bool = True) -> str:
    """Return the head and the tail of a text, with the number of characters left out."""
    shown = min(limit, SHOWN)
    tail = shown // 4
    head = shown - tail
    left = len(text) - shown
    more = f": read on with {READ}(call={call!r}, offset={head})" if hint else ""
    return f"{text[:head]}\n[… {left} of {len(text)} characters left out{more} …]\n{text[-tail:]}"


def page_of(text: str, offset: int) -> ToolResult:
    """Return the part of a text that begins at an offset."""
    if offset >= len(text):
        problem = f"offset {offset} is past the end: the result has {len(text)} characters"
        return ToolResult(content=problem, failed=True, code="bad_offset")
    end = min(offset + PAGE, len(text))
    more = f"; read on with offset={end}" if end < len(text) else ", the end"
    return ToolResult(
        content=f"[characters {offset} to {end} of {len(text)}{more}]\n{text[offset:end]}"
    )


def found_in(text: str, search: str, offset: int) -> ToolResult:
    """Return the places after an offset where a text contains exactly these characters."""
    lines: list[str] = []
    at = text.find(search, offset)
    while at >= 0 and len(lines) < HITS:
        begin, end = max(0, at - AROUND), at + len(search) + AROUND
        lines.append(f"[offset {at}] {text[begin:end]}")
        at = text.find(search, at + len(search))
    if not lines:
        return ToolResult(content=f"[{search!r} does not occur after offset {offset}]")
    more = [f"[more places: search on with offset={at}]"] if at >= 0 else []
    return ToolResult(content="\n\n".join([*lines, *more]))


@tool(name=READ, repeat_safe=True, category="read", risk="read")
async def read_result(
    call: str,
    context: ToolContext,
    offset: Annotated[int, Meta(ge=0, le=1 << 40)] = 0,
    search: Annotated[str, Meta(min_length=1, max_length=200)] | None = None,
) -> ToolResult:
    """Read a part of an earlier tool result that was too long to be shown as a whole.

    Args:
        call: the id in the note where characters were left out
        offset: the number of the first character to read, or to search from
        search: plain text to find, upper and lower case as written; the answer lists the places
    """
    text = await context.stored_text(call)  # type: ignore[attr-defined]  # of Holdfast's own
    if text is None:
        problem = f"there is no stored result of call {call[:80]!r} in this conversation"
        return ToolResult(content=problem, failed=True, code="not_stored")
    return page_of(text, offset) if search is None else found_in(text, search, offset)


READ_RESULT: Tool = read_result
