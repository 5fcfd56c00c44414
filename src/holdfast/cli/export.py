"""`holdfast export`: a session in a file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from ..bundle.archive import Bundle, Written
from ..bundle.claude import save_claude, write_claude
from ..bundle.conversion_loss import LossReport
from ..bundle.format import Document
from ..bundle.harn import write_harn
from ..bundle.redaction.manifest import Mode
from ..bundle.unseal import unseal_session
from ..bundle.write import export_bundle, review_bundle
from ..errors import HoldfastError
from ..log.events import Scope
from ..stores.measure import threads_of
from ..stores.port import Store
from .bundlefiles import Format, file_name, placed, tell_loss, write_text
from .failure import UsageError
from .options import EVERYWHERE, Common
from .output import Output, plain
from .redaction_options import PRIVATE, Private
from .render import number, size
from .review import show_review
from .session import BY

ModeName: TypeAlias = Literal["local", "sanitized", "replay-only"]
STDOUT = "-"


async def export(
    session: Annotated[str, Parameter(help="The session.")],
    /,
    *,
    mode: Annotated[
        ModeName,
        Parameter(
            help="`local`: all of it as it is. `sanitized`: secrets, credentials and local paths "
            "replaced. `replay-only`: structure and hashes, no content."
        ),
    ] = "sanitized",
    purpose: Annotated[
        Literal["share", "copy", "move"],
        Parameter(
            help="`share`: as it stands. `copy`: what is open is ended in it, so that it may go on "
            "elsewhere. `move`: it goes on elsewhere, and here it takes no more events."
        ),
    ] = "share",
    out: Annotated[
        Path | None,
        Parameter(
            help="The file, or - for stdout. Default: one named after the session, here.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    archive: Annotated[bool, Parameter(help="An archive (.zip), the default.")] = False,
    json_file: Annotated[bool, Parameter(help="A single JSON, for small sessions.")] = False,
    thread: Annotated[
        list[str], Parameter(help="Only this thread; may be given several times.")
    ] = [],  # noqa: B006 - cyclopts makes it anew
    upto: Annotated[
        int | None, Parameter(help="Only the events up to this number, of one thread.")
    ] = None,
    attachments: Annotated[
        bool | None, Parameter(help="Take attachments along; default: with `local`.")
    ] = None,
    format: Annotated[
        Format, Parameter(help="The format: ours, Harn's bundle, Claude Code's transcript.")
    ] = "holdfast",
    force: Annotated[bool, Parameter(help="Replace a file that is there.")] = False,
    review: Annotated[
        bool,
        Parameter(
            help="Show what would be replaced and what is doubtful, and why. Writes nothing."
        ),
    ] = False,
    private: Private = PRIVATE,
    common: Common = EVERYWHERE,
) -> int:
    """Write a session to a file that can be shared, imported elsewhere, or replayed.

    ```
    holdfast export customer-42
    holdfast export customer-42 --mode local --purpose move --out /mnt/usb/42.zip
    ```

    The same session gives the same bytes. The file is there whole or not at all, and none is
    replaced unless `--force` is given. What a conversion could not carry over is listed. With
    `--json`: one document that says what was written.
    """
    out_ = common.output()
    target = _target(session, out, format, archive=archive, json_file=json_file)
    if purpose == "move" and (format != "holdfast" or target is None):
        raise UsageError("--purpose move writes a file in the format of Holdfast")
    named: Mode = "replay_only" if mode == "replay-only" else mode
    how: dict[str, Any] = {
        "purpose": purpose,
        "threads": thread or None,
        "upto": upto,
        "attachments": attachments,
        "scrub": await private.config(mode),
    }
    if review and mode != "sanitized":
        raise UsageError("--review shows what --mode sanitized replaces")
    async with common.open() as store:
        origin = (store, Scope(common.tenant, session))
        with out_.working(f"exporting {plain(session)}") as told:
            seen = Counter(told)
            if review:
                del how["purpose"]
                found = await review_bundle(origin, progress=seen, **how)
                show_review(out_, found)
                return 0
            if format == "holdfast" and target is not None:
                made = await _written(origin, named, target, force=force, progress=seen, **how)
                _tell(out_, made)
                return 0
            bundle = await export_bundle(origin, named, progress=seen, **how)
    return await _convert(out_, bundle, format, target, force=force)


async def _written(
    origin: tuple[Store, Scope], mode: Mode, target: Path, *, force: bool, **how: Any
) -> Written:
    """A bundle in its file. A move whose file cannot be put in its place has not happened."""
    moves = how["purpose"] == "move" and not any(
        row.sealed is not None for row in await threads_of(*origin)
    )
    made = None
    try:
        async with placed(target, force=force) as path:
            made = await export_bundle(origin, mode, to=path, **how)
    except HoldfastError:  # but not when it is cut: then the file may be there
        if made is not None and moves:
            await unseal_session(origin, reason="the export failed", actor=BY.who, force=True)
        raise
    return msgspec.structs.replace(made, path=str(target))


async def _convert(
    out: Output, bundle: Bundle, format: Format, target: Path | None, *, force: bool
) -> int:
    if format == "claude":
        return await _claude(out, bundle, target)
    data, loss = await asyncio.to_thread(_converted, bundle, format)
    if target is None:
        sys.stdout.write(data.decode())
    else:
        async with placed(target, force=force) as path:
            await asyncio.to_thread(write_text, path, data)
        _tell_converted(out, bundle.document, format, [target], loss)
    tell_loss(out, loss)
    return 0


class Counter:
    """Shows how many events were read."""

    def __init__(self, told: Any) -> None:
        self._told, self._events = told, 0

    def __call__(self, events: int) -> None:
        self._events += events
        self._told(number(self._events, "event"))


def _target(
    session: str, out: Path | None, format: Format, *, archive: bool, json_file: bool
) -> Path | None:
    """Where to write to; None is stdout."""
    if archive and json_file:
        raise UsageError("--archive and --json-file cannot be given together")
    if format == "claude":
        if archive or json_file or str(out) == STDOUT:
            raise UsageError("--format claude writes files into the folder that --out names")
        return out or Path()
    if archive and format != "holdfast":
        raise UsageError(f"--archive is not a form of --format {format}")
    if str(out) == STDOUT:
        if archive:
            raise UsageError("an archive is not written to stdout: name a file with --out")
        return None
    plain_json = json_file or format != "holdfast"
    if out is None:
        return Path(file_name(session, ".json" if plain_json else ".zip"))
    if json_file and out.suffix != ".json":
        raise UsageError("the name of a single JSON ends in .json")
    if archive and out.suffix == ".json":
        raise UsageError("the name of an archive does not end in .json")
    return out


def _converted(bundle: Bundle, format: Format) -> tuple[bytes, LossReport | None]:
    if format == "holdfast":
        return bundle.to_json(), None
    document, loss = write_harn(bundle)
    return document.encode(), loss


async def _claude(out: Output, bundle: Bundle, folder: Path | None) -> int:
    files, loss = await asyncio.to_thread(write_claude, bundle)
    written = await save_claude(files, folder or Path())
    _tell_converted(out, bundle.document, "claude", written, loss)
    tell_loss(out, loss)
    return 0


def _tell(out: Output, made: Written) -> None:
    document = made.document
    if out.json:
        out.emit(
            {
                "path": made.path,
                "form": made.form,
                "size": made.size,
                **_facts(document),
                "redaction": document.redaction.totals,
            }
        )
        return
    replaced = sum(document.redaction.totals.values())
    events = sum(thread.head - thread.shared for thread in document.threads)
    what = [
        number(len(document.threads), "thread"),
        number(events, "event"),
        size(made.size),
        document.mode,
        document.liveness,
    ]
    if replaced:
        what.append(f"{replaced:,} replaced")
    out.print(plain(f"{made.path}  {', '.join(what)}"))
    out.remark(made.bundle_id)


def _facts(document: Document) -> dict[str, Any]:
    return {
        "bundle_id": document.bundle_id,
        "session": document.session.session,
        "tenant": document.session.tenant,
        "mode": document.mode,
        "purpose": document.purpose,
        "liveness": document.liveness,
        "threads": [thread.thread for thread in document.threads],
    }


def _tell_converted(
    out: Output, document: Document, format: Format, paths: list[Path], loss: LossReport | None
) -> None:
    if out.json:
        found = {"format": format, "paths": [str(path) for path in paths], **_facts(document)}
        out.emit({**found, "loss": loss.losses if loss is not None else []})
        return
    out.print(*(plain(str(path)) for path in paths))
