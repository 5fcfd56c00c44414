"""The payloads of events about probes of tools."""

from __future__ import annotations

from typing import Literal

from .session_payloads import Payload


class ToolProbed(Payload, frozen=True, kw_only=True):
    """A tool's probe was asked whether a call whose outcome was lost took effect. If it
    `happened`, `tool.finished` with the result follows in the same append. If it did not, the call
    starts again. `reason` says why the outcome is still `unknown`.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    call: str
    outcome: Literal["happened", "not_happened", "unknown"]
    reason: str | None = None
