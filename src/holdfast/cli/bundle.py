"""`holdfast bundle`: check, inspect, compare, replay and convert bundle files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.text import Text

from ..bundle.differences import diff
from ..bundle.format import bundle_schema
from ..bundle.harn import harn_schema_text
from ..bundle.recorded import replay
from ..errors import InvalidBundle, InvalidValue
from ..harness import Agent
from ..models.registry import Models
from ..models.scripted import offline
from .agents import Name, find
from .bundle_files import (
    File,
    Format,
    loss_json,
    placed,
    read_file,
    save_bundle,
    show_loss,
    write_synced,
)
from .bundle_text import bundle_lines, diff_lines, replay_json, replay_lines, summary
from .error_report import UsageError, error_json
from .options import DEFAULTS, Common, Force, OneThread
from .output import plain


async def validate(
    file: File,
    /,
    *,
    allow_secrets: bool = False,
    common: Common = DEFAULTS,
) -> int:
    """Check a bundle: format, hashes, sizes, events and secrets.

    ```
    holdfast bundle validate customer-42.zip
    ```

    Lists every fault with its location. The exit code is 1 if there are any. With `--json`, prints
    one JSON object.

    :param allow_secrets: Accept text that looks like a secret. Bundles in mode `local` may contain
        such text.
    """
    out = common.output()
    try:
        with out.working(f"checking {plain(file.name)}"):
            found = await read_file(file, allow_secrets=allow_secrets)
    except InvalidBundle as error:
        faults = [str(fault) for fault in error.faults]
        more = [f"and {error.more} more"] if error.more else []
        out.show({"valid": False, **error_json(error)["fields"]}, [*faults, *more])
        if all(fault.code == "secret" for fault in error.faults):
            out.note("--allow-secrets accepts them, as an import of a local bundle does")
        return 1
    document = found.bundle.document
    about = {"valid": True, "format": found.format, **summary(document)}
    counts = {"version": document.version, "threads": len(document.threads)}
    out.show({**about, **counts}, f"{file}: valid, {document.bundle_id}")
    return 0


async def inspect(file: File, /, *, common: Common = DEFAULTS) -> None:
    """Show what is in a bundle.

    ```
    holdfast bundle inspect customer-42.zip
    ```

    With `--json`, prints the bundle's document, without events.
    """
    out = common.output()
    found = await read_file(file)
    out.show(found.bundle.raw, bundle_lines(found))
    if not out.json:
        show_loss(out, found.loss)


async def diff_(
    left: Path,
    right: Path,
    /,
    *,
    common: Common = DEFAULTS,
) -> int:
    """Compare two bundles.

    ```
    holdfast bundle diff before.zip after.zip
    ```

    Shows the first differing event of each thread, and other differences. The exit code is 1 if
    they differ. With `--json`, prints one JSON object.

    :param left: First bundle file.
    :param right: Second bundle file.
    """
    out = common.output()
    with out.working("comparing"):
        both = [(await read_file(path)).bundle for path in (left, right)]
        found = await diff(both[0], both[1])
    out.show(found, diff_lines(found))
    return int(not found.same)


async def replay_(
    file: File,
    /,
    *,
    agent: Name = None,
    thread: OneThread = None,
    ignore: tuple[str, ...] = (),
    model: str | None = None,
    from_step: int | None = None,
    common: Common = DEFAULTS,
) -> int:
    """Replay a recorded session and report the first divergence.

    ```
    holdfast bundle replay customer-42.zip
    holdfast bundle replay customer-42.zip --agent shop:support
    holdfast bundle replay customer-42.zip --model openai/gpt-5.1 --from-step 3
    ```

    Models and tools return their recorded answers; no model, tool or store is used. Without
    `--agent`, the agent's own prompts are not compared. With `--model`, that model answers, and its
    text is shown; tools still return their recorded results. The exit code is 1 after a divergence.
    With `--json`, prints one JSON object.

    :param ignore: Event kind to exclude from the comparison, such as context.built.
    :param model: Model to call, as provider/name, instead of using the recorded answers.
    :param from_step: First model call that --model answers. Default: the first.
    """
    if from_step is not None and model is None:
        raise UsageError("--from-step needs --model")
    out = common.output()
    made: Any = None if agent is None else await asyncio.to_thread(find, agent)
    if made is not None and not isinstance(made, Agent):
        raise UsageError("--agent must refer to an Agent for a replay, not to a function")
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
    out.show(replay_json(told), replay_lines(told))
    return int(not told.same)


async def convert(
    file: File,
    /,
    *,
    to: Format,
    out: Path,
    force: Force = False,
    common: Common = DEFAULTS,
) -> None:
    """Convert between bundles, Harn bundles and Claude Code transcripts.

    ```
    holdfast bundle convert run.json --to holdfast --out run.zip
    ```

    Lists what could not be converted. With `--json`, prints one JSON object.

    :param to: Output format.
    :param out: File to write; for `claude`, a folder.
    """
    told = common.output()
    found = await read_file(file)
    paths, loss = await save_bundle(found.bundle, to, out, force=force)
    named, losses = [str(path) for path in paths], loss_json(found.loss, loss)
    told.show({"from": found.format, "to": to, "paths": named, "loss": losses}, named)
    if not told.json:
        show_loss(told, found.loss, loss)


async def schema(
    *,
    check: Path | None = None,
    out: Path | None = None,
    format: Literal["holdfast", "harn"] = "holdfast",
    force: Force = False,
    common: Common = DEFAULTS,
) -> int:
    """Print the JSON Schema of bundles, write it, or compare it with a file.

    ```
    holdfast bundle schema > bundle.schema.json
    holdfast bundle schema --check docs/formats/bundle.schema.json
    ```

    Line endings are ignored in the comparison. With `--json`, prints one JSON object: the schema,
    or the path and the result of the comparison.

    :param check: Compare with this file; the exit code is 1 if it is missing or differs.
    :param out: File to write. Default: standard output.
    :param format: Format to describe.
    """
    if check is not None and out is not None:
        raise UsageError("use either --check or --out, not both")
    told = common.output()
    text = harn_schema_text() if format == "harn" else schema_text()
    if check is not None:
        stored = await asyncio.to_thread(_stored, check)
        fresh = stored.replace("\r\n", "\n") == text
        status = "up to date" if fresh else "stale" if stored else "missing"
        told.show({"path": str(check), "status": status}, f"{check}: {status}")
        return int(not fresh)
    if out is None:
        told.show(msgspec.json.decode(text), Text(text.rstrip("\n")))
        return 0
    async with placed(out, force=force) as path:
        await asyncio.to_thread(write_synced, path, text.encode())
    told.show({"path": str(out)}, str(out))
    return 0


def schema_text() -> str:
    """Return the JSON Schema of bundles, formatted as in its published file."""
    text = msgspec.json.encode(bundle_schema())
    return msgspec.json.format(text, indent=2).decode() + "\n"


def _stored(path: Path) -> str:
    try:
        return path.expanduser().read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        problem = f"{str(path)!r} cannot be read ({error.strerror})"
        raise InvalidValue(field="check", problem=problem, remedy="pass another file") from error
