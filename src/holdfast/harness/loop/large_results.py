"""Stores results that are too large for a prompt as blobs of the session, and reads them again."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import BlobNotFound, StoreError
from ...stores.port import BlobRef
from ..tools import Tool, ToolResult
from ..tools.stored_results import READ, READ_RESULT, StoredResult, preview
from .driver import Driving

JSON, TEXT = "application/json", "text/plain"


async def shortened(driving: Driving, tool: Tool, call: str, result: ToolResult) -> ToolResult:
    """Return the result as it is logged: if its text is longer than the limit, the text is stored
    as a blob, and the result has a preview. If the store does not take the blob, the result is
    logged as a whole."""
    limit = driving.config.result_limit if tool.result_limit is None else tool.result_limit
    text = result.content
    if (
        limit is None
        or len(text) <= limit
        or isinstance(result, StoredResult)
        or tool is READ_RESULT
    ):
        return result
    data = result.data
    same = data is not None and msgspec.json.encode(data).decode() == text
    about: dict[str, Any] = {"media_type": JSON if same else TEXT, "length": len(text)}
    try:
        ref = await driving.live.store.put_blob(driving.live.key.scope, text.encode())
    except StoreError as error:
        driving.log.warning("result_not_stored", category="storage", error=error, tool=tool.name)
        return result
    stored = [{"type": "blob", "sha256": ref.sha256, "size": ref.size, **about}]
    mine = driving.config.agent.tool(READ, driving.config.mode(driving.state)) is READ_RESULT
    fields = {name: getattr(result, name) for name in ToolResult.__struct_fields__}
    shown = preview(text, limit, call, hint=mine)
    return StoredResult(
        **{**fields, "content": shown, "data": None if same else data}, stored=stored
    )


async def stored_text(driving: Driving, stored: list[Any]) -> str | None:
    """Return the text of a stored result, or None if the store does not have it any more."""
    sha256 = next((one["sha256"] for one in stored if "sha256" in one), None)
    if sha256 is None:
        return None
    store, scope = driving.live.store, driving.live.key.scope
    try:
        return (await store.get_blob(scope, BlobRef(sha256, 0))).decode(errors="replace")
    except BlobNotFound:
        return None


async def whole_result(driving: Driving, result: StoredResult) -> ToolResult:
    """Return a stored result as its tool returned it; the preview, if the text is gone."""
    text = await stored_text(driving, result.stored)
    if text is None:
        return result
    fields = {name: getattr(result, name) for name in ToolResult.__struct_fields__}
    if result.stored[0].get("media_type") == JSON:
        fields["data"] = msgspec.json.decode(text)
    return ToolResult(**{**fields, "content": text})


def offered(driving: Driving) -> dict[str, Tool]:
    """Return the tools that the model may call now: those of the mode, and the one that reads
    stored results, if the conversation has any."""
    tools = driving.config.agent.tools_in(driving.config.mode(driving.state))
    if READ not in tools and driving.live.history.stored():
        return {**tools, READ: READ_RESULT}
    return tools
