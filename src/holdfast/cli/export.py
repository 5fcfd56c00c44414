"""`holdfast export`: write a session to a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from ..bundle.archive import Bundle, WrittenBundle
from ..bundle.format import Document
from ..bundle.harn import write_harn
from ..bundle.redaction.manifest import Mode
from ..bundle.redaction.review import Review
from ..bundle.redaction.scrub import ScrubConfig
from ..bundle.unseal import unseal_session
from ..bundle.write import export_bundle, review_bundle
from ..errors import HoldfastError, InvalidValue
from ..log.events import Scope
from ..redact import SHORTEST
from ..stores.measure import threads_of
from ..stores.port import Store
from .bundle_files import Format, file_name, loss_json, placed, save_bundle, show_loss
from .bundle_text import summary
from .error_report import UsageError
from .options import BY, DEFAULTS, Common, Force, Session, option_group
from .output import Output, plain
from .render import number, size

ModeName: TypeAlias = Literal["local", "sanitized", "replay-only"]
STDOUT = "-"
LARGEST = 1 << 20  # maximum size of a file of secrets, in bytes


@option_group
class Content:
    """What an export contains.

    :param mode: `local`: everything, unchanged. `sanitized`: secrets, credentials and local paths
        are redacted. `replay-only`: structure and hashes without content.
    :param purpose: `share`: open runs and pending items stay open, so the session continues only
        here. `copy`: they are closed, so that the copy can continue elsewhere. `move`: the session
        continues elsewhere and accepts no more events here.
    :param thread: Only this thread; repeatable.
    :param upto: Last event to export; allowed only if one thread is exported.
    :param attachments: Include attachments. Default: only with `--mode local`.
    """

    mode: ModeName = "sanitized"
    purpose: Literal["share", "copy", "move"] = "share"
    thread: tuple[str, ...] = ()
    upto: int | None = None
    attachments: bool | None = None


@option_group
class Target:
    """The file that an export is written to, and its format.

    :param out: File to write, or - for stdout. Default: a file named after the session in the
        current folder.
    :param archive: Write an archive (.zip). This is the default.
    :param json_file: Write a single JSON file, for small sessions.
    :param format: Format: a bundle, a Harn bundle or a Claude Code transcript.
    """

    out: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    archive: bool = False
    json_file: bool = False
    format: Format = "holdfast"
    force: Force = False

    def path(self, session: str) -> Path | None:
        """Return the path to write to, or None for stdout. Raises `UsageError` if options
        conflict."""
        out, archive, format = self.out, self.archive, self.format
        if archive and self.json_file:
            raise UsageError("use either --archive or --json-file, not both")
        if format == "claude":
            if archive or self.json_file or str(out) == STDOUT:
                raise UsageError("--format claude writes files into the folder given with --out")
            return out or Path()
        if archive and format != "holdfast":
            raise UsageError(f"--archive cannot be combined with --format {format}")
        if str(out) == STDOUT:
            if archive:
                raise UsageError("an archive cannot be written to stdout; choose a file with --out")
            return None
        if out is None:
            single = self.json_file or format != "holdfast"
            return Path(file_name(session, ".json" if single else ".zip"))
        if self.json_file and out.suffix != ".json":
            raise UsageError("the name of a JSON file must end in .json")
        if archive and out.suffix == ".json":
            raise UsageError("the name of an archive must not end in .json")
        return out


@option_group
class Redactions:
    """What is redacted in addition to the built-in rules.

    Secrets come from the environment or from a file, never from arguments, which process lists and
    the shell's history show. Error messages do not contain them.

    :param personal: Redact this kind of personal data: email, phone, card, iban, …; repeatable.
    :param secret_env: Redact the value of this environment variable; repeatable.
    :param secrets_file: Redact the values in this file, which has one per line.
    :param strict: Also redact possible secrets; `--review` lists them.
    """

    personal: tuple[str, ...] = ()
    secret_env: tuple[str, ...] = ()
    secrets_file: Path | None = None
    strict: bool = False

    async def config(self, mode: str) -> ScrubConfig | None:
        """Return the rules for a mode, or None for the default rules. Raises `UsageError` for
        `local`, which redacts nothing."""
        if self == Redactions():
            return None
        if mode == "local":
            raise UsageError(
                "--personal, --secret-env, --secrets-file and --strict cannot be combined with "
                "--mode local, which redacts nothing"
            )
        secrets = list(self._values())
        if self.secrets_file is not None:
            secrets += await asyncio.to_thread(_secrets, self.secrets_file)
        return ScrubConfig(personal=self.personal, secrets=tuple(secrets), strict=self.strict)

    def _values(self) -> Iterator[str]:
        for n, name in enumerate(self.secret_env, 1):
            # The name is not shown: it may be the secret itself, given by mistake.
            yield _checked(os.environ.get(name, ""), "secret_env", f"variable {n}")


CONTENT, TARGET, REDACTIONS = Content(), Target(), Redactions()


async def export(
    session: Session,
    /,
    *,
    content: Content = CONTENT,
    target: Target = TARGET,
    review: bool = False,
    redactions: Redactions = REDACTIONS,
    common: Common = DEFAULTS,
) -> None:
    """Export a session to a file.

    ```
    holdfast export customer-42
    holdfast export customer-42 --mode local --purpose move --out /mnt/usb/42.zip
    ```

    The file can be shared, imported elsewhere or replayed. Exports of an unchanged session
    are identical. The file is written atomically. Anything that could not be converted to another
    format is listed. With `--json`, prints one JSON object that says what was written.

    :param review: List redacted values and possible secrets, with reasons; write no file.
    """
    out, path = common.output(), target.path(session)
    if content.purpose == "move" and (target.format != "holdfast" or path is None):
        raise UsageError("--purpose move needs a file in the Holdfast format")
    mode: Mode = "replay_only" if content.mode == "replay-only" else content.mode
    how: dict[str, Any] = {
        "threads": content.thread or None,
        "upto": content.upto,
        "attachments": content.attachments,
        "scrub": await redactions.config(content.mode),
    }
    if review and mode != "sanitized":
        raise UsageError("--review needs --mode sanitized")
    async with common.open() as store:
        origin = (store, Scope(common.tenant, session))
        with out.working(f"exporting {plain(session)}") as show_progress:
            how["progress"] = event_counter(show_progress)
            if review:
                return _show_review(out, await review_bundle(origin, **how))
            how["purpose"] = content.purpose
            if target.format == "holdfast" and path is not None:
                return _show_written(
                    out, await _written(origin, mode, path, force=target.force, **how)
                )
            bundle = await export_bundle(origin, mode, **how)
    await _convert(out, bundle, target, path)


def event_counter(show_progress: Callable[[str], None]) -> Callable[[int], None]:
    """Return a callback that is called with numbers of events, adds them up and shows the sum."""
    total = 0

    def count(events: int) -> None:
        nonlocal total
        total += events
        show_progress(number(total, "event"))

    return count


async def _written(
    origin: tuple[Store, Scope], mode: Mode, target: Path, *, force: bool, **how: Any
) -> WrittenBundle:
    """Write a bundle. If the file of a move cannot be moved to its target, the move is undone."""
    moves = how["purpose"] == "move" and not any(
        row.sealed is not None for row in await threads_of(*origin)
    )
    made = None
    try:
        async with placed(target, force=force) as path:
            made = await export_bundle(origin, mode, to=path, **how)
    except HoldfastError:  # not after cancellation, when the file may be in place
        if made is not None and moves:
            await unseal_session(origin, reason="the export failed", actor=BY.who, force=True)
        raise
    return msgspec.structs.replace(made, path=str(target))


async def _convert(out: Output, bundle: Bundle, target: Target, path: Path | None) -> None:
    if path is not None:
        paths, loss = await save_bundle(bundle, target.format, path, force=target.force)
        named = [str(path) for path in paths]
        about = {"format": target.format, "paths": named, **_facts(bundle.document)}
        out.show({**about, "loss": loss_json(loss)}, named)
    elif target.format == "holdfast":
        loss = None
        sys.stdout.write((await asyncio.to_thread(bundle.to_json)).decode())
    else:
        document, loss = await asyncio.to_thread(write_harn, bundle)
        sys.stdout.write(document.encode().decode())
    show_loss(out, loss)


def _show_written(out: Output, made: WrittenBundle) -> None:
    document, totals = made.document, made.document.redaction.totals
    about = {"path": made.path, "form": made.form, "size": made.size, **_facts(document)}
    events = sum(thread.head - thread.shared for thread in document.threads)
    what = [
        number(len(document.threads), "thread"),
        number(events, "event"),
        size(made.size),
        document.mode,
        document.liveness,
    ]
    if totals:
        what.append(f"{sum(totals.values()):,} redacted")
    out.show({**about, "redaction": totals}, f"{made.path}  {', '.join(what)}")
    out.note(made.bundle_id)


def _facts(document: Document) -> dict[str, Any]:
    return {**summary(document), "threads": [thread.thread for thread in document.threads]}


def _show_review(out: Output, review: Review) -> None:
    """Print the reviewed values. Possible secrets come first, since the user must decide about
    them.
    """
    counts = Counter(entry.what for entry in review.entries)
    found = {name: counts[name] for name in ("replaced", "doubtful")}
    entries = sorted(review.entries, key=lambda entry: entry.what == "replaced")
    out.show(
        {**found, "omitted": review.omitted, "entries": review.entries},
        (f"{one.what:8}  {one.path}  {one.rule}  {one.text}  ({one.reason})" for one in entries),
    )
    counted = (
        f"{number(counts['replaced'], 'replacement')}, "
        f"{number(counts['doubtful'], 'possible secret')}"
    )
    out.note(f"{counted}; no file was written")
    if counts["doubtful"]:
        out.note(
            "--strict also redacts all possible secrets; --secrets-file FILE redacts the "
            "values you list"
        )


# Secrets to redact


def _secrets(path: Path) -> list[str]:
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _bad_file(f"{str(path)!r} cannot be read ({reason})") from error
    if len(data) > LARGEST:
        raise _bad_file(f"the file is larger than {LARGEST >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad_file("the file is not UTF-8") from None
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise _bad_file("the file is empty")
    return [_checked(line, "secrets_file", f"line {n}") for n, line in lines]


def _bad_file(problem: str) -> InvalidValue:
    return InvalidValue(
        field="secrets_file", problem=problem, remedy="pass a text file with one secret per line"
    )


def _checked(value: str, field: str, place: str) -> str:
    """Return a secret without surrounding spaces, which are seldom part of it."""
    if len(value.strip()) < SHORTEST:
        raise InvalidValue(
            field=field,
            problem=f"{place} is empty or has fewer than {SHORTEST} characters",
            remedy="pass whole secrets, since shorter values would match ordinary text",
            limit=SHORTEST,
        )
    return value.strip()
