"""Errors as a user meets them: one line that says what happened and what to do."""

from __future__ import annotations

import re
import sys
from typing import Any

from .. import errors
from ..errors import HoldfastError
from .output import json_text, plain
from .render import moment

HINTS: dict[type[HoldfastError], str] = {
    errors.SessionNotFound: "`holdfast sessions` lists what is there",
    errors.PhaseError: "`holdfast session reopen` opens one that has expired",
    errors.SurfaceTaken: "--move takes it from there",
    errors.DeletionRefused: "`holdfast session hold SESSION --lift` ends a hold",
    errors.LogReplaced: "it was deleted and begun again: run the command again",
    errors.LeaseHeld: "wait until its driver is done",
    errors.NotPending: "`holdfast pending` lists what waits",
    errors.AlreadyDecided: "`holdfast show SESSION` shows what came of it",
    errors.StoreError: "`holdfast doctor` looks at the store",
    errors.StoreUnavailable: "`holdfast doctor` looks at the store",
    errors.StoreTooNew: "upgrade with: pip install --upgrade holdfast",
    errors.NotContinuable: "--read-only imports it to be read",
    errors.LogDamaged: "`holdfast verify` lists all damage",
}


# What stands before the address in a URL: a name and a password.
_SECRET = re.compile(r"(?<=://)[^\s'\"]*@")


class UsageError(Exception):
    """The command line is wrong in a way that its parser cannot know."""


def scrubbed(text: str) -> str:
    """The text without what URLs in it say before their address."""
    return _SECRET.sub("…@", text)


def report(error: HoldfastError, *, json: bool) -> int:
    """Tell the user of an error; returns the exit code."""
    message = _words(error)
    if json:
        print(json_text(told_of(error)), file=sys.stderr)
    else:
        hint = HINTS.get(type(error))
        if isinstance(error, errors.NotContinuable) and "accept_redacted" in error.remedy:
            hint = f"{hint}, --accept-redacted as it is"
        away = isinstance(error, errors.StoreUnavailable) and "again" not in message
        _tell_person("; ".join(filter(None, (message, "try again" if away else None, hint))))
    return 1


def _words(error: HoldfastError) -> str:
    """The error's text, with times as people read them."""
    match error:
        case errors.AlreadyDecided():
            by = error.by or "someone"
            return f"item {error.item!r} was {error.outcome} by {by} at {moment(error.at)}"
        case errors.NotPending(item=None, pending=[]):
            return f"nothing waits in session {error.session!r}"
    return str(error)


def report_usage(message: str, verb: str | None, *, json: bool) -> int:
    """Tell the user that the command line is wrong; returns the exit code."""
    if json:
        print(json_text(_document("usage", message, {})), file=sys.stderr)
    else:
        _tell_person(f"{message.rstrip('.')}; see: holdfast {f'{verb} ' if verb else ''}--help")
    return 2


def _tell_person(message: str) -> None:
    # A driver's error may have several lines.
    line = " ".join(line.strip() for line in message.splitlines())
    print("error:", plain(scrubbed(line)), file=sys.stderr)


def told_of(error: HoldfastError) -> dict[str, Any]:
    """An error as a program reads it."""
    return _document(error.code, str(error), error.fields)


def _document(code: str, message: str, fields: dict[str, Any]) -> dict[str, Any]:
    # Arguments that were not UTF-8 arrive as lone surrogates, which JSON cannot hold.
    fields = {k: _whole(v) if isinstance(v, str) else v for k, v in fields.items()}
    return {"code": code, "message": _whole(message), "fields": fields}


def _whole(text: str) -> str:
    return scrubbed(text.encode("utf-8", "backslashreplace").decode())
