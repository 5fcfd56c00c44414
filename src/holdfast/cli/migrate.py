"""`holdfast migrate`: migrate a store to the current schema."""

from __future__ import annotations

from ..stores.migrations import SchemaState, schema_of
from .options import DEFAULTS, Common, check_exists, open_store


async def migrate(
    *,
    check: bool = False,
    common: Common = DEFAULTS,
) -> int:
    """Migrate a store to the current schema.

    ```
    holdfast migrate --check || holdfast migrate
    ```

    Programs migrate a store when they open it. Use this command to migrate it beforehand, and
    `--check` in deployment scripts. With `--json`, prints one JSON object.

    :param check: Change nothing; the exit code is 1 if a migration is needed.
    """
    await check_exists(common.url)
    before = await schema_of(common.url)
    after = before
    if not check:
        async with open_store(_migrating(common.url), make=True):
            after = await schema_of(common.url)
    about = {
        "found": before.found,
        "known": before.known,
        "migrated": after != before,
        "due": after.due,
        "too_new": after.too_new,
    }
    verdict = (
        f"store has schema {before.found}, program has {before.known}: {_verdict(before, after)}"
    )
    common.output().show(about, verdict)
    return int(after.due or after.too_new)


def _migrating(url: str) -> str:
    """Return the URL without the option that disables migration."""
    place, _, query = url.partition("?")
    rest = "&".join(word for word in query.split("&") if not word.startswith("migrate="))
    return f"{place}?{rest}" if rest else place


def _verdict(before: SchemaState, after: SchemaState) -> str:
    if after != before:
        return f"migrated to {after.found}"
    if after.due:
        return "a migration is needed; run `holdfast migrate`"
    if after.too_new:
        return "too new; upgrade with: pip install --upgrade holdfast"
    return "up to date"
