"""`holdfast bundle`: files of bundles checked, looked into, compared, converted and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import App, Group, Parameter
from rich.text import Text

from ..bundle.claude import save_claude, write_claude
from ..bundle.differences import BundleDiff, Difference, ThreadDiff, diff
from ..bundle.format import Document, bundle_schema
from ..bundle.harn import harn_schema_text, write_harn
from ..bundle.loss import LossReport
from ..bundle.replaying import Divergence, Replayed, replay
from ..errors import InvalidBundle, InvalidValue
from ..harness.agent import Agent
from .agents import Name, find
from .bundlefiles import File, Format, Read, placed, read_file, tell_loss, write_text
from .failure import UsageError, told_of
from .options import EVERYWHERE, Common
from .output import Output, json_text, plain
from .render import fact, number, size

HELP = """Files of bundles: check, look into, compare, convert and replay them. No store is needed.

```
holdfast bundle validate customer-42.zip
holdfast bundle replay customer-42.zip --agent shop:support
```
"""
SHOWN = 300  # characters of a value that people are shown


def app(group: Group, place: int) -> App:
    """The verbs of `holdfast bundle`, to be shown at a place of a group."""
    made = App(name="bundle", help=HELP, help_format="markdown", group=group, sort_key=place)
    made.command(validate, name="validate")
    made.command(inspect, name="inspect")
    made.command(diff_, name="diff")
    made.command(replay_, name="replay")
    made.command(convert, name="convert")
    made.command(schema, name="schema")
    return made


async def validate(
    file: File,
    /,
    *,
    allow_secrets: Annotated[
        bool, Parameter(help="Accept texts that look like secrets, as `local` bundles have them.")
    ] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Check a bundle whole: its form, its hashes, its sizes, its events, and whether a secret is
    in it.

    ```
    holdfast bundle validate customer-42.zip
    ```

    All faults are listed, each with its place; then the exit code is 1. With `--json`: one
    document.
    """
    out = common.output()
    try:
        with out.working(f"checking {plain(file.name)}"):
            found = await read_file(file, allow_secrets=allow_secrets)
    except InvalidBundle as error:
        if out.json:
            out.emit({"valid": False, **told_of(error)["fields"]})
        else:
            out.print(*(plain(str(fault)) for fault in error.faults))
            if error.more:
                out.print(f"and {error.more} more")
        return 1
    document = found.bundle.document
    if out.json:
        out.emit({"valid": True, "format": found.format, **_summary(document)})
    else:
        out.print(plain(f"{file}: valid, {document.bundle_id}"))
    return 0


async def inspect(file: File, /, *, common: Common = EVERYWHERE) -> int:
    """Show what is in a bundle: what it was made of, its threads, what waits, what was replaced.

    ```
    holdfast bundle inspect customer-42.zip
    ```

    With `--json`: the document without its events.
    """
    out = common.output()
    found = await read_file(file)
    if out.json:
        out.emit(found.bundle.raw)
    else:
        out.print(*_lines(found))
        tell_loss(out, found.loss)
    return 0


async def diff_(
    left: Annotated[Path, Parameter(help="A bundle.")],
    right: Annotated[Path, Parameter(help="Another one.")],
    /,
    *,
    common: Common = EVERYWHERE,
) -> int:
    """Compare two bundles: the first event of each thread that differs, and what else is said.

    ```
    holdfast bundle diff before.zip after.zip
    ```

    The exit code is 1 if they differ. With `--json`: one document.
    """
    out = common.output()
    with out.working("comparing"):
        both = [(await read_file(path)).bundle for path in (left, right)]
        found = await diff(both[0], both[1])
    out.emit(found) if out.json else out.print(*_compared(found))
    return int(not found.same)


async def replay_(
    file: File,
    /,
    *,
    agent: Name = None,
    thread: Annotated[str | None, Parameter(help="Only this thread. Default: all.")] = None,
    ignore: Annotated[
        list[str], Parameter(help="A kind of event that is not compared, as context.built.")
    ] = [],  # noqa: B006 - cyclopts makes it anew
    common: Common = EVERYWHERE,
) -> int:
    """Run a recorded session again with recorded answers, and say where it first comes otherwise.

    ```
    holdfast bundle replay customer-42.zip
    holdfast bundle replay customer-42.zip --agent shop:support
    ```

    No model is asked, no tool is called, no store is used. Without `--agent` what the program's
    agent would say is not compared. The exit code is 1 after a divergence. With `--json`: one
    document.
    """
    out = common.output()
    made: Any = None if agent is None else await asyncio.to_thread(find, agent)
    if made is not None and not isinstance(made, Agent):
        raise UsageError("a replay needs an Agent: name one instead of a function")
    found = await read_file(file)
    with out.working("replaying"):
        told = await replay(found.bundle, made, thread=thread, ignore=ignore)
    if out.json:
        out.emit(_replayed_json(told))
    else:
        out.print(*_replayed(told))
    return int(not told.same)


async def convert(
    file: File,
    /,
    *,
    to: Annotated[Format, Parameter(help="The format to write.")],
    out: Annotated[Path, Parameter(help="The file to write; for `claude`, the folder.")],
    force: Annotated[bool, Parameter(help="Replace a file that is there.")] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Write a bundle, Harn's bundle or Claude Code's transcript in another of these formats.

    ```
    holdfast bundle convert run.json --to holdfast --out run.zip
    ```

    What could not be carried over is listed. With `--json`: one document.
    """
    told = common.output()
    found = await read_file(file)
    loss: LossReport | None = None
    paths = [out]
    if to == "claude":
        files, loss = await asyncio.to_thread(write_claude, found.bundle)
        paths = await save_claude(files, out)
    else:
        async with placed(out, force=force) as path:
            if to == "holdfast":
                await found.bundle.save(path)
            else:
                document, loss = await asyncio.to_thread(write_harn, found.bundle)
                await asyncio.to_thread(write_text, path, document.encode())
    losses = [one for report in (found.loss, loss) for one in report or ()]
    if told.json:
        named = [str(path) for path in paths]
        told.emit({"from": found.format, "to": to, "paths": named, "loss": losses})
    else:
        told.print(*(plain(str(path)) for path in paths))
        tell_loss(told, found.loss)
        tell_loss(told, loss)
    return 0


async def schema(
    *,
    check: Annotated[
        Path | None, Parameter(help="Compare with this file; 1 if it is missing or another.")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Write it to this file.")] = None,
    format: Annotated[Literal["holdfast", "harn"], Parameter(help="Of which format.")] = "holdfast",
    force: Annotated[bool, Parameter(help="Replace a file that is there.")] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Print the JSON Schema of a bundle's document, write it, or compare it with a file.

    ```
    holdfast bundle schema > bundle.schema.json
    holdfast bundle schema --check docs/formats/bundle.schema.json
    ```

    Line ends do not count in the comparison.
    """
    if check is not None and out is not None:
        raise UsageError("--check and --out cannot be given together")
    told = common.output()
    text = harn_schema_text() if format == "harn" else schema_text()
    if check is not None:
        return await _check_schema(told, check, text)
    if out is None:
        told.emit(msgspec.json.decode(text)) if told.json else told.print(text.rstrip("\n"))
        return 0
    async with placed(out, force=force) as path:
        await asyncio.to_thread(write_text, path, text.encode())
    told.emit({"path": str(out)}) if told.json else told.print(plain(str(out)))
    return 0


def schema_text() -> str:
    """The schema of our format as a file has it."""
    text = msgspec.json.encode(bundle_schema())
    return msgspec.json.format(text, indent=2).decode() + "\n"


async def _check_schema(out: Output, path: Path, text: str) -> int:
    try:
        stored = await asyncio.to_thread(_stored, path)
    except OSError as error:
        problem = f"{str(path)!r} cannot be read ({error.strerror})"
        raise InvalidValue(field="check", problem=problem, remedy="name a file") from error
    fresh = stored.replace("\r\n", "\n") == text
    status = "up to date" if fresh else "stale" if stored else "missing"
    out.emit({"path": str(path), "status": status}) if out.json else out.print(
        plain(f"{path}: {status}")
    )
    return int(not fresh)


def _stored(path: Path) -> str:
    try:
        return path.expanduser().read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""


# In words


def _summary(document: Document) -> dict[str, Any]:
    facts = document.session
    return {
        "bundle_id": document.bundle_id,
        "version": document.version,
        "mode": document.mode,
        "purpose": document.purpose,
        "liveness": document.liveness,
        "session": facts.session,
        "tenant": facts.tenant,
        "threads": len(document.threads),
    }


def _lines(found: Read) -> Iterator[Text]:
    document = found.bundle.document
    source = document.source
    yield fact("bundle", document.bundle_id)
    yield fact("session", plain(f"{document.session.session} of {document.session.tenant}"))
    if found.format != "holdfast":
        yield fact("format", found.format)
    yield fact("mode", f"{document.mode}, {document.purpose}, {document.liveness}")
    for name, value in (("agent", source.agent), ("title", document.session.title)):
        if value:
            yield fact(name, plain(value))
    if source.task:
        yield fact("task", plain(source.task))
    yield fact("times", f"{source.started_at} to {source.finished_at or document.created_at}")
    for thread in document.threads:
        count = number(thread.head - thread.shared, "event")
        since = f", after {thread.shared} of another" if thread.shared else ""
        yield fact("thread", plain(f"{thread.thread}: {count}{since}"))
    if document.runtime.models:
        yield fact("models", plain(", ".join(document.runtime.models)))
    yield fact("calls", number(document.tools.total, "tool call"))
    if document.blobs:
        total = sum(blob.size for blob in document.blobs)
        left = sum(blob.part is None for blob in document.blobs)
        out = f", {left} left out" if left else ""
        yield fact("blobs", f"{len(document.blobs)}, {size(total)}{out}")
    for item in document.pending:
        yield fact("pending", plain(f"{item.what} {item.id}"))
    if document.queue:
        yield fact("queue", number(len(document.queue), "message"))
    totals = ", ".join(f"{count} {name}" for name, count in document.redaction.totals.items())
    yield fact("replaced", plain(totals) or "nothing")


def _compared(found: BundleDiff) -> Iterator[str]:
    if found.same:
        yield plain(f"same: {found.left}")
        return
    for thread in found.threads:
        yield from _thread(thread)
    yield from (_place(place) for place in found.facts)
    for side, blobs in (("left", found.blobs_left), ("right", found.blobs_right)):
        if blobs:
            yield f"only {side}: {number(len(blobs), 'blob')}"


def _thread(thread: ThreadDiff) -> Iterator[str]:
    status = thread.status.replace("_", " ")
    counts = f"{thread.left} and {number(thread.right, 'event')}, the first {thread.same} the same"
    yield plain(f"thread {thread.thread}: {status} ({counts})")
    if thread.first is not None:
        yield f"  event {thread.first.seq}: {_place(thread.first)}"


def _place(place: Difference) -> str:
    return f"{plain(place.path)}: {_short(place.left)} | {_short(place.right)}"


def _short(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _replayed(told: Replayed) -> Iterator[str]:
    counts = (
        f"{number(told.steps, 'model call')}, {number(told.compared, 'event')} compared, "
        f"{number(told.threads, 'thread')}"
    )
    if told.first is None:
        yield f"same: {counts}"
        if told.mode == "replay_only":
            yield "the bundle has no content: this is true of its structure"
        return
    yield f"diverged: {counts}"
    yield from _divergence(told.first)


def _divergence(first: Divergence) -> Iterator[str]:
    place = f"thread {first.thread}, step {first.step}, event {first.seq or '?'} ({first.kind})"
    yield plain(f"{place}: {first.path}")
    yield f"  recorded: {_short(first.recorded)}"
    yield f"  came:     {_short(first.came)}"
    if first.why:
        yield plain(f"  {first.why}")


def _replayed_json(told: Replayed) -> dict[str, Any]:
    return {
        "same": told.same,
        "first": told.first,
        "stopped": told.stopped,
        "steps": told.steps,
        "compared": told.compared,
        "given": told.given,
        "threads": told.threads,
        "mode": told.mode,
    }
