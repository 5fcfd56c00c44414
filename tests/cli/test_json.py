"""`--json` has the keys that programs rely on, for every verb that needs no server and no model.

After an addition on purpose, write the keys anew with HOLDFAST_CONTRACTS=write, and look at the
difference. To remove or rename a key breaks programs.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from holdfast import NewEvent, Store, key
from holdfast.cli.verbs import GROUPS, VERBS

from .conftest import Cli, created, said, sample, write

KEPT = Path(__file__).parent / "json_keys.json"
# Run in this order, in a folder with the store `store.db`. Verbs that keep running or need a server
# or a model are not here; their tests check their output.
COMMANDS = """
sessions --total
sessions --threads-of customer-42
show customer-42
show customer-42 --thread what-if
transcript customer-42
tail customer-42 --no-follow
pending
approve customer-42
deny second
answer third yes
abort customer-42
rewind third --to 2
adopt third --agent shop
session touch customer-43 --reason r
session suspend customer-43
session resume customer-43
session history customer-43
session pin customer-43
session unpin customer-43
session hold customer-43 --reason r
session hold customer-43 --lift
session ttl customer-43 2h --expiry 3d
session ttl customer-43
session surfaces customer-43 --attach web t:1
session surfaces customer-43
session surfaces customer-43 --detach web t:1
session metadata customer-43 --set k=v
session metadata customer-43
session expire customer-43
session reopen customer-43
sweep --ttl 1w --retention 90d --dry-run
budgets
budgets rebuild
search hello
search nothing --session customer-43 --since 2020-01-01 --limit 3
reindex
verify
anchors
repair
person export ann --out ann.jsonl
person export ann
person erase ann --reason r --dry-run
person erase ann --reason r --yes
schedules set third check --message go --every 1h
schedules list third
schedules pause third check
schedules resume third check
schedules remove third check
keys create ann
keys list
keys rotate KEY
keys revoke KEY
webhooks add https://127.0.0.1/hook --kind run.*
webhooks list
webhooks test KEY
webhooks redeliver KEY --since 2h
webhooks rotate KEY
webhooks remove KEY
copy customer-43 --to sqlite:copy.db
copy customer-43 --to sqlite:copy.db --move
unseal customer-43 --reason r --yes
export customer-43
export customer-43 --review
export customer-43 --format harn
export customer-43 --format claude --out folder
import customer-43.zip --as again --accept-redacted
import customer-43.zip --as other --read-only --dry-run
bundle validate customer-43.zip
bundle validate broken.zip
bundle inspect customer-43.zip
bundle diff customer-43.zip customer-43.zip
bundle replay customer-43.zip
bundle convert customer-43.zip --to harn --out harn.json
bundle schema --check none.json
bundle schema --out schema.json
vault new k
vault list --store sqlite:sealed.db?vault=vault.toml
vault reseal --store sqlite:sealed.db?vault=vault.toml
claude import transcripts
claude export restored
migrate --check
doctor
new folder-of-agent
delete customer-43 --yes
purge
show nobody
"""
ELSEWHERE = {"chat", "console", "mcp", "resume", "serve", "token", "demo", "webhooks run"}


DATA = ("before", "counts", "metadata", "redaction", "removed", "usage")  # whose keys are no fields


def keys(value: Any, depth: int = 3) -> Any:
    """The keys of a document, and of what is in it; of a list, those of its first item."""
    if isinstance(value, dict) and depth:
        inner = {name: 0 if name in DATA else depth - 1 for name in sorted(value)}
        return {name: keys(value[name], left) for name, left in inner.items()}
    if isinstance(value, list):
        return [keys(inner, depth) for inner in value[:1]]
    return type(value).__name__ if isinstance(value, (dict, bool)) else None


@pytest.fixture
def place(tmp_path: Path, shop: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, an encrypted store and a transcript, in which the commands are run."""
    monkeypatch.chdir(tmp_path)

    async def more(store: Store) -> None:
        for session, what in (("second", "approval"), ("third", "question")):
            asked = {"id": f"of-{session}", "what": what, "title": "?"}
            opened = [created(agent="shop"), said("hello"), NewEvent.of("pending.opened", asked)]
            await store.append(key(session), opened, create=True)

    write(shop, more)
    Path("vault.toml").write_text(cli("vault", "new", "k").out)
    Path("vault.toml").chmod(0o600)
    write("sqlite:sealed.db?vault=vault.toml", sample)
    Path("broken.zip").write_bytes(b"PK")
    Path("folder").mkdir()
    Path("transcripts/-home-ann").mkdir(parents=True)
    line = {"type": "user", "uuid": "u1", "sessionId": "s1", "message": {"role": "user"}}
    Path("transcripts/-home-ann/s1.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


def test_the_keys_of_json_output_stay_as_they_are(place: Path, cli: Cli) -> None:
    found: dict[str, Any] = {}
    made = ""
    for line in filter(None, COMMANDS.splitlines()):
        ended = cli(*shlex.split(line.replace("KEY", made)), "--json")
        text = ended.out or ended.err
        first: Any = json.loads(text.splitlines()[0]) if text else None
        if line.startswith(("keys create", "webhooks add")):
            made = first["id"]
        found[line] = {"code": ended.code, "lines": "many" * (text.count("\n") > 1)}
        found[line]["keys"] = keys(first)
    if os.environ.get("HOLDFAST_CONTRACTS") == "write":
        KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(KEPT.read_text(encoding="utf-8"))


@pytest.mark.parametrize("verb", ["sessions", "sessions --threads-of s", "pending"])
def test_an_empty_list_has_no_items_and_no_cursor(verb: str, url: str, cli: Cli) -> None:
    write(url, empty)
    ended = cli(*verb.split(), "--json", "--store", url)
    assert (ended.code, ended.out) == (0, '{"items":[],"cursor":null}\n')


@pytest.mark.parametrize("verb", ["verify", "anchors", "repair"])
def test_a_verb_with_a_line_per_item_prints_none_of_an_empty_store(
    verb: str, url: str, cli: Cli
) -> None:
    write(url, empty)
    ended = cli(verb, "--json", "--store", url)
    assert (ended.code, ended.out) == (0, "")


async def empty(store: Store) -> None:
    """Create the tables only."""


def test_every_verb_is_tried() -> None:
    verbs = [*VERBS, *(f"{g} {v.rstrip('_')}" for g, (_, _, vs) in GROUPS.items() for v in vs)]
    tried = [line for line in COMMANDS.splitlines() if line]
    missing = [verb for verb in verbs if not any(f"{one} ".startswith(f"{verb} ") for one in tried)]
    assert set(missing) == ELSEWHERE
