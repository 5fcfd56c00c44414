"""Reports errors on the command line: one line with the problem and the remedy, and with the names
of options instead of the library's parameters."""

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
    errors.SessionNotFound: "`holdfast sessions` lists the sessions",
    errors.PhaseError: "`holdfast session reopen` reopens an expired session",
    errors.SurfaceTaken: "add --move to take it over",
    errors.DeletionRefused: "`holdfast session hold SESSION --lift` lifts a hold",
    errors.LogReplaced: "the session was deleted and created again: run the command again",
    errors.LeaseHeld: "wait until its driver is done",
    errors.NotPending: "`holdfast pending` lists pending items",
    errors.AlreadyDecided: "`holdfast show SESSION` shows what happened since",
    errors.StoreError: "`holdfast doctor` checks the store",
    errors.StoreUnavailable: "`holdfast doctor` checks the store",
    errors.StoreDamaged: "`holdfast verify` lists the damage",
    errors.StoreReplaced: "run the command again",
    errors.StoreTooNew: "upgrade with: pip install --upgrade holdfast",
    errors.SessionExists: "--as ID imports it under another id",
    errors.LogDamaged: "`holdfast verify` lists all damage",
}
# Remedies that the library gives to programs, and their equivalents on the command line.
REMEDIES = {
    "pass overlap='queue'": "add --overlap queue",
    "import it with purpose='read', or replay it": "--read-only imports it for reading, "
    "`holdfast bundle replay` replays it",
    "export it with purpose='copy' or 'move', or import it with purpose='read'": "export it with "
    "--purpose copy or --purpose move, or import it with --read-only",
    "pass accept_redacted=True, or purpose='read'": "--accept-redacted continues with the "
    "redacted content, --read-only imports it for reading",
    "pass accept_redacted=True, or export it with attachments": "--accept-redacted continues "
    "without them; or export it with --attachments",
    "export it as local, or pass accept_redacted=True": "export it with --mode local, or add "
    "--accept-redacted",
    "pass to= with the path of an archive": "omit --json-file, and choose a file with --out",
    "pass mode='local' without threads and upto, or purpose='copy'": "add --mode local, and omit "
    "--thread and --upto; or use --purpose copy",
    "pass connect(url, vault=...), or add ?vault=FILE to the URL": "add ?vault=FILE to its URL",
    "keep large values in events or blobs": "keep large values elsewhere",
}
# The options for parameters of the library that have another name. The first that exists is used.
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
# User name and password in a URL.
_SECRET = re.compile(r"(?<=://)[^\s'\"]*@")


class UsageError(Exception):
    """A command line that the parser accepts, but that is invalid, for example because options
    conflict.
    """


def scrubbed(text: str) -> str:
    """Return the text without the user names and passwords of the URLs in it."""
    return _SECRET.sub("…@", text)


def report(error: HoldfastError, *, json: bool, options: Mapping[str, str] = NOTHING) -> int:
    """Report an error and return the exit code. `options` maps the verb's parameters to the names
    that are typed."""
    message = _message(error, options)
    if json:
        print(json_text(error_json(error, options)), file=sys.stderr)
    else:
        hint = HINTS.get(type(error))
        away = isinstance(error, errors.StoreUnavailable) and "again" not in message
        said = "; ".join(filter(None, (message, "try again" if away else None, hint)))
        _print_error(f"{said} ({error.docs})")
    return 1


def _message(error: HoldfastError, options: Mapping[str, str]) -> str:
    """Return the message of an error, with times in a readable form."""
    match error:
        case errors.AlreadyDecided():
            by = error.by or "someone"
            return f"item {error.item!r} was {error.outcome} by {by} at {moment(error.at)}"
        case errors.NotPending(item=None, pending=[]):
            return f"nothing is pending in session {error.session!r}"
    return translated(error, options)


def translated(error: HoldfastError, options: Mapping[str, str] = NOTHING) -> str:
    """Return the message of an error, with the names of options instead of the library's
    parameters, and with remedies for the command line.
    """
    match error:
        case errors.InvalidValue():
            names = (error.field, *NAMES.get(error.field, ()))
            default = "store URL" if error.field == "url" else error.field
            field = next((options[name] for name in names if name in options), default)
            remedy = REMEDIES.get(error.remedy, error.remedy)
            return str(errors.InvalidValue(field=field, problem=error.problem, remedy=remedy))
        case errors.NotContinuable():
            remedy = REMEDIES.get(error.remedy, error.remedy)
            return f"bundle {error.bundle} {error.problem}: {remedy}"
    return str(error)


def report_usage(message: str, verb: str | None, *, json: bool) -> int:
    """Report an invalid command line and return the exit code."""
    if json:
        print(json_text(_document("usage", message, {})), file=sys.stderr)
    else:
        joined = f"{message} See" if message.endswith("?") else f"{message.rstrip('.')}; see"
        _print_error(f"{joined}: holdfast {f'{verb} ' if verb else ''}--help")
    return 2


def _print_error(message: str) -> None:
    # The message of a database driver may have several lines.
    line = " ".join(line.strip() for line in message.splitlines())
    print("error:", plain(scrubbed(line)), file=sys.stderr)


def error_json(error: HoldfastError, options: Mapping[str, str] = NOTHING) -> dict[str, Any]:
    """Return an error as JSON, with the fields of the library's error."""
    document = _document(error.code, translated(error, options), error.fields)
    return {**document, "docs": error.docs}


def _document(code: str, message: str, fields: dict[str, Any]) -> dict[str, Any]:
    # Arguments that are not UTF-8 arrive as lone surrogates, which cannot be encoded as JSON.
    fields = {k: _whole(v) if isinstance(v, str) else v for k, v in fields.items()}
    return {"code": code, "message": _whole(message), "fields": fields}


def _whole(text: str) -> str:
    return scrubbed(text.encode("utf-8", "backslashreplace").decode())
