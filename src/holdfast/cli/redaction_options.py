"""What an export replaces beyond what the rules know: the options, and where secrets come from.

A secret is never an argument, which a list of processes and a shell's history would show: it stands
in the environment or in a file. What is wrong with one is told without it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..bundle.redaction.scrub import ScrubConfig
from ..errors import InvalidValue
from ..redact import SHORTEST
from .failure import UsageError

LARGEST = 1 << 20  # bytes of a file of secrets


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Private:
    """What is replaced beside what the rules find."""

    personal: Annotated[
        tuple[str, ...],
        Parameter(help="Replace personal data of this kind too: email, phone, card, iban, …"),
    ] = ()
    secret_env: Annotated[
        tuple[str, ...],
        Parameter(
            help="Replace the value of this environment variable too; may be given several times."
        ),
    ] = ()
    secrets_file: Annotated[
        Path | None, Parameter(help="Replace these values too: a file with one on each line.")
    ] = None

    strict: Annotated[
        bool,
        Parameter(help="Replace doubtful values too: those that `--review` shows as doubtful."),
    ] = False

    async def config(self, mode: str) -> ScrubConfig | None:
        """The rules for a mode; None if they are the usual ones. `UsageError` for a mode in which
        nothing is replaced."""
        if self == PRIVATE:
            return None
        if mode == "local":
            raise UsageError(
                "--mode local takes all as it is: --personal, --secret-env, --secrets-file and "
                "--strict are for the other modes"
            )
        secrets = list(self._values())
        if self.secrets_file is not None:
            secrets += await asyncio.to_thread(_lines, self.secrets_file.expanduser())
        return ScrubConfig(personal=self.personal, secrets=tuple(secrets), strict=self.strict)

    def _values(self) -> Iterator[str]:
        for n, name in enumerate(self.secret_env, 1):
            # Not named: it may be the secret itself, given by mistake.
            yield _checked(os.environ.get(name, ""), "secret_env", f"variable {n}")


PRIVATE = Private()


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise _unfit(
            f"{str(path)!r} cannot be read ({error.strerror or type(error).__name__})"
        ) from error
    if len(data) > LARGEST:
        raise _unfit(f"is larger than {LARGEST >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unfit("is not UTF-8") from None
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise _unfit("has no lines")
    return [_checked(line, "secrets_file", f"line {n}") for n, line in lines]


def _unfit(problem: str) -> InvalidValue:
    return InvalidValue(
        field="secrets_file", problem=problem, remedy="name a text file with one secret on a line"
    )


def _checked(value: str, field: str, place: str) -> str:
    """A secret without the blanks around it, which are seldom a part of it."""
    if len(value.strip()) < SHORTEST:
        raise InvalidValue(
            field=field,
            problem=f"has in {place} nothing, or fewer than {SHORTEST} characters",
            remedy="give whole secrets; shorter ones would be found in any text",
            limit=SHORTEST,
        )
    return value.strip()
