"""Errors as a user meets them: one line that says what happened and what to do, in the words of
the command line and not in those of the library."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import errors
from ..errors import HoldfastError
from .output import json_text, plain
from .render import moment

NOTHING: Mapping[str, str] = MappingProxyType({})
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
    errors.StoreDamaged: "`holdfast verify` lists the damage",
    errors.StoreReplaced: "run the command again",
    errors.StoreTooNew: "upgrade with: pip install --upgrade holdfast",
    errors.SessionExists: "--as ID imports it under another id",
    errors.LogDamaged: "`holdfast verify` lists all damage",
}
# What the library tells programs to do, and what does the same on the command line.
REMEDIES = {
    "import it with purpose='read', or replay it": "--read-only imports it to be read, "
    "`holdfast bundle replay` replays it",
    "export it with purpose='copy' or 'move', or import it with purpose='read'": "export it with "
    "--purpose copy or --purpose move, or import it with --read-only",
    "pass accept_redacted=True, or purpose='read'": "--accept-redacted goes on with it as it is, "
    "--read-only imports it to be read",
    "pass accept_redacted=True, or export it with attachments": "--accept-redacted goes on without "
    "them; or export it with --attachments",
    "pass to= with the path of an archive": "leave out --json-file, and name a file with --out",
    "move with mode='local', without threads and upto; or copy": "add --mode local, and leave out "
    "--thread and --upto; or use --purpose copy",
    "pass connect(url, vault=...), or add ?vault=FILE to the URL": "add ?vault=FILE to its URL",
    "keep large values in events or blobs": "keep large values elsewhere",
}
# Arguments of the library that a verb has under another name; the first that it has is meant.
NAMES = {
    "session": ("as", "sessions"),
    "id": ("session",),
    "threads": ("thread",),
    "why": ("reason",),
    "scopes": ("scope",),
    "metadata": ("set",),
    "surface": ("attach", "detach"),
    "address": ("surface", "attach", "detach"),
    "to": ("out",),
}


# What stands before the address in a URL: a name and a password.
_SECRET = re.compile(r"(?<=://)[^\s'\"]*@")


class UsageError(Exception):
    """The command line is wrong in a way that its parser cannot know."""


def scrubbed(text: str) -> str:
    """The text without what URLs in it say before their address."""
    return _SECRET.sub("…@", text)


def report(error: HoldfastError, *, json: bool, options: Mapping[str, str] = NOTHING) -> int:
    """Tell the user of an error; returns the exit code. `options` are the arguments of the verb by
    name, as they are written on the command line."""
    message = _words(error, options)
    if json:
        print(json_text(told_of(error, options)), file=sys.stderr)
    else:
        hint = HINTS.get(type(error))
        away = isinstance(error, errors.StoreUnavailable) and "again" not in message
        _tell_person("; ".join(filter(None, (message, "try again" if away else None, hint))))
    return 1


def _words(error: HoldfastError, options: Mapping[str, str]) -> str:
    """The error's text, with times as people read them."""
    match error:
        case errors.AlreadyDecided():
            by = error.by or "someone"
            return f"item {error.item!r} was {error.outcome} by {by} at {moment(error.at)}"
        case errors.NotPending(item=None, pending=[]):
            return f"nothing waits in session {error.session!r}"
    return translated(error, options)


def translated(error: HoldfastError, options: Mapping[str, str] = NOTHING) -> str:
    """The error's text, with arguments and remedies as they are on the command line."""
    match error:
        case errors.InvalidValue():
            names = (error.field, *NAMES.get(error.field, ()))
            plain_name = "store URL" if error.field == "url" else error.field
            field = next((options[name] for name in names if name in options), plain_name)
            return f"{field}: {error.problem}; {REMEDIES.get(error.remedy, error.remedy)}"
        case errors.NotContinuable():
            remedy = REMEDIES.get(error.remedy, error.remedy)
            return f"bundle {error.bundle} {error.problem}; {remedy}"
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


def told_of(error: HoldfastError, options: Mapping[str, str] = NOTHING) -> dict[str, Any]:
    """An error as a program reads it; its fields are the library's."""
    return _document(error.code, translated(error, options), error.fields)


def _document(code: str, message: str, fields: dict[str, Any]) -> dict[str, Any]:
    # Arguments that were not UTF-8 arrive as lone surrogates, which JSON cannot hold.
    fields = {k: _whole(v) if isinstance(v, str) else v for k, v in fields.items()}
    return {"code": code, "message": _whole(message), "fields": fields}


def _whole(text: str) -> str:
    return scrubbed(text.encode("utf-8", "backslashreplace").decode())
