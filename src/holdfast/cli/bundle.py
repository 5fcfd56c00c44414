"""`holdfast bundle`: files of bundles checked, looked into, compared, converted and replayed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import App, Group, Parameter

from ..bundle.claude import save_claude, write_claude
from ..bundle.conversion_loss import LossReport
from ..bundle.differences import diff
from ..bundle.format import bundle_schema
from ..bundle.harn import harn_schema_text, write_harn
from ..bundle.recorded import replay
from ..errors import InvalidBundle, InvalidValue
from ..harness.agents.agent import Agent
from ..models.registry import Models
from ..models.scripted import offline
from .agents import Name, find
from .bundlefiles import File, Format, placed, read_file, tell_loss, write_text
from .bundletext import compared, lines, replayed, replayed_json, summary
from .failure import UsageError, told_of
from .options import EVERYWHERE, Common
from .output import Output, plain

HELP = """Files of bundles: check, look into, compare, convert and replay them. No store is needed.

```
holdfast bundle validate customer-42.zip
holdfast bundle replay customer-42.zip --agent shop:support
```
"""


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
            if all(fault.code == "secret" for fault in error.faults):
                out.remark("--allow-secrets accepts them, as an import of a local bundle does")
        return 1
    document = found.bundle.document
    if out.json:
        out.emit({"valid": True, "format": found.format, **summary(document)})
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
        out.print(*lines(found))
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
    out.emit(found) if out.json else out.print(*compared(found))
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
    model: Annotated[
        str | None, Parameter(help="Let this model answer instead, as provider/name.")
    ] = None,
    from_step: Annotated[
        int | None, Parameter(help="From which model call on; the first unless given.")
    ] = None,
    common: Common = EVERYWHERE,
) -> int:
    """Run a recorded session again with recorded answers, and say where it first comes otherwise.

    ```
    holdfast bundle replay customer-42.zip
    holdfast bundle replay customer-42.zip --agent shop:support
    holdfast bundle replay customer-42.zip --model openai/gpt-5.1 --from-step 3
    ```

    No model is asked, no tool is called, no store is used. Without `--agent` what the program's
    agent would say is not compared. With `--model` that model is asked, and what it says is shown;
    tools still answer what they did. The exit code is 1 after a divergence. With `--json`: one
    document.
    """
    if from_step is not None and model is None:
        raise UsageError("--from-step says from where on --model answers: name a model")
    out = common.output()
    made: Any = None if agent is None else await asyncio.to_thread(find, agent)
    if made is not None and not isinstance(made, Agent):
        raise UsageError("a replay needs an Agent: name one instead of a function")
    found = await read_file(file)
    models = Models([offline()])
    other = None if model is None else models.resolve(model)
    try:
        with out.working("replaying"):
            told = await replay(
                found.bundle, made, thread=thread, from_step=from_step, model=other, ignore=ignore
            )
    finally:
        await models.aclose()
    out.emit(replayed_json(told)) if out.json else out.print(*replayed(told))
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
