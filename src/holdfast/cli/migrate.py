"""`holdfast migrate`: which schema a store has, and bringing it up to date."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ..stores.migrations import SchemaState, schema_of
from .options import EVERYWHERE, Common, check_there, open_store
from .output import Output


async def migrate(
    *,
    check: Annotated[
        bool, Parameter(help="Change nothing; exit code 1 unless the store is up to date.")
    ] = False,
    common: Common = EVERYWHERE,
) -> int:
    """Bring a store to the schema that this version knows, and say from which.

    ```
    holdfast migrate --check || holdfast migrate
    ```

    Programs migrate a store when they open it; this does it beforehand, and `--check` tells
    a deployment whether it must. With `--json`: one document.
    """
    out = common.output()
    await check_there(common.url)
    before = await schema_of(common.url)
    after = before
    if not check:
        async with open_store(_migrating(common.url), make=True):
            after = await schema_of(common.url)
    _tell(out, before, after)
    return int(after.due or after.too_new)


def _migrating(url: str) -> str:
    """The URL without what keeps programs from migrating."""
    place, _, query = url.partition("?")
    rest = "&".join(word for word in query.split("&") if not word.startswith("migrate="))
    return f"{place}?{rest}" if rest else place


def _tell(out: Output, before: SchemaState, after: SchemaState) -> None:
    if out.json:
        out.emit(
            {
                "found": before.found,
                "known": before.known,
                "migrated": after != before,
                "due": after.due,
                "too_new": after.too_new,
            }
        )
        return
    if after != before:
        verdict = f"migrated to {after.found}"
    elif after.due:
        verdict = "a migration is due; `holdfast migrate` carries it out"
    elif after.too_new:
        verdict = "too new; upgrade with: pip install --upgrade holdfast"
    else:
        verdict = "up to date"
    out.print(f"schema {before.found} found, {before.known} known: {verdict}")
